"""``agentsup trace …`` and ``cost``: the spans of turns, how long each took, and what all has cost."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from agentsup.cli.connect.client import segment
from agentsup.cli.output.options import AsJson, client_of, complete_agent, group
from agentsup.cli.output.reads import PAGE
from agentsup.cli.output.show import Column, CommandOutput, shortened, when, width_of
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


@trace.command("list")
def list_(
    ctx: typer.Context,
    agent: OfAgent = None,
    session: Annotated[str | None, typer.Option(help="Only of this session.")] = None,
    state: Annotated[
        str | None, typer.Option(help="ok, failed, parked, running, cancelled, interrupted …")
    ] = None,
    limit: Annotated[int, typer.Option("-n", "--limit", min=1, max=500)] = PAGE,
    as_json: AsJson = False,
) -> None:
    """Requests by their first turn, newest first."""
    asked = {"limit": limit, "agent": agent, "session": session, "state": state}
    document = client_of(ctx).get("/traces", asked)
    screen = CommandOutput.unless_json(document, as_json)
    columns: dict[str, Column] = {
        "trace": lambda one: one["trace_id"][:_SHORT_ID],
        "agent": "agent",
        "state": "state",
        "took": lambda one: length(one["duration_ms"]),
        "spans": lambda one: f"{one['spans']}" + (f" ({n} failed)" if (n := one["failed"]) else ""),
        "began": lambda one: when(one["started_at"]),
        "what": _what,
    }
    screen.listing(document["traces"], columns, empty="No traces are kept.")


def _what(one: dict[str, Any]) -> str:
    """The text of a request, or its id if there is none, with its error code."""
    words = one["text"] or ("(somebody else's)" if one["private"] else one["message_id"])
    return f"{one['code']}: {words}" if one["code"] else str(words)


@trace.command()
def show(ctx: typer.Context, which: Which = "last", as_json: AsJson = False) -> None:
    """One request as a tree: turns, engines, calls, waits and deliveries."""
    document = client_of(ctx).get(f"/traces/{segment(which)}")
    screen = CommandOutput.unless_json(document, as_json)
    screen.say(
        f"trace {document['trace_id']}: {document['state']}, {length(document['duration_ms'])}, "
        f"{len(document['spans'])} spans, began {when(document['started_at'])}"
    )
    for span in document["spans"]:
        screen.say(line(span, screen.width))
    if document["truncated"]:
        screen.say("… there are more turns than are shown")


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


@trace.command()
def metrics(
    ctx: typer.Context,
    agent: OfAgent = None,
    hours: Annotated[int, typer.Option(min=1, max=24 * 366, help="How far back.")] = 24,
    as_json: AsJson = False,
) -> None:
    """Show counts and durations: turns, segments, engines, tools and waits; errors by class."""
    document = client_of(ctx).get("/traces/metrics", {"hours": hours, "agent": agent})
    screen = CommandOutput.unless_json(document, as_json)
    rows = [row for one in document["agents"] for row in _statistics_rows(one)]
    head = ("what", "count", "p50", "p95", "p99", "ended")
    screen.table(head, rows, empty=f"Nothing has ended in the last {hours} hours.")
    if document["errors"]:
        screen.say("")
        errors = [(e["agent"], e["kind"], str(e["count"]), e["code"]) for e in document["errors"]]
        screen.table(("agent", "of a", "count", "error"), errors, empty="")
    if document["truncated"]:
        screen.say("Only the latest turns are counted.")


def _statistics_rows(one: dict[str, Any]) -> list[tuple[str, ...]]:
    named = [("turns", one["turns"]), ("segments", one["segments"])]
    for kind in ("engines", "tools", "waits"):
        named += [(f"{kind.removesuffix('s')} {each['name']}", each) for each in one[kind]]
    return [
        (
            f"{one['agent']}: {what}",
            str(times["count"]),
            length(times["p50_ms"]),
            length(times["p95_ms"]),
            length(times["p99_ms"]),
            ", ".join(f"{state} {count}" for state, count in sorted(times["states"].items())),
        )
        for what, times in named
        if times is not None
    ]


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
