"""``agentsup trace …`` and ``cost``: the spans of turns, how long each took, and what all has cost."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from agentsup.cli.connect.client import segment
from agentsup.cli.output.declared import Request, asks, listing, read
from agentsup.cli.output.options import complete_agent, group
from agentsup.cli.output.reads import PAGE
from agentsup.cli.output.show import Cell, Columns, CommandOutput, at, shortened, when, width_of
from agentsup.kit.terminal import clean

trace = group("What turns did, piece by piece, and how long each took.")

_SHORT_ID = 12
_NARROW = 24
Which = Annotated[
    str,
    typer.Argument(
        metavar="[TRACE|MESSAGE|last]",
        help="A trace id or the first 8 digits of it, a message id, or the last one.",
    ),
]
OfAgent = Annotated[
    str | None, typer.Option("--agent", help="Only of this one.", autocompletion=complete_agent)
]


def length(ms: float | None) -> str:
    """A length of time to about three digits."""
    if ms is None:
        return "-"
    if ms < 1_000:
        return f"{ms:.1f} ms" if ms < 10 else f"{ms:.0f} ms"
    if ms < 120_000:
        return f"{ms / 1_000:.1f} s"
    return f"{ms / 60_000:.1f} min"


def took(member: str) -> Cell:
    """A column with a length of time in milliseconds."""
    return lambda one: length(one[member])


def _what(one: dict[str, Any]) -> str:
    """The text of a request, or its id if there is none, with its error code."""
    words = one["text"] or ("(somebody else's)" if one["private"] else one["message_id"])
    return f"{one['code']}: {words}" if one["code"] else str(words)


COLUMNS: Columns = (
    ("trace", lambda one: one["trace_id"][:_SHORT_ID]),
    *("agent", "state"),
    ("took", took("duration_ms")),
    ("spans", lambda one: f"{one['spans']}" + (f" ({n} failed)" if (n := one["failed"]) else "")),
    ("began", at("started_at")),
    ("what", _what),
)


@asks(listing("traces", COLUMNS, "No traces are kept."), trace, "list")
def list_(
    agent: OfAgent = None,
    session: Annotated[str | None, typer.Option(help="Only of this session.")] = None,
    state: Annotated[
        str | None, typer.Option(help="ok, failed, parked, running, cancelled, interrupted …")
    ] = None,
    limit: Annotated[int, typer.Option("-n", "--limit", min=1, max=500)] = PAGE,
) -> Request:
    """Requests by their first turn, newest first."""
    return read("/traces", limit=limit, agent=agent, session=session, state=state)


def _tree(screen: CommandOutput, one: dict[str, Any]) -> None:
    screen.say(
        f"trace {one['trace_id']}: {one['state']}, {length(one['duration_ms'])}, "
        f"{len(one['spans'])} spans, began {when(one['started_at'])}"
    )
    for span in one["spans"]:
        screen.say(line(span, screen.width))
    if one["truncated"]:
        screen.say("… there are more turns than are shown")


@asks(_tree, trace)
def show(which: Which = "last") -> Request:
    """One request as a tree: turns, engines, calls, waits and deliveries."""
    return read(f"/traces/{segment(which)}")


def line(span: dict[str, Any], width: int | None) -> str:
    """One span as a line, indented by its depth: what it was, how it ended, when and how long."""
    depth = span["depth"] if width is None else min(span["depth"], max(0, width - _NARROW) // 4)
    indent = "  " * depth
    what = clean(" ".join(filter(None, (span["kind"], span["name"]))))
    facts = [span["state"], length(span["duration_ms"]), f"+{length(span['offset_ms'])}"]
    if span["kind"] == "turn":
        facts.append(span["message_id"])
    if span["code"]:
        facts.append(span["code"])
    facts += _more(span["attributes"])
    text = f"{indent}{what}: {', '.join(map(clean, facts))}"
    if span["detail"]:
        text += f"  {clean(' '.join(span['detail'].split()))}"
    if width is None:
        return text
    room = max(_NARROW, width - width_of(indent))
    return f"{indent}{shortened(text.strip(), room)}"


def _more(attributes: dict[str, Any]) -> list[str]:
    parts = []
    if "input_tokens" in attributes:
        about = "≈ " if attributes.get("is_estimated") else ""
        parts.append(f"{about}{attributes['input_tokens']}+{attributes['output_tokens']} tokens")
    if attributes.get("usd"):
        parts.append(f"${attributes['usd']:.4f}")
    if attributes.get("attempt", 1) > 1:
        parts.append(f"attempt {attributes['attempt']}")
    return parts


STATISTICS: Columns = (
    *("what", "count"),
    ("p50", took("p50_ms")),
    ("p95", took("p95_ms")),
    ("p99", took("p99_ms")),
    ("ended", lambda one: ", ".join(f"{state} {n}" for state, n in sorted(one["states"].items()))),
)
ERRORS: Columns = ("agent", ("of a", "kind"), "count", ("error", "code"))


def _statistics(screen: CommandOutput, one: dict[str, Any]) -> None:
    """The lengths of what has ended, and the errors by class."""
    rows = [row for each in one["agents"] for row in _statistics_rows(each)]
    empty = f"Nothing has ended in the last {one['hours']} hours."
    screen.listing(rows, STATISTICS, empty=empty)
    if one["errors"]:
        screen.say("")
        screen.listing(one["errors"], ERRORS, empty="")
    if one["truncated"]:
        screen.say("Only the latest turns are counted.")


@asks(_statistics, trace)
def metrics(
    agent: OfAgent = None,
    hours: Annotated[int, typer.Option(min=1, max=24 * 366, help="How far back.")] = 24,
) -> Request:
    """Show counts and durations: turns, segments, engines, tools and waits; errors by class."""
    return read("/traces/metrics", hours=hours, agent=agent)


def _statistics_rows(one: dict[str, Any]) -> list[dict[str, Any]]:
    """The statistics of an agent, each with what it is of."""
    named = [("turns", one["turns"]), ("segments", one["segments"])]
    for kind in ("engines", "tools", "waits"):
        named += [(f"{kind.removesuffix('s')} {each['name']}", each) for each in one[kind]]
    return [{**times, "what": f"{one['agent']}: {what}"} for what, times in named if times]


_SCOPES = {
    "agent_day": "a day",
    "agent_month": "a month",
    "daemon_day": "a day, all agents",
    "daemon_month": "a month, all agents",
}


def _money(span: str) -> Cell:
    return lambda one: "-" if one[span]["usd"] is None else f"${one[span]['usd']:.4f}"


def _tokens(one: dict[str, Any]) -> str:
    sums = one["day"]
    used = sums["input_tokens"] + sums["output_tokens"]
    return f"{'≈ ' if sums['estimated_tokens'] else ''}{used:,}" if used else "-"


def _amount(member: str) -> Cell:
    """A column with an amount of a budget, in its unit."""
    return lambda one: (
        f"${one[member]:.4f}" if one["unit"] == "usd" else f"{one[member]:,.0f} tokens"
    )


SPENT: Columns = (
    "agent",
    ("today", _money("day")),
    ("this month", _money("month")),
    ("in all", _money("total")),
    ("tokens today", _tokens),
)


_reserved = _amount("held")
BUDGETS: Columns = (
    ("budget of", "of"),
    ("for", lambda one: _SCOPES.get(one["scope"], one["scope"])),
    ("used", _amount("used")),
    ("of", _amount("limit")),
    ("held", lambda one: _reserved(one) if one["held"] else "-"),
    "state",
    ("renewed", at("free_at")),
)


def _cost(screen: CommandOutput, one: dict[str, Any]) -> None:
    spent = list(one["agents"])
    if one.get("all") is not None:
        spent.append({**one["all"], "agent": "all"})
    screen.listing(spent, SPENT, empty="There are no agents.")
    budgets = [{**each, "of": by["agent"]} for by in spent for each in by["budgets"]]
    if budgets:
        screen.say("")
        screen.listing(budgets, BUDGETS, empty="")
    unpriced = sum(each["month"]["unpriced"] for each in one["agents"])
    if unpriced:
        screen.say(f"{unpriced} turns of this month have no known price and count in tokens alone.")
    guessed = sum(each["month"]["estimated_tokens"] for each in one["agents"])
    if guessed:
        screen.say(
            f"{guessed:,} tokens of this month are estimated by the length of texts (≈): "
            "the program reports none."
        )


@asks(_cost)
def cost(
    agent: Annotated[
        str | None, typer.Argument(metavar="[AGENT]", help="One agent; without it, all of them.")
    ] = None,
) -> Request:
    """Money and tokens that agents have used, and what their budgets leave."""
    return read("/cost", agent=agent or None)
