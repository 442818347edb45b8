"""Reading the mailbox: lists, threads, positions, counts and the conservation law."""

from __future__ import annotations

from typing import Any

from agentsup.mailbox.messages.loads import eta_s
from agentsup.mailbox.messages.rows import (
    FOLLOWING_SQL,
    IN_SESSION_SQL,
    OPEN_SQL,
    deliver_to_of,
    find_message,
    message_of,
    need_message,
    principal_of,
)
from agentsup.mailbox.messages.values import Position
from agentsup.mailbox.queue.admission import holder_of_session
from agentsup.mailbox.service import Service, in_reader
from agentsup.model.message import OPEN, DeliverTo, Message, MessageState
from agentsup.model.principal import Principal
from agentsup.model.task import DeliveryState
from agentsup.store import Reader, Retention

_DAY_MS = 24 * 60 * 60 * 1000
_SAMPLE = 20
OF_REMOVED_SQL = (
    "agent_id IN (SELECT agent_id FROM agents WHERE present = 0)"  # noqa: S608 - a constant
    f" AND ({OPEN_SQL} OR state = 'dead')"
)
"""Open and failed messages of agents that were removed."""
_ANSWER_SQL = (
    "SELECT 'answer' AS name, m.message_id AS call_id, substr(m.result_text, ?, ?) AS piece,"
    " length(m.result_text) AS chars, 0 AS is_outside FROM messages m"
    " JOIN messages p ON p.message_id = m.in_reply_to"
    " WHERE m.message_id = ? AND m.state = 'done' AND p.agent_id = ? AND p.session_id = ?"
)
_COLUMNS = ("accepted", *(state.value for state in MessageState))


