"""Recent problems found in the store: loops, timeouts, leaks, stuck questions.

Only reads. Works with a store of an older schema: checks without their tables are skipped.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sized
from dataclasses import dataclass

from agentsup.model.errors import TIMEOUT_CODES
from agentsup.store import Reader, name_of

DAY_MS = 86_400_000
HOUR_MS = 3_600_000
LATE_MS = 60_000
"""The ms after its deadline at which a question should have expired."""
LOOKED = 20_000
"""The number of latest messages that are examined."""
SAME_CALLS = 5
PING_PONG = 4
"""The messages each way, within one request, from which it counts as a loop."""
MOST_TIMEOUTS = 5
MOST_LOOPS = 3
_SHOWN = 3


@dataclass(frozen=True, slots=True)
class TraceFinding:
    """One thing to look into: its subject, what was found, and what to do."""

    subject: str
    text: str
    advice: str


def examine(reader: Reader, now_ms: int, boot_id: str | None) -> list[TraceFinding]:
    """All findings; ``boot_id`` is that of the running daemon, None if none runs."""
    tables = {row[0] for row in reader.all("SELECT name FROM sqlite_schema WHERE type = 'table'")}
    checks: tuple[tuple[set[str], Callable[[], Iterator[TraceFinding]]], ...] = (
        ({"messages", "tool_calls"}, lambda: _loops(reader, now_ms)),
        ({"messages"}, lambda: _ping_pong(reader, now_ms)),
        ({"messages"}, lambda: _timeouts(reader, now_ms)),
        ({"processes", "messages"}, lambda: _processes(reader, boot_id)),
        ({"budget_holds", "messages"}, lambda: _holds(reader, now_ms, boot_id)),
        ({"questions", "messages"}, lambda: _questions(reader, now_ms)),
    )
    return [found for needs, check in checks if needs <= tables for found in check()]


# -- loops -----------------------------------------------------------------------------------------


def _loops(reader: Reader, now_ms: int) -> Iterator[TraceFinding]:
    rows = reader.all(
        "SELECT t.message_id, t.name, m.agent_id, count(*) FROM messages m"
        " JOIN tool_calls t USING (message_id) WHERE m.seq > (SELECT max(seq) FROM messages) - ?"
        " AND t.started_at >= ? GROUP BY t.message_id, t.args_hash HAVING count(*) >= ?"
        " ORDER BY 4 DESC LIMIT 20",
        (LOOKED, now_ms - DAY_MS, SAME_CALLS),
    )
    if rows:
        shown = "; ".join(
            f"{name_of(reader, row[2])} called {row[1]} {row[3]} times alike in {row[0]}"
            for row in rows[:_SHOWN]
        )
        advice = (
            f"see `agentsup trace show {rows[0][0]}`; tell the agent or its role what to do then"
        )
        yield TraceFinding("loops", f"{shown}{_more(rows)}", advice)
    stopped = reader.scalar(
        "SELECT count(*) FROM messages WHERE finished_at >= ? AND error_code = 'loop_detected'",
        (now_ms - DAY_MS,),
    )
    if stopped > MOST_LOOPS:
        text = f"{stopped} turns of the last day were ended because they went in circles"
        yield TraceFinding("loops", text, "see `agentsup trace metrics` for whose they are")


def _ping_pong(reader: Reader, now_ms: int) -> Iterator[TraceFinding]:
    """Two agents that send to each other again and again within one request."""
    rows = reader.all(
        "SELECT root_id, sender_agent_id, agent_id, count(*) FROM ("
        " SELECT * FROM messages ORDER BY seq DESC LIMIT ?)"
        " WHERE accepted_at >= ? AND sender_agent_id <> '' AND sender_agent_id <> agent_id"
        " AND kind <> 'reply' GROUP BY 1, 2, 3 HAVING count(*) >= ?",
        (LOOKED, now_ms - DAY_MS, PING_PONG),
    )
    ways = {(row[0], row[1], row[2]): row[3] for row in rows}
    found = [
        (root, one, other, count + ways[root, other, one])
        for (root, one, other), count in ways.items()
        if one < other and (root, other, one) in ways
    ]
    for root, one, other, count in found[:_SHOWN]:
        text = (
            f"{name_of(reader, one)} and {name_of(reader, other)} sent each other {count} messages "
            f"within the request {root}"
        )
        advice = f"see `agentsup trace show {root}`; narrow can_delegate_to, or tell one to answer"
        yield TraceFinding("loops", text, advice)


# -- timeouts --------------------------------------------------------------------------------------


def _timeouts(reader: Reader, now_ms: int) -> Iterator[TraceFinding]:
    rows = reader.all(
        "SELECT agent_id, count(*), max(message_id) FROM messages WHERE finished_at >= ?"
        " AND started_at IS NOT NULL AND error_code IN (SELECT value FROM json_each(?))"
        " GROUP BY agent_id HAVING count(*) > ? ORDER BY 2 DESC",
        (now_ms - DAY_MS, json.dumps(sorted(TIMEOUT_CODES)), MOST_TIMEOUTS),
    )
    for agent_id, count, message_id in rows:
        text = f"{count} turns of {name_of(reader, agent_id)} ran out of time in the last day"
        advice = (
            f"see `agentsup trace show {message_id}`; look at its engine, or raise turn_timeout_s"
        )
        yield TraceFinding("timeouts", text, advice)


# -- leaks -----------------------------------------------------------------------------------------


def _processes(reader: Reader, boot_id: str | None) -> Iterator[TraceFinding]:
    """Programs of an earlier boot, and programs of turns that no longer run. A tool server's
    program belongs to no message: while its daemon runs, it is no leak."""
    rows = reader.all(
        "SELECT p.pgid, p.argv0, p.message_id, p.boot_id FROM processes p LEFT JOIN messages m"
        " USING (message_id) WHERE p.boot_id <> ? OR m.state IS NULL"
        " OR m.state NOT IN ('leased', 'parked')",
        (boot_id or "",),
    )
    rows = [row for row in rows if row[3] != boot_id or row[2].startswith("msg_")]
    if not rows:
        return
    shown = ", ".join(f"{row[1]} (group {row[0]})" for row in rows[:_SHOWN])
    text = f"{len(rows)} programs are noted that nothing runs any more: {shown}"
    if boot_id is None:
        advice = "the next start ends what is left of them"
    else:
        advice = "see whether they run (`ps -o pid,args -g GROUP`); a restart sweeps them"
    yield TraceFinding("leaks", f"{text}{_more(rows)}", advice)


def _holds(reader: Reader, now_ms: int, boot_id: str | None) -> Iterator[TraceFinding]:
    if boot_id is None:
        return
    count = reader.scalar(
        "SELECT count(*) FROM budget_holds h LEFT JOIN messages m USING (message_id)"
        " WHERE h.at < ? AND (h.boot_id <> ? OR m.state IS NULL OR m.state <> 'leased')",
        (now_ms - LATE_MS, boot_id),
    )
    if count:
        text = f"{count} reservations of budgets are left of turns that do not run"
        yield TraceFinding(
            "leaks", text, "they count for nothing; they go when the daemon is restarted"
        )


# -- questions -------------------------------------------------------------------------------------


def _questions(reader: Reader, now_ms: int) -> Iterator[TraceFinding]:
    rows = reader.all(
        "SELECT q.question_id, q.agent_id, q.asked_at, q.deadline_at, m.state AS work,"
        " m.deliver_to FROM questions q LEFT JOIN messages m USING (message_id)"
        " WHERE q.state = 'open' ORDER BY q.asked_at LIMIT 1000"
    )
    late = [row for row in rows if row["deadline_at"] and row["deadline_at"] < now_ms - LATE_MS]
    if late:
        text = f"{len(late)} questions are open past their deadline ({late[0]['question_id']})"
        yield TraceFinding(
            "questions", text, "they end when a daemon runs; if one does, see `agentsup logs`"
        )
    idle = [row for row in rows if row["work"] not in ("parked", "leased") and row not in late]
    if idle:
        text = f"{len(idle)} questions are open that no work waits for ({idle[0]['question_id']})"
        yield TraceFinding(
            "questions", text, "answer them with `agentsup questions answer ID TEXT`"
        )
    known = {row["question_id"] for row in (*late, *idle)}
    unheard = [
        row
        for row in rows
        if row["question_id"] not in known
        and row["asked_at"] < now_ms - HOUR_MS
        and json.loads(row["deliver_to"]).get("kind") != "chat"
    ]
    if unheard:
        first = unheard[0]
        text = (
            f"{len(unheard)} questions wait for over an hour and were asked in no chat "
            f"({first['question_id']} of {name_of(reader, first['agent_id'])})"
        )
        advice = "see `agentsup questions list`; answer with `agentsup questions answer ID TEXT`"
        yield TraceFinding("questions", text, advice)
    old = [
        row
        for row in rows
        if row["question_id"] not in known
        and row not in unheard
        and row["deadline_at"] is None
        and row["asked_at"] < now_ms - DAY_MS
    ]
    if old:
        text = f"{len(old)} questions without a deadline are open for over a day"
        advice = f"`agentsup questions list` shows them; the oldest is {old[0]['question_id']}"
        yield TraceFinding("questions", text, advice)


# -- inside ----------------------------------------------------------------------------------------


def _more(rows: Sized) -> str:
    left = len(rows) - _SHOWN
    return f" and {left} more" if left > 0 else ""
