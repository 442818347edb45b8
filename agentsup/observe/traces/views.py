"""Views of traces: lists, one trace as a tree, and statistics over many.

Spans are rows; waits for people and deliveries are derived from their own rows.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from agentsup.model.question import parse_permission_key
from agentsup.model.trace import SpanKind, SpanState, span_of, trace_id, turn_span
from agentsup.observe.traces.span import Span
from agentsup.store import Reader

LAST = "last"
MOST_SPANS = 2_000
"""Shown of one trace."""
_BESIDE = 500
_SOME_HEX = re.compile(r"[0-9a-f]{8,32}")
_COUNTED = 50
"""The number of messages in one query."""


@dataclass(frozen=True, slots=True)
class TraceRow:
    """One trace in a list: its first turn, and the number of its spans."""

    cursor: int
    trace_id: str
    message_id: str
    agent_id: str
    state: str
    code: str
    started_at: int
    ended_at: int | None
    duration_us: int | None
    spans: int
    failed: int
    agents: int


@dataclass(frozen=True, slots=True, kw_only=True)
class SpanNode(Span):
    """A span in a tree; ``depth`` counts from 0."""

    depth: int = 0


@dataclass(frozen=True, slots=True)
class TraceTree:
    """Every known span of a trace, each after the one that caused it."""

    trace_id: str
    spans: tuple[SpanNode, ...]
    is_cut: bool
    """Whether there are more spans than are shown."""


def newest(
    reader: Reader,
    *,
    agent_id: str | None = None,
    session_id: str | None = None,
    state: str | None = None,
    before: int | None = None,
    limit: int = 20,
) -> list[TraceRow]:
    """Traces by their first turn, newest first; ``before`` is a cursor of an earlier answer."""
    wanted = {"agent_id": agent_id, "session_id": session_id, "state": state}
    given = {name: value for name, value in wanted.items() if value is not None}
    where = "".join(f" AND {name} = ?" for name in given)
    rows = reader.all(
        "SELECT span_no, trace_id, message_id, agent_id, state, code, started_at, ended_at,"  # noqa: S608 - names are ours
        f" duration_us FROM spans WHERE is_root = 1 AND span_no < ?{where}"
        " ORDER BY span_no DESC LIMIT ?",
        (before or 1 << 62, *given.values(), limit),
    )
    return [TraceRow(*[*row, *_counts(reader, row["trace_id"])]) for row in rows]


def _counts(reader: Reader, trace: str) -> tuple[int, int, int]:
    row = reader.one(
        "SELECT count(*), total(state IN ('failed', 'crashed') AND kind IN ('turn', 'tool')),"
        " count(DISTINCT agent_id) FROM spans WHERE trace_id = ?",
        (trace,),
    )
    return (0, 0, 0) if row is None else (int(row[0]), int(row[1]), int(row[2]))


def find(reader: Reader, wanted: str) -> str | None:
    """The trace id for a message id, for the beginning of a trace id (8 digits or more), or for the
    last trace that began; None if there is none, or more than one."""
    if wanted == LAST:
        found = reader.scalar(
            "SELECT trace_id FROM spans WHERE is_root = 1 ORDER BY span_no DESC LIMIT 1"
        )
        return None if found is None else str(found)
    if _SOME_HEX.fullmatch(wanted):
        rows = reader.all(
            "SELECT DISTINCT trace_id FROM spans WHERE trace_id >= ? AND trace_id <= ? LIMIT 2",
            (wanted, wanted.ljust(32, "f")),
        )
        return str(rows[0][0]) if len(rows) == 1 else None
    found = reader.scalar("SELECT trace_id FROM spans WHERE span_id = ?", (turn_span(wanted),))
    if found is None:
        header = reader.scalar("SELECT traceparent FROM messages WHERE message_id = ?", (wanted,))
        found = trace_id(header or "") or None
    return None if found is None else str(found)


def tree(reader: Reader, trace: str) -> TraceTree | None:
    """One complete trace; None if it is unknown."""
    rows = reader.all(
        "SELECT span_id, trace_id, parent_id, kind, name, agent_id, message_id, session_id, state, code,"
        " detail, attributes, started_at, ended_at, duration_us FROM spans WHERE trace_id = ?"
        " ORDER BY started_at, span_no LIMIT ?",
        (trace, MOST_SPANS + 1),
    )
    if not rows:
        return None
    nodes = [
        SpanNode(**{**dict(row), "attributes": json.loads(row["attributes"])})
        for row in rows[:MOST_SPANS]
    ]
    messages = sorted({node.message_id for node in nodes if node.kind == SpanKind.TURN})
    for some in _in_pieces(messages):
        nodes += waits(reader, some)
        nodes += _deliveries(reader, some)
        nodes += _routes(reader, some)
    return TraceTree(trace, tuple(in_order(nodes)), len(rows) > MOST_SPANS)


def in_order(nodes: Iterable[SpanNode]) -> list[SpanNode]:
    """The spans in tree order with their depth: each after its parent and its older siblings. A
    span without a known parent is at the top."""
    known = {node.span_id: node for node in nodes}
    below: dict[str, list[SpanNode]] = {}
    for node in known.values():
        parent = node.parent_id if node.parent_id in known else ""
        below.setdefault(parent, []).append(node)
    for beside in below.values():
        beside.sort(key=lambda node: node.started_at)
    ordered: list[SpanNode] = []
    waiting = [(node, 0) for node in reversed(below.get("", []))]
    while waiting:
        node, depth = waiting.pop()
        ordered.append(replace(node, depth=depth))
        waiting += [(child, depth + 1) for child in reversed(below.pop(node.span_id, []))]
    return ordered


_WAIT_STATES = {
    "open": SpanState.PARKED,
    "answered": SpanState.OK,
    "expired": SpanState.FAILED,
    "cancelled": SpanState.CANCELLED,
}
_DELIVERY_STATES = {
    "pending": SpanState.RUNNING,
    "delivered": SpanState.OK,
    "unknown": SpanState.FAILED,
    "dropped": SpanState.FAILED,
}


def waits(reader: Reader, messages: Sequence[str]) -> list[SpanNode]:
    """The waits for people in these messages' turns, as children of the turns."""
    rows = reader.all(
        "SELECT * FROM questions WHERE message_id IN (SELECT value FROM json_each(?))"
        " ORDER BY asked_at LIMIT ?",
        (json.dumps(messages), _BESIDE),
    )
    return [
        _beside(
            row,
            SpanKind.PERSON,
            row["question_id"],
            name=parse_permission_key(row["tool"])[0] or row["kind"],
            state=_WAIT_STATES[row["state"]],
            code="" if row["state"] in ("open", "answered") else row["state"],
            detail=row["text"][:200],
            began_at=row["asked_at"],
            ended_at=row["answered_at"],
            more={"question": row["question_id"], "deadline_at": row["deadline_at"]},
        )
        for row in rows
    ]


