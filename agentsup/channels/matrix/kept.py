"""The rows of events: kept before the token that goes past them, and what became of each.

`keep_tx` is the door: events and token are one transaction, and only after it is durable may the
next sync carry the new token. So an event is handled at least once, and the ledger of the mailbox
makes its effect happen once (P1, P2).
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from agentsup.channels.stops import ELSEWHERE
from agentsup.store.database import Reader, Tx
from agentsup.store.retention import Retention

__all__ = [
    "CHANNEL",
    "Became",
    "Owner",
    "RoomNews",
    "Row",
    "again_tx",
    "became",
    "begin_tx",
    "done_tx",
    "is_encrypted",
    "is_skipped",
    "keep_tx",
    "kept_at",
    "known_rooms",
    "load",
    "may_tell_tx",
    "original_of",
    "quarantine_tx",
    "quarantined",
    "raw_of",
    "received",
    "retention_rules",
    "since_of",
    "skip_tx",
    "waiting",
    "written",
]

CHANNEL = "matrix"
_DAY_MS = 24 * 3600 * 1000
_ERROR_CHARS = 500
_NOT_KEPT = frozenset({"m.room.member"})


@dataclass(frozen=True, slots=True)
class Owner:
    """Whose events they are."""

    agent_id: str
    user_id: str


@dataclass(frozen=True, slots=True)
class Row:
    """A kept event that is to be handled. ``begun``: an earlier life began its command."""

    row_id: int
    room_id: str
    event_id: str
    raw: str
    begun: bool = False

    @property
    def external_id(self) -> str:
        """Its name in the ledger."""
        return f"event:{self.room_id}:{self.event_id}"


@dataclass(frozen=True, slots=True)
class Became:
    """What an event, or the last edit of it, became; ``message_id`` may be empty."""

    message_id: str
    raw: str
    """The event as it was last written, whatever it became."""


@dataclass(frozen=True, slots=True)
class RoomNews:
    """What is to be kept of a room, oldest first."""

    room_id: str
    events: tuple[Mapping[str, Any], ...]
    last_event_id: str
    """The newest event seen, kept or not; empty leaves it as it was."""
    is_encrypted: bool = False


def since_of(reader: Reader, owner: Owner) -> str | None:
    """The token to go on from, or None before the first batch."""
    found = reader.scalar(
        "SELECT since FROM matrix_sync WHERE agent_id = ? AND user_id = ?",
        (owner.agent_id, owner.user_id),
    )
    return found if isinstance(found, str) else None


def kept_at(reader: Reader, owner: Owner) -> int:
    """When the last batch was kept that had something to keep (wall ms); 0 before the first."""
    found = reader.scalar(
        "SELECT at FROM matrix_sync WHERE agent_id = ? AND user_id = ?",
        (owner.agent_id, owner.user_id),
    )
    return found if isinstance(found, int) else 0


def known_rooms(reader: Reader, owner: Owner) -> dict[str, str]:
    """The rooms we are in as far as was read: the newest event seen of each."""
    rows = reader.all(
        "SELECT room_id, last_event_id FROM matrix_rooms WHERE agent_id = ? AND user_id = ?",
        (owner.agent_id, owner.user_id),
    )
    return {row["room_id"]: row["last_event_id"] for row in rows}


def keep_tx(
    tx: Tx,
    owner: Owner,
    news: Sequence[RoomNews],
    *,
    since: str,
    left: Sequence[str] = (),
    at: int,
) -> list[Row]:
    """Keep what is new and move the token to ``since``; returns the rows to be handled, in order.

    An event that is known already is left out, and so is what we said ourselves. A room in
    ``left`` is forgotten, so that it begins anew when we come back.
    """
    rows: list[Row] = []
    for room_id in left:
        tx.execute(
            "DELETE FROM matrix_rooms WHERE agent_id = ? AND user_id = ? AND room_id = ?",
            (owner.agent_id, owner.user_id, room_id),
        )
    for room in news:
        rows += _room_tx(tx, owner, room, at)
    tx.execute(
        "INSERT INTO matrix_sync (agent_id, user_id, since, at) VALUES (?, ?, ?, ?)"
        " ON CONFLICT DO UPDATE SET since = excluded.since, at = excluded.at",
        (owner.agent_id, owner.user_id, since, at),
    )
    return rows


def _room_tx(tx: Tx, owner: Owner, room: RoomNews, at: int) -> list[Row]:
    rows: list[Row] = []
    for event in room.events:
        if event["type"] in _NOT_KEPT or event.get("sender") == owner.user_id:
            continue
        event_id, raw = str(event["event_id"]), written(event)
        cursor = tx.execute(
            "INSERT INTO matrix_events (agent_id, user_id, room_id, event_id, raw, state,"
            " origin_id, at) VALUES (?, ?, ?, ?, ?, 'received', ?, ?) ON CONFLICT DO NOTHING",
            (
                *(owner.agent_id, owner.user_id, room.room_id, event_id, raw),
                *(_origin_id(event), at),
            ),
        )
        if cursor.rowcount and cursor.lastrowid is not None:
            rows.append(Row(cursor.lastrowid, room.room_id, event_id, raw))
    if room.last_event_id or room.is_encrypted:
        tx.execute(
            "INSERT INTO matrix_rooms (agent_id, user_id, room_id, last_event_id, encrypted)"
            " VALUES (?, ?, ?, ?, ?) ON CONFLICT DO UPDATE SET"
            " last_event_id = iif(excluded.last_event_id = '', last_event_id,"
            " excluded.last_event_id), encrypted = max(encrypted, excluded.encrypted)",
            (
                *(owner.agent_id, owner.user_id, room.room_id),
                *(room.last_event_id, int(room.is_encrypted)),
            ),
        )
    return rows


def _origin_id(event: Mapping[str, Any]) -> str:
    """The event that it edits, or its own id."""
    content = event.get("content")
    relates = content.get("m.relates_to") if isinstance(content, Mapping) else None
    if isinstance(relates, Mapping) and relates.get("rel_type") == "m.replace":
        target = relates.get("event_id")
        if isinstance(target, str) and target:
            return target
    return str(event["event_id"])


def received(reader: Reader, owner: Owner, *, after: int = 0, limit: int = 500) -> list[Row]:
    """What earlier lives have left to do, oldest first: to handle, or to tell that a stop from
    another chat has dropped it."""
    # By row, as no index knows the dropped ones: what comes before ``after`` is not looked at.
    rows = reader.all(
        "SELECT row_id, room_id, event_id, raw, begun FROM matrix_events NOT INDEXED"
        " WHERE agent_id = ? AND user_id = ? AND row_id > ?"
        " AND (state = 'received' OR (state = 'skipped' AND error = ?))"
        " ORDER BY row_id LIMIT ?",
        (owner.agent_id, owner.user_id, after, ELSEWHERE, limit),
    )
    return [Row(r[0], r[1], r[2], r[3], bool(r[4])) for r in rows]


def waiting(reader: Reader, *, before: int, agent_id: str = "", room_id: str = "") -> list[Row]:
    """Texts, files and edits older than row ``before`` that were not handled yet; of all agents or
    one, of all rooms or one."""
    # A stop asks while everybody waits to write; else all events of two days would be looked at.
    rows = reader.all(
        "SELECT row_id, room_id, event_id, raw, begun FROM matrix_events"
        " INDEXED BY matrix_events_received"
        " WHERE state = 'received' AND row_id < ? AND (? = '' OR agent_id = ?)"
        " AND (? = '' OR room_id = ?) AND raw ->> '$.type' IN ('m.room.message', 'm.sticker')"
        " ORDER BY row_id",
        (before, agent_id, agent_id, room_id, room_id),
    )
    return [Row(r[0], r[1], r[2], r[3], bool(r[4])) for r in rows]


def is_skipped(reader: Reader, row: Row, *, why: str = "") -> bool:
    """Whether nothing is to be done any more about it: a stop was quicker. ``why`` counts only what
    was skipped for that reason."""
    return (
        reader.scalar(
            "SELECT 1 FROM matrix_events"
            " WHERE row_id = ? AND state = 'skipped' AND (? = '' OR error = ?)",
            (row.row_id, why, why),
        )
        is not None
    )


def again_tx(tx: Tx, owner: Owner, *, after: int = 0) -> list[Row]:
    """What an operator wants to be tried again, and has not been since, of the rows ``after``
    that one."""
    mark = "tried again: "
    rows = tx.all(
        "SELECT row_id, room_id, event_id, raw, begun FROM matrix_events WHERE agent_id = ?"
        " AND user_id = ? AND state = 'received' AND row_id > ? AND substr(error, 1, ?) = ?"
        " ORDER BY row_id",
        (owner.agent_id, owner.user_id, after, len(mark), mark),
    )
    tx.executemany("UPDATE matrix_events SET error = '' WHERE row_id = ?", [(r[0],) for r in rows])
    return [Row(r[0], r[1], r[2], r[3], bool(r[4])) for r in rows]


def begin_tx(tx: Tx, row: Row) -> None:
    """A command is about to run: found again after a crash, it is not run a second time."""
    tx.execute("UPDATE matrix_events SET begun = 1 WHERE row_id = ?", (row.row_id,))


def done_tx(tx: Tx, rows: Sequence[Row], *, message_id: str = "") -> None:
    """They were handled, and became that message, if any."""
    tx.executemany(
        "UPDATE matrix_events SET state = 'done', message_id = ? WHERE row_id = ?",
        [(message_id, row.row_id) for row in rows],
    )


def skip_tx(tx: Tx, rows: Sequence[Row], why: str) -> None:
    """Nothing is to be done about them."""
    tx.executemany(
        "UPDATE matrix_events SET state = 'skipped', error = ? WHERE row_id = ?",
        [(why[:_ERROR_CHARS], row.row_id) for row in rows],
    )


def quarantine_tx(tx: Tx, row: Row, why: str) -> None:
    """It can't be handled; it is kept to be looked at."""
    tx.execute(
        "UPDATE matrix_events SET state = 'quarantined', error = ? WHERE row_id = ?",
        (why[:_ERROR_CHARS], row.row_id),
    )


