"""One trace as a tree, read from what the daemon stores of its work anyway.

A trace has the messages with its id in their ``traceparent``. A turn is a message that was begun, with
its segments, its journaled calls, the questions asked in it and what was delivered for it.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

from agentsup.model.question import parse_permission_key
from agentsup.model.trace import SpanKind, SpanState, parent_id, span_of, turn_span
from agentsup.store import Reader, names

MOST_TURNS = 500
"""Shown of one trace."""
DETAIL_CHARS = 512
_BESIDE = 500
_SOME = 50
"""The number of messages in one query."""
_OF_THESE = "message_id IN (SELECT value FROM json_each(?))"
TURN_STATE: Final = (
    "CASE m.state WHEN 'done' THEN m.outcome WHEN 'dead' THEN 'failed' WHEN 'queued' THEN 'retry'"
    " WHEN 'leased' THEN iif(m.lease_boot ="
    " (SELECT boot_id FROM boots ORDER BY started_at DESC LIMIT 1), 'running', 'interrupted')"
    " ELSE m.state END"
)
"""The state of a turn, by its message ``m``: a lease of an earlier boot was interrupted."""
_ENDS: Final = {
    SpanState.RETRY: SpanState.CRASHED,
    SpanState.FAILED: SpanState.CRASHED,
    SpanState.RUNNING: SpanState.RUNNING,
    SpanState.CANCELLED: SpanState.CANCELLED,
}
"""How a segment without an end of its own ended, by the state of its turn."""
_RANKS: Final = {SpanKind.SEGMENT: 0, SpanKind.TURN: 1}
"""The order of spans that began in the same millisecond; other kinds come last."""
_CALL_STATES: Final = {
    "done": SpanState.OK,
    "failed": SpanState.FAILED,
    "unknown": SpanState.PARKED,
    "skipped": SpanState.CANCELLED,
}
_WAIT_STATES: Final = {
    "open": SpanState.PARKED,
    "answered": SpanState.OK,
    "expired": SpanState.FAILED,
    "cancelled": SpanState.CANCELLED,
}
_DELIVERY_STATES: Final = {
    "pending": SpanState.RUNNING,
    "delivered": SpanState.OK,
    "unknown": SpanState.FAILED,
    "dropped": SpanState.FAILED,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class SpanNode:
    """A piece of work in a tree; ``depth`` counts from 0. Times are wall ms.

    ``detail`` and the attributes may hold words of people.
    """

    span_id: str
    parent_id: str
    kind: SpanKind
    name: str
    agent_id: str
    message_id: str
    session_id: str
    state: SpanState
    code: str = ""
    detail: str = ""
    attributes: dict[str, Any] = field(default_factory=dict)
    started_at: int
    ended_at: int | None
    depth: int = 0

    @property
    def duration_us(self) -> int | None:
        """How long it took; None while it runs, and if nobody saw its end."""
        is_seen = self.ended_at is not None and self.state is not SpanState.INTERRUPTED
        return 1000 * max(0, (self.ended_at or 0) - self.started_at) if is_seen else None


@dataclass(frozen=True, slots=True)
class TraceTree:
    """Every known span of a trace, each after the one that caused it."""

    trace_id: str
    spans: tuple[SpanNode, ...]
    is_cut: bool
    """Whether there are more turns than are shown."""


def headers_of(beginning: str) -> tuple[str, str]:
    """The range of headers of the traces whose ids begin so."""
    return f"00-{beginning}", f"00-{beginning}~"


def tree(reader: Reader, trace: str) -> TraceTree | None:
    """One complete trace; None if it is unknown, or nothing of it was begun."""
    turns = reader.all(
        f"SELECT m.*, {TURN_STATE} AS turn_state FROM messages m"  # noqa: S608 - a constant
        " WHERE m.traceparent >= ? AND m.traceparent < ? AND m.started_at IS NOT NULL"
        " ORDER BY m.started_at, m.seq LIMIT ?",
        (*headers_of(trace), MOST_TURNS + 1),
    )
    if not turns:
        return None
    is_cut, turns = len(turns) > MOST_TURNS, turns[:MOST_TURNS]
    named = names(reader)
    spans = {turn_span(row["message_id"]) for row in turns}
    nodes = [_turn(row, named, spans) for row in turns]
    for i in range(0, len(turns), _SOME):
        some = {row["message_id"]: row for row in turns[i : i + _SOME]}
        ids = json.dumps(sorted(some))
        segments = _segments(reader, ids, some, named)
        nodes += segments
        nodes += _calls(reader, ids, some, segments)
        nodes += _waits(reader, ids)
        nodes += _deliveries(reader, ids)
        nodes += _routes(reader, ids)
    return TraceTree(trace, tuple(in_order(nodes)), is_cut)


def in_order(nodes: Iterable[SpanNode]) -> list[SpanNode]:
    """The spans in tree order with their depth: each after its parent and its older siblings. A
    span without a known parent is at the top."""
    known = {node.span_id: node for node in nodes}
    below: dict[str, list[SpanNode]] = {}
    for node in known.values():
        parent = node.parent_id if node.parent_id in known else ""
        below.setdefault(parent, []).append(node)
    for beside in below.values():
        beside.sort(key=lambda node: (node.started_at, _RANKS.get(node.kind, 2)))
    ordered: list[SpanNode] = []
    waiting = [(node, 0) for node in reversed(below.get("", []))]
    while waiting:
        node, depth = waiting.pop()
        ordered.append(replace(node, depth=depth))
        waiting += [(child, depth + 1) for child in reversed(below.pop(node.span_id, []))]
    return ordered


# -- turns -----------------------------------------------------------------------------------------


def _turn(row: Any, named: dict[str, str], spans: set[str]) -> SpanNode:
    """The turn of a message; a message whose cause is unknown stands below the one it answers."""
    cause = parent_id(row["traceparent"])
    if cause not in spans and row["in_reply_to"]:
        cause = turn_span(row["in_reply_to"])
    attributes = {
        "kind": row["kind"],
        "lane": row["lane"],
        "attempt": max(1, row["attempts"]),
        "waited_ms": max(0, row["started_at"] - row["accepted_at"]),
        **({"sender": row["sender_agent_id"]} if row["sender_agent_id"] else {}),
    }
    return SpanNode(
        span_id=turn_span(row["message_id"]),
        parent_id=cause,
        kind=SpanKind.TURN,
        name=named.get(row["agent_id"], row["agent_id"]),
        agent_id=row["agent_id"],
        message_id=row["message_id"],
        session_id=row["session_id"],
        state=SpanState(row["turn_state"]),
        code=row["error_code"],
        detail=row["error_text"][:DETAIL_CHARS],
        attributes=attributes,
        started_at=row["started_at"],
        ended_at=row["finished_at"],
    )


def _segments(
    reader: Reader, ids: str, turns: dict[str, Any], named: dict[str, str]
) -> list[SpanNode]:
    """The segments of these turns, and of each the run of its engine, as far as that is known."""
    rows = reader.all(
        f"SELECT *, lead(started_at, 1, {1 << 62}) OVER"  # noqa: S608 - constants
        " (PARTITION BY message_id ORDER BY segment_no) AS next_at FROM segments"
        f" WHERE {_OF_THESE} ORDER BY message_id, segment_no",
        (ids,),
    )
    failures = reader.all(
        f"SELECT * FROM attempts WHERE {_OF_THESE} ORDER BY attempt_id",  # noqa: S608 - a constant
        (ids,),
    )
    used = reader.all(f"SELECT * FROM usage WHERE {_OF_THESE}", (ids,))  # noqa: S608 - a constant
    nodes: list[SpanNode] = []
    for row in rows:
        within = [_within(row, each) for each in (failures, used)]
        segment, engine = _segment(row, turns[row["message_id"]], within[0])
        name = named.get(segment.agent_id, segment.agent_id)
        nodes.append(replace(segment, name=name))
        if engine:
            subject = f"{row['message_id']}:{row['segment_no']}"
            nodes.append(
                replace(
                    segment,
                    span_id=span_of(SpanKind.ENGINE, subject),
                    parent_id=segment.span_id,
                    kind=SpanKind.ENGINE,
                    name=engine,
                    attributes=_usage(row["model"], within[1]),
                )
            )
    return nodes


def _within(segment: Any, rows: Sequence[Any]) -> list[Any]:
    """The rows of a segment's time."""
    return [
        row
        for row in rows
        if row["message_id"] == segment["message_id"]
        and segment["started_at"] <= row["at"] <= segment["next_at"]
    ]


