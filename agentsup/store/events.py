"""The durable log of what happened, in order: the source of live views, late join and audit.

An event is appended in the transaction of the change it tells, so it exists exactly if the change
does. Readers keep the sequence number they have seen and wait for newer ones.
"""

import asyncio
import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Self

from agentsup.model.event import Event, EventType
from agentsup.store.database import Database, Reader, Tx

__all__ = [
    "TOPIC",
    "EventLog",
    "Page",
    "Subscription",
    "append",
    "append_all",
    "of_message",
    "of_task",
]

TOPIC = "events"
"""Touched by each append; `Database.listen` wakes on it."""
MAX_READ = 1_000
"""Most events in one answer."""
_LOOKED_AT = 20_000
"""Latest events, among which those of a message are looked for."""
_INSERT = (
    "INSERT INTO events (at, type, agent_id, session_id, message_id, conversation, data)"
    " VALUES (?, ?, ?, ?, ?, ?, ?)"
)
_encode = json.JSONEncoder(ensure_ascii=False, separators=(",", ":")).encode


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

    `at` is wall time in ms; `conversation` is `<channel>:<name>` for what people see in a chat.
    `data` must be JSON, as a value or as text. Subscribers wake when, and only if, the transaction
    is durable.
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
            data if isinstance(data, str) else _encode(data),
        ),
    )
    tx.touch(TOPIC)
    assert cursor.lastrowid is not None
    return cursor.lastrowid


def append_all(tx: Tx, rows: Sequence[tuple[int, str, str, str, str, str, str]]) -> None:
    """Add several events in order: `at`, type, agent, session, message, conversation, data each,
    as `append` has them, data as JSON text."""
    tx.insert(_INSERT, rows)
    tx.touch(TOPIC)


@dataclass(frozen=True, slots=True)
class Page:
    """Events, and `next_seq`: everything up to it was looked at, matching or not."""

    events: list[Event]
    next_seq: int


