"""Looking at the mailbox: lists, threads, positions, counts and the conservation law."""

from __future__ import annotations

from typing import Any

from agentsup.mailbox.lanes import Waiting, ahead_of
from agentsup.mailbox.pace import eta_s
from agentsup.mailbox.place import held_by
from agentsup.mailbox.rows import IN_SESSION_SQL, OPEN_SQL, find_message, message_of, need_message
from agentsup.mailbox.values import Desk, Position
from agentsup.model.message import OPEN, Message, State
from agentsup.store.database import Reader
from agentsup.store.retention import Retention

__all__ = [
    "conservation",
    "counts",
    "list_messages",
    "open_counts",
    "position",
    "removed_counts",
    "retention_rules",
    "thread",
]

_DAY_MS = 24 * 60 * 60 * 1000
_LATE_MS = 30 * _DAY_MS
_SAMPLE = 20
OF_REMOVED_SQL = (
    "agent_id IN (SELECT agent_id FROM agents WHERE present = 0)"  # noqa: S608 - a constant
    f" AND ({OPEN_SQL} OR state = 'dead')"
)
"""What is not ended, or ended as a dead letter, with agents that are no longer there."""
_COLUMNS = ("accepted", *(state.value for state in State))


def list_messages(
    reader: Reader,
    *,
    agent_id: str | None = None,
    state: State | None = None,
    session_id: str | None = None,
    thread_id: str | None = None,
    before_seq: int | None = None,
    removed: bool = False,
    limit: int = 100,
) -> list[Message]:
    """Messages that fit every given filter, newest first; go on with the last one's ``seq``.

    ``removed``: only what waits, or lies dead, with agents that were removed.
    """
    clauses, params = ["1"], list[Any]()
    if removed:
        clauses.append(OF_REMOVED_SQL)
    for clause, value in (
        ("agent_id = ?", agent_id),
        (IN_SESSION_SQL, session_id),
        ("thread_id = ? AND thread_id <> ''", thread_id),
        ("seq < ?", before_seq),
        ("state = ?", state),
    ):
        if value is not None:
            clauses.append(clause)
            params += [value] * clause.count("?")
    if state in OPEN:
        clauses.append(OPEN_SQL)
    rows = reader.all(
        f"SELECT * FROM messages WHERE {' AND '.join(clauses)} ORDER BY seq DESC LIMIT ?",  # noqa: S608 - clauses are the constants above
        [*params, max(1, min(limit, 1000))],
    )
    return [message_of(row) for row in rows]  # type: ignore[arg-type]  # Row is a mapping in all but name


def thread(reader: Reader, thread_id: str, *, limit: int = 1000) -> list[Message]:
    """Everything of a thread, oldest first: messages of that thread id, or, for a message id, all
    that descends from the same root, at any depth."""
    start = find_message(reader, thread_id)
    root_id = start.root_id if start is not None else thread_id
    named = start.thread_id if start is not None and start.thread_id else thread_id
    rows = reader.all(
        "SELECT * FROM messages WHERE seq IN ("
        " SELECT seq FROM messages WHERE thread_id = ? AND thread_id <> ''"
        " UNION SELECT seq FROM messages WHERE root_id = ? AND root_id <> message_id"
        " UNION SELECT seq FROM messages WHERE message_id = ?) ORDER BY seq LIMIT ?",
        (named, root_id, root_id, limit),
    )
    return [message_of(row) for row in rows]  # type: ignore[arg-type]  # as above


def position(desk: Desk, reader: Reader, message_id: str) -> Position:
    """How many messages of its session run before this one, and when it may be done. Raises
    ``NotFound``."""
    message = need_message(reader, message_id)
    if message.state is not State.QUEUED:
        return Position(0)
    rows = reader.all(
        f"SELECT seq, session_id, priority, accepted_at FROM messages"  # noqa: S608 - a constant
        f" WHERE agent_id = ? AND session_id = ? AND {OPEN_SQL} AND state = 'queued'",
        (message.agent_id, message.session_id),
    )
    own = Waiting(message.seq, message.session_id, int(message.priority), message.accepted_at)
    ahead = ahead_of(own, (Waiting(*row) for row in rows), desk.clock.now_ms())
    mean_s = desk.pace.mean_s(message.agent_id)
    if mean_s is None:
        mean_s = _stored_mean_s(reader, message.agent_id)
        if mean_s is not None:
            desk.pace.seed(message.agent_id, mean_s)
    if (asked := held_by(reader, message.agent_id, message.session_id)) is not None:
        return Position(ahead, None, asked)
    return Position(ahead, eta_s(ahead, mean_s, desk.limits.slots_for(message.agent_id)))


def counts(reader: Reader) -> dict[str, dict[str, int]]:
    """Per agent: how many messages are in each state, and ``accepted`` in all."""
    result: dict[str, dict[str, int]] = {}
    for agent_id, state, count in reader.execute("SELECT agent_id, state, count FROM counts"):
        result.setdefault(agent_id, dict.fromkeys(_COLUMNS, 0))[state] = count
    return result


