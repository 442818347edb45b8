"""``/cost``: the usage of an agent, and the state of its budgets."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from agentsup.agents.budget import money
from agentsup.catalogue import LocalizedTexts, words
from agentsup.commands.dispatch import Command, is_operator
from agentsup.model.control import CommandContext, CommandReply
from agentsup.model.errors import Forbidden

Documents = Callable[[str | None], Awaitable[dict[str, Any]]]
"""Returns the usage of the agent of that name, or of all agents for None."""


def cost_commands(documents: Documents) -> tuple[Command, ...]:
    """The command ``/cost``."""

    async def run(context: CommandContext, rest: str) -> CommandReply:
        say, wanted = words(context.language), rest.strip()
        is_own = wanted.casefold() in ("", context.agent_name.casefold())
        if not is_own and not is_operator(context):
            raise Forbidden(say("cost.operators"))
        if is_own or wanted.casefold() != "all":
            found = await documents(context.agent_name if is_own else wanted)
            return CommandReply("\n".join(_lines(found["agents"][0], say)))
        found = await documents(None)
        blocks = [[one["agent"], *_lines(one, say)] for one in found["agents"]]
        blocks.append([say("cost.all"), *_lines({**found["all"], "agent": ""}, say)])
        return CommandReply("\n\n".join("\n".join(block) for block in blocks))

    return (Command("cost", "[NAME | all]", "what this agent has used", run),)


def _lines(one: Mapping[str, Any], say: LocalizedTexts) -> list[str]:
    lines = [
        say(f"cost.{span}", spent=_spent(one[span], say)) for span in ("day", "month", "total")
    ]
    lines += [_budget(budget, one["agent"], say) for budget in one["budgets"]]
    if one["month"]["unpriced"]:
        lines.append(say.count("cost.unpriced", one["month"]["unpriced"]))
    if one["month"]["estimated_tokens"]:
        lines.append(say("cost.estimated", n=f"{one['month']['estimated_tokens']:,}"))
    return lines


def _spent(sums: Mapping[str, Any], say: LocalizedTexts) -> str:
    tokens_in, tokens_out, usd = sums["input_tokens"], sums["output_tokens"], sums["usd"]
    if not tokens_in and not tokens_out and not usd:
        return say("cost.none")
    paid = f", {money(usd)}" if usd else ""
    about = "≈ " if sums["estimated_tokens"] else ""
    tokens = say("cost.tokens", input=tokens_in, output=tokens_out)
    read, written = sums["cache_read_tokens"], sums["cache_write_tokens"]
    if read or written:
        tokens = say("cost.cached", tokens=tokens, read=read, written=written)
    return about + tokens + paid


def _budget(one: Mapping[str, Any], name: str, say: LocalizedTexts) -> str:
    def of(value: float) -> str:
        if one["unit"] == "usd":
            return money(value)
        return say("budget.tokens", n=f"{value:,.0f}")

    scope = say(f"budget.{one['scope']}", name=name)
    percent = round(100 * one["used"] / one["limit"]) if one["limit"] else 100
    line = say(
        "cost.budget",
        scope=scope[:1].upper() + scope[1:],
        used=of(one["used"]),
        most=of(one["limit"]),
        percent=percent,
    )
    line = say("cost.held", line=line, held=of(one["held"])) if one["held"] else line
    mark = {"warned": "⚠ ", "exhausted": "✗ "}.get(one["state"], "")
    return mark + line