def quarantined(reader: Reader, owner: Owner) -> int:
    """How many events of a bot are in quarantine."""
    return int(
        reader.scalar(
            "SELECT COUNT(*) FROM matrix_events"
            " WHERE agent_id = ? AND user_id = ? AND state = 'quarantined'",
            (owner.agent_id, owner.user_id),
        )
    )


def became(
    reader: Reader, owner: Owner, room_id: str, origin_id: str, *, but: int = 0
) -> Became | None:
    """What an event became that was handled before, with the latest words of it.

    ``but`` is the row of the edit that asks.
    """
    where = (
        "FROM matrix_events WHERE agent_id = ? AND room_id = ? AND origin_id = ? AND row_id <> ?"
        " AND state = 'done'"
    )
    key = (owner.agent_id, room_id, origin_id, but)
    last = reader.one(f"SELECT raw {where} ORDER BY row_id DESC LIMIT 1", key)
    if last is None:
        return None
    message_id = reader.scalar(
        f"SELECT message_id {where} AND message_id <> '' ORDER BY row_id DESC LIMIT 1", key
    )
    return Became(message_id or "", last["raw"])


def raw_of(reader: Reader, owner: Owner, room_id: str, event_id: str) -> str | None:
    """An event as it was kept, whatever became of it; None if it is not there (any more)."""
    found = reader.scalar(
        "SELECT raw FROM matrix_events"
        " WHERE agent_id = ? AND user_id = ? AND room_id = ? AND event_id = ?",
        (owner.agent_id, owner.user_id, room_id, event_id),
    )
    return found if isinstance(found, str) else None