def _segment(row: Any, turn: Any, failures: Sequence[Any]) -> tuple[SpanNode, str]:
    """A segment and the name of its engine. A segment that failed and was tried again has no end of
    its own, but the failed attempt is recorded."""
    state, of_turn = row["state"], SpanState(turn["turn_state"])
    failed = failures[-1] if failures and state in ("running", "lost") else None
    ended_at = row["ended_at"]
    if state in ("suspended", "resumed"):
        found = SpanState.PARKED
    elif state == "ended":
        is_last = row["next_at"] == 1 << 62 and of_turn in (SpanState.OK, SpanState.FAILED)
        found = of_turn if is_last else SpanState.PARKED
    elif failed is not None:
        found, ended_at = SpanState.RETRY, failed["at"]
    elif state == "lost":
        found = SpanState.INTERRUPTED
    else:
        found, ended_at = _ENDS.get(of_turn, SpanState.INTERRUPTED), turn["finished_at"]
    is_failed = found in (SpanState.FAILED, SpanState.CRASHED)
    node = SpanNode(
        span_id=span_of(SpanKind.SEGMENT, f"{row['message_id']}:{row['segment_no']}"),
        parent_id=turn_span(row["message_id"]),
        kind=SpanKind.SEGMENT,
        name="",
        agent_id=turn["agent_id"],
        message_id=row["message_id"],
        session_id=turn["session_id"],
        state=found,
        code=failed["code"] if failed is not None else turn["error_code"] if is_failed else "",
        detail=failed["text"][:DETAIL_CHARS] if failed is not None else "",
        started_at=row["started_at"],
        ended_at=ended_at,
    )
    return node, row["engine"] or (failed["engine"] if failed is not None else "")


