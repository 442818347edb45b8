"""Stored events of Matrix rooms, and the position up to which they were read.

``store_tx`` writes events and sync token in one transaction. The next sync carries the new token
only after the commit.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from agentsup.channels.core.receiving import rows as stored
from agentsup.channels.core.receiving.raw import maybe_of, maybe_text
from agentsup.channels.core.receiving.rows import ReceivedRow, RowOwner
from agentsup.kit import faults
from agentsup.store import Reader, Tx

CHANNEL: Final = "matrix"
_NOT_STORED: Final = frozenset({"m.room.member"})
_TEXTS: Final = frozenset({"m.room.message", "m.sticker"})


@dataclass(frozen=True, slots=True)
class RoomNews:
    """The new events of a room that are to be stored, oldest first."""

    room_id: str
    events: tuple[Mapping[str, Any], ...]
    last_event_id: str
    """The newest event seen, stored or not; empty leaves the recorded one unchanged."""
    is_encrypted: bool = False


def row_owner(agent_id: str, user_id: str) -> RowOwner:
    """Return the owner of the rows of an agent's bot."""
    return RowOwner(CHANNEL, agent_id, user_id)


def ledger_id(row: ReceivedRow) -> str:
    """Return the row's name in the ledger."""
    return f"event:{row.chat_id}:{row.external_id}"


def position_of(reader: Reader, owner: RowOwner) -> tuple[str | None, int]:
    """Return the sync token to continue from, or None before the first batch.

    Beside it, when the last batch with anything to store was stored (wall ms), or 0.
    """
    row = reader.one(
        "SELECT since, at FROM matrix_sync WHERE agent_id = ? AND user_id = ?",
        (owner.bot_id, owner.account),
    )
    return (None, 0) if row is None else (row["since"], row["at"])


def known_rooms(reader: Reader, owner: RowOwner) -> dict[str, str]:
    """Return the rooms that the bot is in, each with the newest event seen there."""
    rows = reader.all(
        "SELECT room_id, last_event_id FROM matrix_rooms WHERE agent_id = ? AND user_id = ?",
        (owner.bot_id, owner.account),
    )
    return {row["room_id"]: row["last_event_id"] for row in rows}


def store_tx(
    tx: Tx,
    owner: RowOwner,
    news: Sequence[RoomNews],
    *,
    since: str,
    left: Sequence[str] = (),
    at: int,
) -> list[ReceivedRow]:
    """Store new events and move the token to ``since``. Returns the rows to handle, in order.

    Known events and the bot's own are left out. A room in ``left`` is forgotten, so that it
    starts anew when the bot comes back.
    """
    rows: list[ReceivedRow] = []
    for room_id in left:
        tx.execute(
            "DELETE FROM matrix_rooms WHERE agent_id = ? AND user_id = ? AND room_id = ?",
            (owner.bot_id, owner.account, room_id),
        )
    for room in news:
        rows += _room_tx(tx, owner, room, at)
    tx.execute(
        "INSERT INTO matrix_sync (agent_id, user_id, since, at) VALUES (?, ?, ?, ?)"
        " ON CONFLICT DO UPDATE SET since = excluded.since, at = excluded.at",
        (owner.bot_id, owner.account, since, at),
    )
    faults.platform_point("matrix", "before_commit")
    return rows


def _room_tx(tx: Tx, owner: RowOwner, room: RoomNews, at: int) -> list[ReceivedRow]:
    rows: list[ReceivedRow] = []
    for event in room.events:
        if event["type"] in _NOT_STORED or event.get("sender") == owner.account:
            continue
        row = stored.add_tx(
            tx,
            owner,
            chat_id=room.room_id,
            external_id=str(event["event_id"]),
            platform_id=_origin_id(event) if event["type"] in _TEXTS else "",
            raw=stored.written(event),
            at=at,
        )
        if row is not None:
            rows.append(row)
    if room.last_event_id or room.is_encrypted:
        tx.execute(
            "INSERT INTO matrix_rooms (agent_id, user_id, room_id, last_event_id, encrypted)"
            " VALUES (?, ?, ?, ?, ?) ON CONFLICT DO UPDATE SET"
            " last_event_id = iif(excluded.last_event_id = '', last_event_id,"
            " excluded.last_event_id), encrypted = max(encrypted, excluded.encrypted)",
            (
                *(owner.bot_id, owner.account, room.room_id),
                *(room.last_event_id, int(room.is_encrypted)),
            ),
        )
    return rows


def _origin_id(event: Mapping[str, Any]) -> str:
    """Return the id of the event that this one edits, or its own id."""
    relates = maybe_of(maybe_of(event, "content"), "m.relates_to")
    edited_id = maybe_text(relates, "event_id") if relates.get("rel_type") == "m.replace" else ""
    return edited_id or str(event["event_id"])


def is_encrypted(reader: Reader, owner: RowOwner, room_id: str) -> bool:
    """Whether the room was ever seen to be encrypted; it never ceases to be."""
    return bool(
        reader.scalar(
            "SELECT encrypted FROM matrix_rooms WHERE agent_id = ? AND user_id = ? AND room_id = ?",
            (owner.bot_id, owner.account, room_id),
        )
    )


def mark_encryption_notified_tx(tx: Tx, owner: RowOwner, room_id: str, at: int) -> bool:
    """Record that the room is encrypted and that this was said there; False if it was before."""
    cursor = tx.execute(
        "INSERT INTO matrix_rooms (agent_id, user_id, room_id, encrypted, told_at)"
        " VALUES (?, ?, ?, 1, ?) ON CONFLICT DO UPDATE SET encrypted = 1, told_at = excluded.told_at"
        " WHERE told_at = 0",
        (owner.bot_id, owner.account, room_id, at),
    )
    return cursor.rowcount > 0