def open_counts(reader: Reader) -> dict[str, int]:
    """Per agent how many messages are open with it: queued, leased or parked. Agents that have
    none are left out."""
    rows = reader.all(
        "SELECT agent_id, SUM(count) FROM counts WHERE state IN ('queued', 'leased', 'parked')"
        " GROUP BY agent_id HAVING SUM(count) > 0"
    )
    return {row[0]: row[1] for row in rows}


def removed_counts(reader: Reader) -> dict[str, int]:
    """By name, how many messages wait for agents that were removed."""
    rows = reader.all(
        "SELECT a.name, SUM(c.count) FROM counts c JOIN agents a ON a.agent_id = c.agent_id"
        " WHERE a.present = 0 AND c.state IN ('queued', 'leased', 'parked')"
        " GROUP BY a.name HAVING SUM(c.count) > 0 ORDER BY a.name"
    )
    return {row[0]: row[1] for row in rows}


def conservation(reader: Reader) -> tuple[bool, dict[str, int]]:
    """Whether accepted = the sum of all states, pruned rows included, for every agent.

    The dictionary has the sums over all agents and ``pruned``.
    """
    rows = reader.all("SELECT agent_id, SUM(count) FROM totals GROUP BY agent_id")
    pruned: dict[str, int] = {row[0]: row[1] for row in rows}
    total = dict.fromkeys((*_COLUMNS, "pruned"), 0)
    total["pruned"] = sum(pruned.values())
    holds = True
    for agent_id, states in counts(reader).items():
        present = sum(states[state.value] for state in State)
        holds &= states["accepted"] == present + pruned.get(agent_id, 0)
        for name, count in states.items():
            total[name] += count
    return holds, total


def retention_rules(*, keep_days: int = 90) -> tuple[Retention, ...]:
    """What may go: ended messages and what belongs to them; dead letters stay.

    The ledger outlives its messages, so that a late repetition is still recognised. Transcripts and
    usage are people's history and stay. Tables that only grow at their end are looked at from their
    beginning, a stretch at a time, so that nothing walks what is young.
    """
    keep_ms = keep_days * _DAY_MS
    oldest = "{key} < (SELECT min({key}) FROM {table}) + 2000"
    orphan = "NOT EXISTS (SELECT 1 FROM messages m WHERE m.message_id = {table}.message_id)"
    return (
        Retention(
            "messages",
            "finished_at IS NOT NULL AND finished_at < :cutoff AND state IN ('done', 'cancelled')",
            keep_ms,
            key="seq",
        ),
        # Without a rowid; all entries of one millisecond go together.
        Retention("ledger", "at < :cutoff", keep_ms + _DAY_MS, key="at"),
        Retention(
            "questions",
            "state <> 'open' AND answered_at < :cutoff",
            keep_ms,
            key="question_id",
        ),
        Retention("outbox", "ended_at < :cutoff", keep_ms, key="outbox_id"),
        Retention("attempts", "at < :cutoff", keep_ms, key="attempt_id"),
        Retention("wait_told", "at < :cutoff", keep_ms, key="message_id"),
        Retention(
            "events",
            f"at < :cutoff AND {oldest.format(key='seq', table='events')}",
            keep_ms,
            key="seq",
        ),
        Retention(
            "tool_calls",
            f"ended_at < :cutoff AND {oldest.format(key='rowid', table='tool_calls')}"
            f" AND {orphan.format(table='tool_calls')}",
            keep_ms,
        ),
        # Message ids sort by time.
        Retention(
            "segments",
            "ended_at < :cutoff AND message_id IN"  # noqa: S608 - constants
            " (SELECT message_id FROM segments ORDER BY message_id LIMIT 2000)"
            f" AND {orphan.format(table='segments')}",
            keep_ms,
            key="message_id",
        ),
        # A press that comes later is still answered as too late.
        Retention("buttons", "expires_at < :cutoff", _LATE_MS, key="token"),
        Retention("presses", "at < :cutoff", _LATE_MS, key="press_id"),
        Retention("question_ends", "at < :cutoff", keep_ms, key="question_id"),
        # Left by a crash and by nobody taken over: the platform forgets such messages too.
        Retention("streams", "at < :cutoff", _LATE_MS, key="message_id"),
    )


def _stored_mean_s(reader: Reader, agent_id: str) -> float | None:
    mean: float | None = reader.scalar(
        "SELECT AVG(finished_at - started_at) / 1000.0 FROM (SELECT finished_at, started_at"
        " FROM messages WHERE agent_id = ? AND state = 'done' AND started_at IS NOT NULL"
        " ORDER BY seq DESC LIMIT ?)",
        (agent_id, _SAMPLE),
    )
    return mean
