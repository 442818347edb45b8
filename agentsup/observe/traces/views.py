"""Lists of traces, with the first words of each, and which trace is meant."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from agentsup.model.message import Part, text_of
from agentsup.model.trace import trace_id
from agentsup.observe.traces.tree import TURN_STATE, headers_of
from agentsup.store import Reader

LAST = "last"
CHARS = 80
"""The most characters of an excerpt."""
_READ = 4_000
_SOME_HEX = re.compile(r"[0-9a-f]{8,32}")


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
    spans: int
    failed: int
    agents: int

    @property
    def duration_us(self) -> int | None:
        """How long its first turn took; None until it has ended."""
        return None if self.ended_at is None else 1000 * max(0, self.ended_at - self.started_at)


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
    wanted = {"m.agent_id": agent_id, "m.session_id": session_id, TURN_STATE: state}
    given = {name: value for name, value in wanted.items() if value is not None}
    where = "".join(f" AND {name} = ?" for name in given)
    rows = reader.all(
        f"SELECT m.seq, m.traceparent, m.message_id, m.agent_id, {TURN_STATE}, m.error_code,"  # noqa: S608 - names are ours
        " m.started_at, m.finished_at FROM messages m"
        f" WHERE m.in_reply_to = '' AND m.started_at IS NOT NULL AND m.seq < ?{where}"
        " ORDER BY m.seq DESC LIMIT ?",
        (before or 1 << 62, *given.values(), limit),
    )
    found = []
    for seq, header, *facts in rows:
        trace = trace_id(header)
        found.append(TraceRow(*(seq, trace, *facts, *_counts(reader, trace))))
    return found


def _counts(reader: Reader, trace: str) -> tuple[int, int, int]:
    """The spans of a trace, those of them that failed, and the agents. Deliveries and waits for
    people are not counted."""
    row = reader.one(
        "SELECT count(*) + total((SELECT total(1 + (engine <> '')) FROM segments s"
        " WHERE s.message_id = m.message_id))"
        " + total((SELECT count(*) FROM tool_calls t WHERE t.message_id = m.message_id)),"
        " total(m.outcome = 'failed' OR m.state = 'dead') + total((SELECT count(*) FROM tool_calls t"
        " WHERE t.message_id = m.message_id AND t.state = 'failed')),"
        " count(DISTINCT m.agent_id) FROM messages m"
        " WHERE m.traceparent >= ? AND m.traceparent < ? AND m.started_at IS NOT NULL",
        headers_of(trace),
    )
    return (0, 0, 0) if row is None else (int(row[0]), int(row[1]), int(row[2]))


def find(reader: Reader, wanted: str) -> str | None:
    """The trace id for a message id, for the beginning of a trace id (8 digits or more), or for the
    last trace that began; None if there is none, or more than one."""
    if wanted == LAST:
        header = reader.scalar(
            "SELECT traceparent FROM messages WHERE in_reply_to = '' AND started_at IS NOT NULL"
            " ORDER BY seq DESC LIMIT 1"
        )
        return trace_id(header or "") or None
    if _SOME_HEX.fullmatch(wanted):
        row = reader.one(
            "SELECT min(traceparent), max(traceparent) FROM messages"
            " WHERE traceparent >= ? AND traceparent < ?",
            headers_of(wanted),
        )
        found = {trace_id(header or "") for header in row} if row is not None else set()
        return next(iter(found)) or None if len(found) == 1 else None
    header = reader.scalar("SELECT traceparent FROM messages WHERE message_id = ?", (wanted,))
    return trace_id(header or "") or None


def owners(reader: Reader, messages: Iterable[str]) -> dict[str, dict[str, Any]]:
    """The principal, as stored, of the root of each of these messages; pruned ones are missing."""
    rows = reader.all(
        "SELECT m.message_id, r.principal FROM messages m"
        " JOIN messages r ON r.message_id = m.root_id"
        " WHERE m.message_id IN (SELECT value FROM json_each(?))",
        (json.dumps(sorted(set(messages))),),
    )
    return {row[0]: json.loads(row[1]) for row in rows}


def texts(reader: Reader, messages: Sequence[str]) -> dict[str, str]:
    """The text of each of these messages as it was written; pruned ones are missing."""
    rows = reader.all(
        "SELECT message_id, parts FROM messages WHERE message_id IN"
        " (SELECT value FROM json_each(?))",
        (json.dumps(messages),),
    )
    return {row[0]: text_of(tuple(map(Part.from_json, json.loads(row[1])))) for row in rows}


def excerpt(text: str, redact: Callable[[str, int], str]) -> str:
    """The beginning of ``text`` on one line. ``redact(text, limit)`` removes secrets and leaves no
    part of one at its cut."""
    line = " ".join(redact(text, _READ).split())
    return line if len(line) <= CHARS else line[: CHARS - 1] + "…"