class MessageQueries(Service):
    """Reading messages."""

    @in_reader("mailbox.get")
    def get(self, reader: Reader, message_id: str) -> Message:
        """One message. Raises ``NotFound``."""
        return need_message(reader, message_id)

    @in_reader("mailbox.thread")
    def thread(self, reader: Reader, thread_id: str, *, limit: int = 1000) -> list[Message]:
        """The messages of a thread, oldest first; for a message id, all with the same root, too."""
        start = find_message(reader, thread_id)
        root_id = start.root_id if start is not None else thread_id
        named = start.thread_id if start is not None and start.thread_id else thread_id
        return reader.values(
            message_of,
            "SELECT * FROM messages WHERE seq IN ("
            " SELECT seq FROM messages WHERE thread_id = ? AND thread_id <> ''"
            " UNION SELECT seq FROM messages WHERE root_id = ? AND root_id <> message_id"
            " UNION SELECT seq FROM messages WHERE message_id = ?) ORDER BY seq LIMIT ?",
            (named, root_id, root_id, limit),
        )

    @in_reader("mailbox.position")
    def position(self, reader: Reader, message_id: str) -> Position:
        """The number of messages of its session that run before this one, and the estimated wait.

        Raises ``NotFound``.
        """
        ctx, message = self.context, need_message(reader, message_id)
        if message.state is not MessageState.QUEUED:
            return Position(0)
        ahead = reader.scalar(
            f"SELECT count(*) FROM messages WHERE agent_id = ? AND session_id = ? AND {OPEN_SQL}"  # noqa: S608 - a constant
            " AND state = 'queued' AND seq < ?",
            (message.agent_id, message.session_id, message.seq),
        )
        mean_s = ctx.durations.mean_s(message.agent_id)
        if mean_s is None:
            mean_s = _stored_mean_s(reader, message.agent_id)
            if mean_s is not None:
                ctx.durations.seed(message.agent_id, mean_s)
        if (asked := holder_of_session(reader, message.agent_id, message.session_id)) is not None:
            return Position(ahead, None, asked)
        return Position(ahead, eta_s(ahead, mean_s, ctx.limits.slots_for(message.agent_id)))

    @in_reader("mailbox.counts")
    def counts(self, reader: Reader) -> dict[str, dict[str, int]]:
        """Per agent: how many messages are in each state, and ``accepted`` in all."""
        return _counts(reader)

    @in_reader("mailbox.conservation")
    def conservation(self, reader: Reader) -> tuple[bool, dict[str, int]]:
        """Whether accepted = the sum of all states, pruned rows included, for every agent.

        The dictionary has the sums over all agents and ``pruned``.
        """
        rows = reader.all("SELECT agent_id, SUM(count) FROM totals GROUP BY agent_id")
        pruned: dict[str, int] = {row[0]: row[1] for row in rows}
        total = dict.fromkeys((*_COLUMNS, "pruned"), 0)
        total["pruned"] = sum(pruned.values())
        holds = True
        for agent_id, states in _counts(reader).items():
            present = sum(states[state.value] for state in MessageState)
            holds &= states["accepted"] == present + pruned.get(agent_id, 0)
            for name, count in states.items():
                total[name] += count
        return holds, total

    @in_reader("mailbox.list")
    def list(
        self,
        reader: Reader,
        *,
        agent_id: str | None = None,
        state: MessageState | None = None,
        session_id: str | None = None,
        thread_id: str | None = None,
        before_seq: int | None = None,
        removed: bool = False,
        limit: int = 100,
    ) -> list[Message]:
        """Messages that match every given filter, newest first.

        For the next page, pass the last one's ``seq`` as ``before_seq``. ``removed``: only open and
        failed messages of agents that were removed.
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
        return reader.values(
            message_of,
            f"SELECT * FROM messages WHERE {' AND '.join(clauses)} ORDER BY seq DESC LIMIT ?",  # noqa: S608 - clauses are the constants above
            [*params, max(1, min(limit, 1000))],
        )


def _counts(reader: Reader) -> dict[str, dict[str, int]]:
    result: dict[str, dict[str, int]] = {}
    for agent_id, state, count in reader.execute("SELECT agent_id, state, count FROM counts"):
        result.setdefault(agent_id, dict.fromkeys(_COLUMNS, 0))[state] = count
    return result


def _stored_mean_s(reader: Reader, agent_id: str) -> float | None:
    mean: float | None = reader.scalar(
        "SELECT AVG(finished_at - started_at) / 1000.0 FROM (SELECT finished_at, started_at"
        " FROM messages WHERE agent_id = ? AND state = 'done' AND started_at IS NOT NULL"
        " ORDER BY seq DESC LIMIT ?)",
        (agent_id, _SAMPLE),
    )
    return mean


def open_in(reader: Reader, session_id: str) -> list[str]:
    """The ids of the messages of the session that have not ended, in order."""
    rows = reader.all(
        f"SELECT message_id FROM messages WHERE {IN_SESSION_SQL} AND {OPEN_SQL} ORDER BY seq",  # noqa: S608 - constants
        (session_id, session_id),
    )
    return [row["message_id"] for row in rows]


def open_of(reader: Reader, agent_id: str) -> list[str]:
    """The ids of the agent's messages that have not ended, in order."""
    rows = reader.all(
        f"SELECT message_id FROM messages WHERE agent_id = ? AND {OPEN_SQL} ORDER BY seq",  # noqa: S608 - a constant
        (agent_id,),
    )
    return [row["message_id"] for row in rows]


def open_before(reader: Reader, agent_id: str, session_id: str, message_id: str) -> int:
    """The number of open messages of the session that came before it; ids sort by time."""
    found = reader.scalar(
        f"SELECT COUNT(*) FROM messages WHERE agent_id = ? AND session_id = ? AND {OPEN_SQL}"  # noqa: S608 - a constant
        " AND message_id < ?",
        (agent_id, session_id, message_id),
    )
    return int(found)


def ended_since(reader: Reader, since: int, limit: int) -> list[tuple[Any, ...]]:
    """The latest messages that have ended since ``since`` (wall ms), at most ``limit``.

    Each is its agent, state, outcome, and when it was accepted, started and finished.
    """
    return [
        tuple(row)
        for row in reader.all(
            "SELECT agent_id, state, outcome, accepted_at, started_at, finished_at FROM messages"
            " WHERE finished_at IS NOT NULL AND finished_at >= ? ORDER BY finished_at DESC LIMIT ?",
            (since, limit),
        )
    ]


