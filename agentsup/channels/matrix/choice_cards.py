"""The stored events with choices: what the number or the reaction of each choice stands for."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any, Final

from agentsup.channels.matrix.choices import ListedChoice, from_json, to_json
from agentsup.channels.matrix.received import CHANNEL
from agentsup.mailbox.delivery import shown_parts
from agentsup.store import Reader, Tx

BARE_MS: Final = 3_600_000
"""Time in which a bare number presses the last menu of a conversation."""


@dataclass(frozen=True, slots=True)
class ChoiceCard:
    """One row of ``choice_cards``."""

    event_id: str
    conversation: str
    choices: tuple[ListedChoice, ...]
    text: str
    """The text above the choices."""
    at: int
    """Wall ms."""
    is_closed: bool = False
    """Whether the choices are closed. A late press is still answered."""


def put_tx(tx: Tx, agent_id: str, offer: ChoiceCard) -> None:
    """Store a card; harmless when repeated."""
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


def close_tx(tx: Tx, agent_id: str, event_id: str) -> None:
    """Close the choices of an event."""
    tx.execute(
        "UPDATE matrix_cards SET is_closed = 1 WHERE agent_id = ? AND event_id = ?",
        (agent_id, event_id),
    )


def find(reader: Reader, agent_id: str, event_id: str) -> ChoiceCard | None:
    """Return the card of an event, open or closed."""
    row = reader.one(
        "SELECT * FROM matrix_cards WHERE agent_id = ? AND event_id = ?", (agent_id, event_id)
    )
    return None if row is None else _offer(row)


def newest_open(reader: Reader, agent_id: str, conversation: str, now: int) -> ChoiceCard | None:
    """Return a conversation's newest card if it is open and nothing was delivered after it.

    A card that is older than ``BARE_MS`` does not count. ``now`` is wall ms.
    """
    row = reader.one(
        "SELECT * FROM matrix_cards WHERE agent_id = ? AND conversation = ? AND at > ?"
        " ORDER BY at DESC LIMIT 1",
        (agent_id, conversation, now - BARE_MS),
    )
    if row is None or row["is_closed"]:
        return None
    card = _offer(row)
    is_past = shown_parts.is_followed(
        reader, agent_id, CHANNEL, conversation, card.event_id, card.at
    )
    return None if is_past else card


def fresh(reader: Reader, agent_id: str, since: int, limit: int) -> list[ChoiceCard]:
    """Return open cards made after ``since`` (wall ms), newest first."""
    rows = reader.all(
        "SELECT * FROM matrix_cards WHERE at > ? AND agent_id = ? AND is_closed = 0"
        " ORDER BY at DESC LIMIT ?",
        (since, agent_id, limit),
    )
    return [_offer(row) for row in rows]


def _offer(row: Any) -> ChoiceCard:
    return ChoiceCard(
        row["event_id"],
        row["conversation"],
        from_json(json.loads(row["choices"])),
        row["text"],
        row["at"],
        bool(row["is_closed"]),
    )