def _usage(model: str, used: Sequence[Any]) -> dict[str, Any]:
    found: dict[str, Any] = {"model": model} if model else {}
    if used:
        found["input_tokens"] = sum(row["input_tokens"] for row in used)
        found["output_tokens"] = sum(row["output_tokens"] for row in used)
    costs = [row["usd"] for row in used if row["usd"] is not None]
    if costs:
        found["usd"] = sum(costs)
    if any(row["is_estimated"] for row in used):
        found["is_estimated"] = True
    return found


# -- what stands below turns -----------------------------------------------------------------------


def _calls(
    reader: Reader, ids: str, turns: dict[str, Any], segments: Sequence[SpanNode]
) -> list[SpanNode]:
    """The journaled calls of these turns, below the engine that ran then, or its segment."""
    nodes = []
    for row in _rows(reader, "SELECT * FROM tool_calls WHERE", ids, order="rowid"):
        turn = turns[row["message_id"]]
        above = [
            each.span_id
            for each in segments
            if each.message_id == row["message_id"] and each.started_at <= row["started_at"]
        ]
        open_state = _ENDS.get(SpanState(turn["turn_state"]), SpanState.INTERRUPTED)
        node = _below(row, SpanKind.TOOL, row["call_id"], row["started_at"], turn=turn)
        nodes.append(
            replace(
                node,
                parent_id=above[-1] if above else node.parent_id,
                name=row["name"],
                state=_CALL_STATES.get(row["state"], open_state),
                code=row["code"],
                ended_at=row["ended_at"],
                attributes=_known(effect=row["effect"]),
            )
        )
    return nodes


def _waits(reader: Reader, ids: str) -> list[SpanNode]:
    """The waits for people in these turns."""
    return [
        replace(
            _below(row, SpanKind.PERSON, row["question_id"], row["asked_at"]),
            name=parse_permission_key(row["tool"])[0] or row["kind"],
            state=_WAIT_STATES[row["state"]],
            code="" if row["state"] in ("open", "answered") else row["state"],
            detail=row["text"][:200],
            ended_at=row["answered_at"],
            attributes=_known(question=row["question_id"], deadline_at=row["deadline_at"]),
        )
        for row in _rows(reader, "SELECT * FROM questions WHERE", ids, order="asked_at")
    ]


def _deliveries(reader: Reader, ids: str) -> list[SpanNode]:
    return [
        replace(
            _below(row, SpanKind.DELIVERY, str(row["outbox_id"]), row["created_at"]),
            name=f"{row['channel']} {row['kind']}",
            state=_DELIVERY_STATES[row["state"]],
            code="" if row["state"] in ("pending", "delivered") else row["state"],
            ended_at=row["ended_at"],
            attributes=_known(attempts=row["attempts"]),
        )
        for row in _rows(reader, "SELECT * FROM outbox WHERE", ids, order="outbox_id")
    ]


def _routes(reader: Reader, ids: str) -> list[SpanNode]:
    """Choices of agents in these turns, with the reasons for and against each."""
    chosen = "SELECT * FROM events WHERE type = 'route.chosen' AND"
    rows = _rows(reader, chosen, ids, order="seq")
    return [_route(row, json.loads(row["data"])) for row in rows]


def _route(row: Any, data: dict[str, Any]) -> SpanNode:
    agent, reason = data.get("agent") or "nobody", data.get("reason", "")
    compared = (*data.get("candidates", ()), *data.get("out", ()))
    reasons = [
        f"{each['agent']}: {each.get('reason') or '{} open'.format(each.get('load', 0))}"
        for each in compared
    ]
    return replace(
        _below(row, SpanKind.ROUTE, str(row["seq"]), row["at"]),
        name=f"{agent} ({reason})" if reason else agent,
        state=SpanState.OK if data.get("agent") else SpanState.FAILED,
        detail="; ".join(reasons)[:500],
        ended_at=row["at"],
        attributes=_known(needs=data.get("needs"), role=data.get("role") or None),
    )


def _rows(reader: Reader, select: str, ids: str, *, order: str) -> list[Any]:
    """The first rows of a query for these turns; ``select`` ends where that condition begins."""
    return reader.all(f"{select} {_OF_THESE} ORDER BY {order} LIMIT ?", (ids, _BESIDE))


def _below(
    row: Any, kind: SpanKind, subject: str, started_at: int, *, turn: Any = None
) -> SpanNode:
    """A span below the turn of a row; ``turn`` is its message, if the row itself names no agent."""
    of = row if turn is None else turn
    return SpanNode(
        span_id=span_of(kind, subject),
        parent_id=turn_span(row["message_id"]),
        kind=kind,
        name="",
        agent_id=of["agent_id"],
        message_id=row["message_id"],
        session_id=of["session_id"],
        state=SpanState.OK,
        started_at=started_at,
        ended_at=None,
    )


def _known(**facts: Any) -> dict[str, Any]:
    """The facts that are not None."""
    return {key: value for key, value in facts.items() if value is not None}