def _deliveries(reader: Reader, messages: Sequence[str]) -> list[SpanNode]:
    rows = reader.all(
        "SELECT * FROM outbox WHERE message_id IN (SELECT value FROM json_each(?))"
        " ORDER BY outbox_id LIMIT ?",
        (json.dumps(messages), _BESIDE),
    )
    return [
        _beside(
            row,
            SpanKind.DELIVERY,
            str(row["outbox_id"]),
            name=f"{row['channel']} {row['kind']}",
            state=_DELIVERY_STATES[row["state"]],
            code="" if row["state"] in ("pending", "delivered") else row["state"],
            began_at=row["created_at"],
            ended_at=row["ended_at"],
            more={"attempts": row["attempts"]},
        )
        for row in rows
    ]


def _routes(reader: Reader, messages: Sequence[str]) -> list[SpanNode]:
    """Choices of agents in these messages' turns, with the reasons for and against each."""
    rows = reader.all(
        "SELECT * FROM events WHERE type = 'route.chosen'"
        " AND message_id IN (SELECT value FROM json_each(?)) ORDER BY seq LIMIT ?",
        (json.dumps(messages), _BESIDE),
    )
    return [_route(row, json.loads(row["data"])) for row in rows]


def _route(row: Any, data: dict[str, Any]) -> SpanNode:
    agent, reason = data.get("agent") or "nobody", data.get("reason", "")
    compared = (*data.get("candidates", ()), *data.get("out", ()))
    reasons = [
        f"{each['agent']}: {each.get('reason') or '{} open'.format(each.get('load', 0))}"
        for each in compared
    ]
    return _beside(
        row,
        SpanKind.ROUTE,
        str(row["seq"]),
        name=f"{agent} ({reason})" if reason else agent,
        state=SpanState.OK if data.get("agent") else SpanState.FAILED,
        detail="; ".join(reasons)[:500],
        began_at=row["at"],
        ended_at=row["at"],
        more={"needs": data.get("needs"), "role": data.get("role") or None},
    )


