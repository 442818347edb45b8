"""The durable event log, in order: the source of live views, late join and audit.

An event is appended in the transaction of the change it reports, so it exists exactly if the change
does. Readers remember the last sequence number they have seen and wait for newer ones.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any

from agentsup.kit.tasks import is_set_within
from agentsup.model.event import Event, EventType
from agentsup.store.database import Database
from agentsup.store.transaction import Reader, Tx, from_row

TOPIC = "events"
"""The topic that each append touches; for ``Database.listen``."""
MAX_READ = 1_000
"""The most events in one answer."""
_LOOKED_AT = 20_000
"""The number of latest events in which those of a message are searched."""
_INTO = "INSERT INTO events (at, type, agent_id, session_id, message_id, conversation, data)"
_INSERT = f"{_INTO} VALUES (?, ?, ?, ?, ?, ?, ?)"
_as_json = json.JSONEncoder(ensure_ascii=False, separators=(",", ":")).encode
"""The JSON text of an event's data."""


def append(
    tx: Tx,
    event_type: EventType,
    *,
    at: int,
    agent_id: str = "",
    session_id: str = "",
    message_id: str = "",
    conversation: str = "",
    data: dict[str, Any] | str,
) -> int:
    """Add an event to the log in this transaction and return its sequence number.

    ``at`` is wall time in ms; ``conversation`` is ``<channel>:<name>`` for what people see in a
    chat. ``data`` must be JSON, as a value or as text. Subscribers wake when, and only if, the
    transaction is durable.
    """
    cursor = tx.execute(
        _INSERT,
        (
            at,
            event_type.value,
            agent_id,
            session_id,
            message_id,
            conversation,
            data if isinstance(data, str) else _as_json(data),
        ),
    )
    tx.touch(TOPIC)
    assert cursor.lastrowid is not None
    return cursor.lastrowid


def route_of_call(reader: Reader, message_id: str, call: str) -> dict[str, Any] | None:
    """The data of the route that a call of a message has chosen first, or None."""
    data = reader.scalar(
        "SELECT data FROM events WHERE message_id = ? AND type = 'route.chosen'"
        " AND data ->> '$.call' = ? ORDER BY seq LIMIT 1",
        (message_id, call),
    )
    return None if data is None else dict(json.loads(data))


def changed_tasks(reader: Reader, after: int) -> set[str]:
    """The tasks that events after the sequence number ``after`` are about."""
    rows = reader.all(
        "SELECT DISTINCT data ->> '$.task_id' FROM events"
        " WHERE seq > ? AND type >= 'task.' AND type < 'task/'",
        (after,),
    )
    return {str(row[0]) for row in rows}


def append_selected(tx: Tx, select: str, parameters: tuple[Any, ...]) -> None:
    """Add an event for each row of a SELECT: ``at``, type, agent, session, message, conversation and
    data, as JSON text."""
    if tx.execute(f"{_INTO} {select}", parameters).rowcount:
        tx.touch(TOPIC)


@dataclass(frozen=True, slots=True)
class EventPage:
    """Some events. Everything up to ``next_seq`` was searched, matching or not."""

    events: list[Event]
    next_seq: int


class Subscription(AbstractContextManager["Subscription"]):
    """Wakes its one reader after commits with events. Close it when done (or use ``with``).

    Nothing is queued, so a slow reader costs nothing: it reads from its own sequence number. A
    commit between two waits is remembered, so no wake-up is lost.
    """

    def __init__(self, database: Database) -> None:
        """Listen from now on."""
        self._changed = asyncio.Event()
        self._unlisten = database.listen(TOPIC, self._changed.set)

    async def wait(self, timeout_s: float | None = None) -> bool:
        """Return True when events were appended since the last wait, False after ``timeout_s``."""
        is_changed = await is_set_within(self._changed, timeout_s)
        self._changed.clear()
        return is_changed

    def close(self) -> None:
        """Stop listening; a waiting reader is woken once more."""
        self._unlisten()
        self._changed.set()

    def __exit__(self, *error: object) -> None:
        """Close it."""
        self.close()