def latest_chats(reader: Reader, limit: int) -> list[tuple[str, DeliverTo, Principal]]:
    """The agent, the target and the speaker of the latest chat messages."""
    rows = reader.all(
        "SELECT agent_id, deliver_to, principal FROM messages WHERE kind = 'chat'"
        " ORDER BY seq DESC LIMIT ?",
        (limit,),
    )
    return [(row[0], deliver_to_of(row[1]), principal_of(row[2])) for row in rows]


def answer_piece(
    reader: Reader, start: int, chars: int, message_id: str, agent_id: str, session_id: str
) -> Any:
    """A piece of the answer to a message that the session of the agent has sent, or None.

    The row names it like a stored result: ``name``, ``call_id``, ``piece`` (``chars`` characters
    from ``start``, counted from 1), ``chars`` of the whole answer, ``is_outside``.
    """
    return reader.one(_ANSWER_SQL, (start, chars, message_id, agent_id, session_id))


def delivery_of(reader: Reader, message_id: str, deliver_to: DeliverTo) -> DeliveryState:
    """The state of the delivery of an ended message's result."""
    if deliver_to.kind in ("none", "store", "http") or not message_id:
        return DeliveryState.NONE
    if deliver_to.kind == "mailbox":
        reply = reader.one(
            f"SELECT message_id, state FROM messages WHERE in_reply_to = ? AND {FOLLOWING_SQL}"  # noqa: S608 - a constant
            " AND kind = 'reply' ORDER BY seq DESC LIMIT 1",
            (message_id,),
        )
        if reply is not None:
            return _of_reply(reader, reply["message_id"], reply["state"])
    sent = _of_parts(reader, message_id)
    if sent is not None:
        return sent
    refused = reader.scalar(
        "SELECT deliver_to ->> '$.waited' IS NULL FROM messages WHERE message_id = ?", (message_id,)
    )
    return DeliveryState.DROPPED if refused else DeliveryState.DELIVERED


def _of_reply(reader: Reader, message_id: str, state: str) -> DeliveryState:
    if state in ("queued", "leased", "parked"):
        return DeliveryState.PENDING
    if state != "done":
        return DeliveryState.DROPPED
    return _of_parts(reader, message_id) or DeliveryState.DELIVERED


def _of_parts(reader: Reader, message_id: str) -> DeliveryState | None:
    rows = reader.all(
        "SELECT DISTINCT state FROM outbox WHERE message_id = ?"
        " AND kind IN ('answer', 'file', 'notice')",
        (message_id,),
    )
    states = {row["state"] for row in rows}
    for found in (DeliveryState.PENDING, DeliveryState.UNKNOWN, DeliveryState.DROPPED):
        if found in states:
            return found
    return DeliveryState.DELIVERED if states else None


def has_open(reader: Reader, agent_id: str) -> bool:
    """Whether the agent has a message that is queued, or whose lease may be void."""
    return bool(
        reader.scalar(
            f"SELECT 1 FROM messages WHERE agent_id = ? AND {OPEN_SQL}"  # noqa: S608 - a constant
            " AND state <> 'parked' LIMIT 1",
            (agent_id,),
        )
    )


def removed_counts(reader: Reader) -> dict[str, int]:
    """By name of removed agents, how many of their messages are open."""
    rows = reader.all(
        "SELECT a.name, SUM(c.count) FROM counts c JOIN agents a ON a.agent_id = c.agent_id"
        " WHERE a.present = 0 AND c.state IN ('queued', 'leased', 'parked')"
        " GROUP BY a.name HAVING SUM(c.count) > 0 ORDER BY a.name"
    )
    return {row[0]: row[1] for row in rows}


def retention_rules(*, keep_days: int = 90) -> tuple[Retention, ...]:
    """The rules that remove ended messages and the rows that belong to them.

    Failed messages stay, and transcripts and usage, which are people's history. Ledger entries stay
    a day longer than their messages, so that a late repetition is still recognised. Tables that
    only grow at their end are scanned from their beginning, 2000 rows at a time, so that young rows
    are not scanned.
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
        # The table has no rowid; all entries of one millisecond are removed together.
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
    )