def _beside(
    row: Any,
    kind: SpanKind,
    subject: str,
    *,
    name: str,
    state: SpanState,
    code: str = "",
    detail: str = "",
    began_at: int,
    ended_at: int | None,
    more: dict[str, Any],
) -> SpanNode:
    return SpanNode(
        span_id=span_of(kind, subject),
        trace_id="",
        parent_id=turn_span(row["message_id"]),
        kind=kind,
        name=name,
        agent_id=row["agent_id"],
        message_id=row["message_id"],
        session_id=row["session_id"],
        state=state,
        code=code,
        detail=detail,
        attributes={key: value for key, value in more.items() if value is not None},
        started_at=began_at,
        ended_at=ended_at,
        duration_us=None if ended_at is None else 1000 * max(0, ended_at - began_at),
    )


def owners(reader: Reader, messages: Iterable[str]) -> dict[str, dict[str, Any]]:
    """The principal, as stored, of the root of each of these messages; pruned ones are missing."""
    found: dict[str, dict[str, Any]] = {}
    for some in _in_pieces(sorted(set(messages))):
        rows = reader.all(
            "SELECT m.message_id, r.principal FROM messages m"
            " JOIN messages r ON r.message_id = m.root_id"
            " WHERE m.message_id IN (SELECT value FROM json_each(?))",
            (json.dumps(some),),
        )
        found.update((row[0], json.loads(row[1])) for row in rows)
    return found


def _in_pieces(messages: Sequence[str]) -> Iterable[Sequence[str]]:
    return (messages[i : i + _COUNTED] for i in range(0, len(messages), _COUNTED))


# -- statistics ------------------------------------------------------------------------------------

MOST_COUNTED = 20_000


@dataclass(slots=True)
class StatisticsRow:
    """The number of spans, their states and their durations."""

    count: int = 0
    states: dict[str, int] = field(default_factory=dict)
    times_us: list[int] = field(default_factory=list)

    def add(self, state: str, duration_us: int | None) -> None:
        """Count one span."""
        self.count += 1
        self.states[state] = self.states.get(state, 0) + 1
        if duration_us is not None:
            self.times_us.append(duration_us)

    def quantile_ms(self, fraction: float) -> float | None:
        """The ``fraction`` quantile (0..1), by nearest rank; None without data."""
        if not self.times_us:
            return None
        ordered = sorted(self.times_us)
        rank = max(0, math.ceil(fraction * len(ordered) - 1e-9) - 1)
        return ordered[rank] / 1000


@dataclass(frozen=True, slots=True)
class TraceStatistics:
    """Rows by (kind, agent_id, name), and errors by (agent_id, kind, code)."""

    tallies: dict[tuple[str, str, str], StatisticsRow]
    errors: dict[tuple[str, str, str], int]
    counted: int
    is_cut: bool
    """Whether there were more spans than counted; the counted ones are the latest."""


def statistics(reader: Reader, since_ms: int, *, agent_id: str | None = None) -> TraceStatistics:
    """Statistics over all spans that began since then and have ended."""
    own = " AND agent_id = ?" if agent_id is not None else ""
    rows = reader.all(
        "SELECT kind, agent_id, name, state, code, duration_us FROM spans"  # noqa: S608 - a constant
        f" WHERE started_at >= ? AND ended_at IS NOT NULL{own}"
        " ORDER BY started_at DESC LIMIT ?",
        (since_ms, *(() if agent_id is None else (agent_id,)), MOST_COUNTED + 1),
    )
    tallies: dict[tuple[str, str, str], StatisticsRow] = {}
    errors: dict[tuple[str, str, str], int] = {}
    for kind, agent, name, state, code, duration_us in rows[:MOST_COUNTED]:
        named = name if kind in (SpanKind.TOOL, SpanKind.AGENT, SpanKind.ENGINE) else ""
        tallies.setdefault((kind, agent, named), StatisticsRow()).add(state, duration_us)
        if code and kind in (SpanKind.TURN, SpanKind.TOOL):
            key = (agent, kind, code)
            errors[key] = errors.get(key, 0) + 1
    return TraceStatistics(tallies, errors, min(len(rows), MOST_COUNTED), len(rows) > MOST_COUNTED)