class EventLog:
    """Reads the event log."""

    def __init__(self, database: Database) -> None:
        """Read from ``database``."""
        self._database = database

    async def page(
        self,
        after_seq: int,
        *,
        agent_id: str | None = None,
        conversation: str | None = None,
        types: Iterable[EventType] | None = None,
        limit: int = 500,
    ) -> EventPage:
        """Events with a sequence number above ``after_seq``, oldest first, at most ``limit``.

        Filters combine; None means any. At most 1,000 events are returned, even if ``limit`` is
        higher. The page has the position to continue from, so that a filtered reader searches
        nothing twice.
        """
        limit = max(1, min(limit, MAX_READ))
        clauses = ["seq > ?"]
        narrowed: list[Any] = [after_seq]
        if agent_id is not None:
            clauses.append("agent_id = ?")
            narrowed.append(agent_id)
        if conversation is not None:
            # The index leaves out the empty conversation; the added condition lets the index be
            # used.
            clauses.append("conversation = ?" + (" AND conversation <> ''" if conversation else ""))
            narrowed.append(conversation)
        if types is not None:
            names = _names(types)
            clauses.append(_is_of(names))
            narrowed += names
        sql = f"SELECT * FROM events WHERE {' AND '.join(clauses)} ORDER BY seq LIMIT ?"  # noqa: S608 - clauses are the constants above

        def look(reader: Reader) -> EventPage:
            events = reader.values(_event, sql, [*narrowed, limit])
            if len(events) == limit:
                return EventPage(events, events[-1].seq)
            return EventPage(events, max(after_seq, _last_seq(reader)))

        return await self._database.read(look, name="events.page")

    async def tail(
        self,
        *,
        agent_id: str,
        conversation: str,
        types: Iterable[EventType],
        limit: int = 50,
        before_seq: int | None = None,
        session_id: str = "",
        beside: str = "",
    ) -> list[Event]:
        """The newest ``limit`` events of one conversation, oldest first; optionally only those of
        one session (also in the conversation ``beside``), or below a sequence number."""
        where = "agent_id = ? AND conversation IN (?, ?) AND conversation <> ''"
        values: list[Any] = [agent_id, conversation, beside if session_id else ""]
        for clause, value in (("seq < ?", before_seq), ("session_id = ?", session_id or None)):
            if value is not None:
                where += f" AND {clause}"
                values.append(value)
        return await self._database.read(_newest, where, values, types, limit, name="events.tail")

    async def latest(
        self, agent_id: str, *, types: Iterable[EventType], limit: int = 100, within: int = 50_000
    ) -> list[Event]:
        """The newest ``limit`` events of one agent within the last ``within``, oldest first."""
        where = "seq > (SELECT max(seq) FROM events) - ? AND agent_id = ?"
        values = [within, agent_id]
        return await self._database.read(_newest, where, values, types, limit, name="events.latest")

    async def last_seq(self) -> int:
        """The sequence number of the newest event, 0 if there has never been one."""
        return await self._database.read(_last_seq, name="events.last_seq")

    async def bounds(self) -> tuple[int, int]:
        """The sequence numbers of the oldest stored and of the newest event, of one moment.

        Older ones were pruned. Without a stored event the first is the one that comes next.
        """

        def read(reader: Reader) -> tuple[int, int]:
            first, last = reader.scalar("SELECT min(seq) FROM events"), _last_seq(reader)
            return first or last + 1, last

        return await self._database.read(read, name="events.bounds")

    def subscribe(self) -> Subscription:
        """A subscription to newer events. Subscribe first, read, then wait: nothing is missed."""
        return Subscription(self._database)


def of_task(reader: Reader, task_id: str, *, limit: int) -> list[Event]:
    """The newest ``limit`` events of a task, oldest first."""
    where = "message_id = ? AND type >= 'task.' AND type < 'task/'"
    return _newest(reader, where, [task_id], None, limit)


def of_message(reader: Reader, message_id: str, *, limit: int) -> list[Event]:
    """The newest ``limit`` events of a message among the latest events of the store, oldest first.

    There is no index for this, since every message would have to maintain it.
    """
    first = _last_seq(reader) - _LOOKED_AT
    return _newest(reader, "seq > ? AND message_id = ?", [first, message_id], None, limit)


def _newest(
    reader: Reader, where: str, values: list[Any], types: Iterable[EventType] | None, limit: int
) -> list[Event]:
    """The newest ``limit`` events of those types (None: any) that match, oldest first."""
    if types is not None:
        names = _names(types)
        where, values = f"{where} AND {_is_of(names)}", [*values, *names]
    sql = f"SELECT * FROM events WHERE {where} ORDER BY seq DESC LIMIT ?"  # noqa: S608 - constants and marks
    return reader.values(_event, sql, [*values, max(1, min(limit, MAX_READ))])[::-1]


def _names(types: Iterable[EventType]) -> list[str]:
    return sorted({EventType(kind).value for kind in types})


def _is_of(names: Sequence[str]) -> str:
    return f"type IN ({', '.join('?' * len(names))})"


def _last_seq(reader: Reader) -> int:
    # AUTOINCREMENT stores the highest number given out, even after retention pruned the rows.
    return int(reader.scalar("SELECT seq FROM sqlite_sequence WHERE name = 'events'") or 0)


def _event(row: Any) -> Event:
    return from_row(Event, row, data=json.loads(row["data"]))
