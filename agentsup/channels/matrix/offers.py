"""Events with choices to press, on record: what the number or the reaction of each stands for."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any, Final

from agentsup.channels.matrix.choices import Choice, from_json, to_json
from agentsup.store.database import Reader, Tx

__all__ = ["BARE_MS", "Offer", "close_tx", "coming", "find", "fresh", "put_tx", "said_last"]

BARE_MS: Final = 3_600_000
"""So long a bare number presses the menu that was said last."""
_KEPT_MS = 30 * 86_400_000
_PRUNE_AT_ONCE = 200


@dataclass(frozen=True, slots=True)
class Offer:
    """One row of ``matrix_cards``."""

    event_id: str
    conversation: str
    choices: tuple[Choice, ...]
    text: str
    """What stands above the choices."""
    at: int
    """Wall ms."""
    is_closed: bool = False
    """Nothing is offered any more; a late press is answered all the same."""


def put_tx(tx: Tx, agent_id: str, offer: Offer) -> None:
    """Put it on record; harmless when repeated. Forgets what is past its time, a little at a
    time."""
    tx.execute(
        "INSERT INTO matrix_cards (agent_id, event_id, conversation, choices, text, at)"
        " VALUES (?, ?, ?, ?, ?, ?) ON CONFLICT DO NOTHING",
        (
            agent_id,
            offer.event_id,
            offer.conversation,
            json.dumps(to_json(offer.choices), ensure_ascii=False),
            offer.text,
            offer.at,
        ),
    )
    tx.execute(
        "DELETE FROM matrix_cards WHERE (agent_id, event_id) IN"
        " (SELECT agent_id, event_id FROM matrix_cards WHERE at < ? LIMIT ?)",
        (offer.at - _KEPT_MS, _PRUNE_AT_ONCE),
    )


def close_tx(tx: Tx, agent_id: str, event_id: str) -> None:
    """It offers nothing any more."""
    tx.execute(
        "UPDATE matrix_cards SET is_closed = 1 WHERE agent_id = ? AND event_id = ?",
        (agent_id, event_id),
    )


def find(reader: Reader, agent_id: str, event_id: str) -> Offer | None:
    """What is offered at an event, or was."""
    row = reader.one(
        "SELECT * FROM matrix_cards WHERE agent_id = ? AND event_id = ?", (agent_id, event_id)
    )
    return None if row is None else _offer(row)


def coming(reader: Reader, agent_id: str, room_id: str) -> int:
    """The newest part (its outbox id) that is being sent into the room and can be pressed: people may
    see it already, while it is not on record yet. 0: none."""
    return int(
        reader.scalar(
            "SELECT max(outbox_id) FROM outbox WHERE channel = 'matrix' AND agent_id = ?1"
            " AND state = 'pending'"
            " AND (conversation = ?2 OR substr(conversation, 1, length(?2) + 1) = ?2 || '/')"
            " AND begun_at > 0 AND (kind = 'question' OR body ->> '$.buttons' IS NOT NULL"
            " OR body ->> '$.again' IS NOT NULL OR body ->> '$.cancel' IS NOT NULL)",
            (agent_id, room_id),
        )
        or 0
    )


def said_last(reader: Reader, agent_id: str, conversation: str, now: int) -> Offer | None:
    """The open offer that is the last thing that was said in a conversation, if it is one."""
    row = reader.one(
        "SELECT * FROM matrix_cards WHERE agent_id = ? AND conversation = ? AND at > ?"
        " ORDER BY at DESC LIMIT 1",
        (agent_id, conversation, now - BARE_MS),
    )
    if row is None or row["is_closed"]:
        return None
    later = reader.one(
        "SELECT 1 FROM outbox WHERE ended_at > ? AND agent_id = ? AND channel = 'matrix'"
        " AND conversation = ? AND state = 'delivered' AND platform_ids NOT LIKE ?",
        (row["at"], agent_id, conversation, f'%"{row["event_id"]}"%'),
    )
    return None if later is not None else _offer(row)


def fresh(reader: Reader, agent_id: str, since: int, limit: int) -> list[Offer]:
    """Open offers made after ``since`` (wall ms), newest first."""
    rows = reader.all(
        "SELECT * FROM matrix_cards WHERE at > ? AND agent_id = ? AND is_closed = 0"
        " ORDER BY at DESC LIMIT ?",
        (since, agent_id, limit),
    )
    return [_offer(row) for row in rows]


def _offer(row: Any) -> Offer:
    return Offer(
        row["event_id"],
        row["conversation"],
        from_json(json.loads(row["choices"])),
        row["text"],
        row["at"],
        bool(row["is_closed"]),
    )
