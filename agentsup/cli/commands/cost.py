"""``agentsup cost``: what agents have used, and what remains of their budgets."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from agentsup.cli.output.options import AsJson, client_of
from agentsup.cli.output.show import CommandOutput, when

_COLOURS = {"warned": "yellow", "exhausted": "red"}
_SCOPES = {
    "agent_day": "a day",
    "agent_month": "a month",
    "daemon_day": "a day, all agents",
    "daemon_month": "a month, all agents",
}


def cost(
    ctx: typer.Context,
    agent: Annotated[
        str | None, typer.Argument(metavar="[AGENT]", help="One agent; without it, all of them.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Money and tokens that agents have used, and what their budgets leave."""
    document = client_of(ctx).get("/cost", {"agent": agent} if agent else None)
    screen = CommandOutput.unless_json(document, as_json)
    spent = [(one["agent"], one) for one in document["agents"]]
    if document.get("all") is not None:
        spent.append(("all", document["all"]))
    rows = [
        (name, *(_money(one[span]) for span in ("day", "month", "total")), _tokens(one["day"]))
        for name, one in spent
    ]
    head = ("agent", "today", "this month", "in all", "tokens today")
    screen.table(head, rows, empty="There are no agents.")
    budgets = [(name, each) for name, one in spent for each in one["budgets"]]
    if budgets:
        screen.say("")
        screen.table(
            ("budget of", "for", "used", "of", "held", "state", "renewed"),
            [_budget(screen, name, each) for name, each in budgets],
            empty="",
        )
    unpriced = sum(one["month"]["unpriced"] for one in document["agents"])
    if unpriced:
        screen.say(f"{unpriced} turns of this month have no known price and count in tokens alone.")
    guessed = sum(one["month"]["estimated_tokens"] for one in document["agents"])
    if guessed:
        screen.say(
            f"{guessed:,} tokens of this month are estimated by the length of texts (≈): "
            "the program reports none."
        )


def _budget(screen: CommandOutput, name: str, one: dict[str, Any]) -> tuple[str, ...]:
    def shown(value: float) -> str:
        return f"${value:.4f}" if one["unit"] == "usd" else f"{value:,.0f} tokens"

    state = one["state"]
    if state in _COLOURS:
        state = screen.paint(state, _COLOURS[state])
    return (
        name,
        _SCOPES.get(one["scope"], one["scope"]),
        shown(one["used"]),
        shown(one["limit"]),
        shown(one["held"]) if one["held"] else "-",
        state,
        when(one["free_at"]),
    )


def _money(sums: dict[str, Any]) -> str:
    return "-" if sums["usd"] is None else f"${sums['usd']:.4f}"


def _tokens(sums: dict[str, Any]) -> str:
    used = sums["input_tokens"] + sums["output_tokens"]
    return f"{'≈ ' if sums['estimated_tokens'] else ''}{used:,}" if used else "-"