def original_of(reader: Reader, row: Row, event_id: str) -> str | None:
    """As ``raw_of``, for what a row of any bot refers to."""
    found = reader.scalar(
        "SELECT o.raw FROM matrix_events AS e JOIN matrix_events AS o ON o.agent_id = e.agent_id"
        " AND o.user_id = e.user_id AND o.room_id = e.room_id"
        " WHERE e.row_id = ? AND o.event_id = ?",
        (row.row_id, event_id),
    )
    return found if isinstance(found, str) else None


def is_encrypted(reader: Reader, owner: Owner, room_id: str) -> bool:
    """Whether the room was ever seen to be encrypted; it never ceases to be."""
    return bool(
        reader.scalar(
            "SELECT encrypted FROM matrix_rooms WHERE agent_id = ? AND user_id = ? AND room_id = ?",
            (owner.agent_id, owner.user_id, room_id),
        )
    )


def may_tell_tx(tx: Tx, owner: Owner, room_id: str, at: int) -> bool:
    """Whether it was not yet said in this room that it is encrypted; from now on it was."""
    cursor = tx.execute(
        "INSERT INTO matrix_rooms (agent_id, user_id, room_id, encrypted, told_at)"
        " VALUES (?, ?, ?, 1, ?) ON CONFLICT DO UPDATE SET encrypted = 1, told_at = excluded.told_at"
        " WHERE told_at = 0",
        (owner.agent_id, owner.user_id, room_id, at),
    )
    return cursor.rowcount > 0


def written(event: Mapping[str, Any]) -> str:
    """An event as it is kept."""
    return json.dumps(event, separators=(",", ":"))


def load(raw: str) -> Mapping[str, Any]:
    """A kept event as the platform gave it."""
    event: Mapping[str, Any] = json.loads(raw)
    return event


def retention_rules() -> tuple[Retention, ...]:
    """Handled events go after two days, as long as a message can well be edited; poison after
    thirty. The table only grows at its end, so what is young is never walked."""
    old = "row_id < coalesce((SELECT min(row_id) FROM matrix_events WHERE at >= :cutoff), 1 << 62)"
    return (
        Retention(
            "matrix_events", f"{old} AND state IN ('done', 'skipped')", 2 * _DAY_MS, key="row_id"
        ),
        Retention("matrix_events", f"{old} AND state = 'quarantined'", 30 * _DAY_MS, key="row_id"),
    )
