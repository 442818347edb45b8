"""``/trace`` and ``/cost``: the messages of a request through the agents, what each turn did, and what
an agent has used of its budgets."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from agentsup.agents.budget import money
from agentsup.catalogue import LocalizedTexts, words
from agentsup.commands import texts
from agentsup.commands.dispatch import Command, CommandServices, is_operator
from agentsup.mailbox.mail import name_in
from agentsup.model.control import CommandContext, CommandReply
from agentsup.model.errors import Forbidden, NotFound
from agentsup.model.message import Message
from agentsup.model.trace import SpanKind, trace_id
from agentsup.observe.traces import SpanNode, tree, views

SHOWN = 30
"""The most messages of one request that are shown."""
PIECES = 12
"""The most spans of one turn that are shown."""
_SHOWN_KINDS = (SpanKind.ENGINE, SpanKind.TOOL, SpanKind.PERSON, SpanKind.ROUTE)


def _is_theirs(context: CommandContext, root: Message) -> bool:
    """Whether the request began with a message of this person, or in this chat."""
    to, by = root.deliver_to, context.principal
    is_here = (to.agent_id, to.channel, to.conversation) == context.address
    return is_here or (root.principal.kind, root.principal.subject) == (by.kind, by.subject)


@dataclass(frozen=True, slots=True)
class _Trace:
    s: CommandServices

    async def run(self, context: CommandContext, rest: str) -> CommandReply:
        say = words(context.language)
        start = await self._start_of(context, rest.split(maxsplit=1)[0] if rest else "")
        messages = await self.s.mailbox.messages.thread(start.root_id)
        if not context.principal.is_operator and not _is_theirs(context, messages[0]):
            raise Forbidden(say("trace.foreign", id=start.message_id))
        by_id = {str(m.message_id): m for m in messages}
        pieces = await self._pieces(messages[:SHOWN])
        lines = []
        for message in messages[:SHOWN]:
            depth = _depth(message, by_id)
            name = name_in(self.s.directory, message.agent_id)
            lines.append(texts.step(message, name, depth, since_ms=messages[0].accepted_at))
            own = pieces.get(message.message_id, [])
            lines += [f"{'   ' * (depth + 1)}{texts.piece(span, say)}" for span in own[:PIECES]]
            if len(own) > PIECES:
                lines.append("   " * (depth + 1) + say("list.more", n=len(own) - PIECES))
        if len(messages) > SHOWN:
            lines.append(say("list.more", n=len(messages) - SHOWN))
        return CommandReply("\n".join(lines))

    async def _pieces(self, messages: Sequence[Message]) -> dict[str, list[SpanNode]]:
        """The spans of the turns by message id, for these messages only, not the whole trace."""
        wanted = {message.message_id for message in messages}
        traces = {trace_id(message.traceparent) for message in messages} - {""}
        found: dict[str, list[SpanNode]] = {}
        for trace in sorted(traces):
            found_tree = await self.s.database.read(
                lambda reader, trace=trace: tree.tree(reader, trace),  # type: ignore[misc]  # bound at once
                name="command.trace",
            )
            for span in found_tree.spans if found_tree is not None else ():
                if span.kind in _SHOWN_KINDS and span.message_id in wanted:
                    found.setdefault(span.message_id, []).append(span)
        return found

    async def _start_of(self, context: CommandContext, wanted: str) -> Message:
        """The message with that id or trace id, or the latest one of this chat. Raises
        ``NotFound``."""
        if wanted.startswith("msg_"):
            return await self.s.mailbox.messages.get(wanted)
        wanted = "" if wanted.casefold() == views.LAST else wanted
        found = await self.s.mailbox.messages.list(agent_id=context.agent_id, limit=200)
        key = f"{context.channel}:{context.conversation}"
        for message in found:
            to = message.deliver_to
            if wanted:
                if message.traceparent[3:35] == wanted:
                    return message
            elif to.kind == "chat" and f"{to.channel}:{to.conversation}" == key:
                return message
        say = words(context.language)
        raise NotFound(say("trace.no_trace", trace=wanted) if wanted else say("trace.no_message"))


def trace_commands(services: CommandServices) -> tuple[Command, ...]:
    """The command ``/trace``."""
    run = _Trace(services)
    about = "the way of a request through the agents"
    return (Command("trace", "[MESSAGE_ID | last]", about, run.run),)


def _depth(message: Message, by_id: dict[str, Message]) -> int:
    depth, parent = 0, by_id.get(message.in_reply_to)
    while parent is not None and depth < 10:
        depth, parent = depth + 1, by_id.get(parent.in_reply_to)
    return depth


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