class Subscription:
    """Wakes its one reader after commits that appended events. Close it when done (or use `with`).

    Nothing is queued, so a slow reader costs nothing: it reads from its own sequence number. A
    commit between a wait and the next one is remembered, so no wake is lost.
    """

    def __init__(self, database: Database) -> None:
        """Listen from now on."""
        self._changed = asyncio.Event()
        self._unlisten = database.listen(TOPIC, self._changed.set)

    async def wait(self, timeout_s: float | None = None) -> bool:
        """Return True when events were appended since the last wait, False after `timeout_s`."""
        try:
            async with asyncio.timeout(timeout_s):
                await self._changed.wait()
        except TimeoutError:
            # A commit may have come in the same round as the deadline: the answer is its word.
            if not self._changed.is_set():
                return False
        self._changed.clear()
        return True

    def close(self) -> None:
        """Stop listening; a reader that waits is woken once more."""
        self._unlisten()
        self._changed.set()

    def __enter__(self) -> Self:
        """Use it until the end of the block."""
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Close it."""
        self.close()


class EventLog:
    """Reading the log."""

    def __init__(self, database: Database) -> None:
        """Read from `database`."""
        self._database = database

    async def read(
        self,
        after_seq: int,
        *,
        agent_id: str | None = None,
        conversation: str | None = None,
        types: Iterable[EventType] | None = None,
        limit: int = 500,
    ) -> list[Event]:
        """Events with a sequence number above `after_seq`, oldest first, at most `limit`.

        Filters combine; None means any. At most 1,000 events are returned, whatever `limit` says.
        """
        page = await self.page(
            after_seq, agent_id=agent_id, conversation=conversation, types=types, limit=limit
        )
        return page.events

    async def page(
        self,
        after_seq: int,
        *,
        agent_id: str | None = None,
        conversation: str | None = None,
        types: Iterable[EventType] | None = None,
        limit: int = 500,
    ) -> Page:
        """As `read`, and where to go on, so that a filtered reader does not look twice."""
        limit = max(1, min(limit, MAX_READ))
        clauses = ["seq > ?"]
        narrowed: list[Any] = [after_seq]
        if agent_id is not None:
            clauses.append("agent_id = ?")
            narrowed.append(agent_id)
        if conversation is not None:
            # The empty conversation has no rows in the index; saying so lets the index be used.
            clauses.append("conversation = ?" + (" AND conversation <> ''" if conversation else ""))
            narrowed.append(conversation)
        if types is not None:
            names = sorted({EventType(kind).value for kind in types})
            clauses.append(f"type IN ({', '.join('?' * len(names))})")
            narrowed += names
        sql = f"SELECT * FROM events WHERE {' AND '.join(clauses)} ORDER BY seq LIMIT ?"  # noqa: S608 - clauses are the constants above

        def look(reader: Reader) -> Page:
            rows = reader.all(sql, [*narrowed, limit])
            events = [_event(row) for row in rows]
            if len(events) == limit:
                return Page(events, events[-1].seq)
            return Page(events, max(after_seq, _last_seq(reader)))

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
    ) -> list[Event]:
        """The newest `limit` events of one conversation (of one session in it, below a sequence
        number), oldest first."""
        names = sorted({EventType(kind).value for kind in types})
        marks = ", ".join("?" * len(names))
        wanted: list[Any] = [agent_id, conversation, *names]
        more = ""
        for clause, value in (("seq < ?", before_seq), ("session_id = ?", session_id or None)):
            if value is not None:
                more += f" AND {clause}"
                wanted.append(value)
        sql = (
            "SELECT * FROM events WHERE agent_id = ? AND conversation = ? AND conversation <> ''"  # noqa: S608 - only constants are added
            f" AND type IN ({marks}){more} ORDER BY seq DESC LIMIT ?"
        )
        wanted.append(max(1, min(limit, MAX_READ)))
        rows = await self._database.read(lambda reader: reader.all(sql, wanted), name="events.tail")
        return [_event(row) for row in reversed(rows)]

    async def latest(
        self, agent_id: str, *, types: Iterable[EventType], limit: int = 100, within: int = 50_000
    ) -> list[Event]:
        """The newest `limit` events of one agent, oldest first, of the last `within` of all."""
        names = sorted({EventType(kind).value for kind in types})
        marks = ", ".join("?" * len(names))
        sql = (
            "SELECT * FROM events WHERE seq > (SELECT max(seq) FROM events) - ? AND agent_id = ?"  # noqa: S608 - only question marks are added
            f" AND type IN ({marks}) ORDER BY seq DESC LIMIT ?"
        )
        wanted = (within, agent_id, *names, max(1, min(limit, MAX_READ)))
        rows = await self._database.read(
            lambda reader: reader.all(sql, wanted), name="events.latest"
        )
        return [_event(row) for row in reversed(rows)]

    async def last_seq(self) -> int:
        """The sequence number of the newest event, 0 if there has never been one."""
        return await self._database.read(_last_seq, name="events.last_seq")

    async def first_seq(self) -> int:
        """The oldest sequence number kept, 0 if none is; older ones were pruned."""
        return await self._database.read(
            lambda reader: int(reader.scalar("SELECT coalesce(min(seq), 0) FROM events")),
            name="events.first_seq",
        )

    def subscribe(self) -> Subscription:
        """A way to wait for newer events. Subscribe first, read, then wait: nothing is missed."""
        return Subscription(self._database)


def of_task(reader: Reader, task_id: str, *, limit: int) -> list[Event]:
    """The newest `limit` events of a task, oldest first."""
    rows = reader.all(
        "SELECT * FROM events WHERE message_id = ? AND type >= 'task.' AND type < 'task/'"
        " ORDER BY seq DESC LIMIT ?",
        (task_id, max(1, min(limit, MAX_READ))),
    )
    return [_event(row) for row in reversed(rows)]


def of_message(reader: Reader, message_id: str, *, limit: int) -> list[Event]:
    """The newest `limit` events of a message, as far as they are among the latest of all, oldest
    first: there is no index over them, since every message would pay for it."""
    rows = reader.all(
        "SELECT * FROM events WHERE seq > ? AND message_id = ? ORDER BY seq DESC LIMIT ?",
        (_last_seq(reader) - _LOOKED_AT, message_id, max(1, min(limit, MAX_READ))),
    )
    return [_event(row) for row in reversed(rows)]


def _last_seq(reader: Reader) -> int:
    # AUTOINCREMENT remembers the highest number given out, also when retention pruned the rows.
    return int(reader.scalar("SELECT seq FROM sqlite_sequence WHERE name = 'events'") or 0)


def _event(row: Any) -> Event:
    return Event(
        seq=row["seq"],
        at=row["at"],
        type=row["type"],
        agent_id=row["agent_id"],
        session_id=row["session_id"],
        message_id=row["message_id"],
        conversation=row["conversation"],
        data=json.loads(row["data"]),
    )
