"""The events in which answers are streamed by edits, on record until the answer is in place.

A row is written before the event is sent, and the transaction id is made of the row: so a crash at
any moment leaves no event behind of which nobody knows (P2).
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass

from agentsup.store.database import Reader, Tx

__all__ = [
    "Placeholder",
    "all_of",
    "begin_tx",
    "distrust_tx",
    "forget_tx",
    "short",
    "shown_tx",
    "taken_tx",
]


@dataclass(frozen=True, slots=True)
class Placeholder:
    """One row of ``matrix_streams``."""

    message_id: str
    conversation: str
    event_id: str
    """Empty while the homeserver has not said it: then nobody knows whether the event is there."""
    begun_at: int
    """Wall ms."""
    is_trusted: bool = True
    """Whether it shows nothing but what we last put there; else an edit whose fate is unknown may
    still change it."""
    is_taken: bool = False
    """The answer was being put there: nothing of the stream was under way any more."""

    @property
    def txn_id(self) -> str:
        """The transaction id with which the event is sent."""
        return f"ag-s-{short(self.message_id)}-{self.begun_at}"


def short(text: str) -> str:
    """A few characters that stand for a text, in transaction ids."""
    return hashlib.blake2s(text.encode(), digest_size=9).hexdigest()


def begin_tx(tx: Tx, agent_id: str, placeholder: Placeholder) -> None:
    """Put on record that it is about to be sent; replaces an earlier one of the same message."""
    tx.execute(
        "INSERT OR REPLACE INTO matrix_streams"
        " (agent_id, message_id, conversation, event_id, trusted, at) VALUES (?, ?, ?, '', 1, ?)",
        (agent_id, placeholder.message_id, placeholder.conversation, placeholder.begun_at),
    )


def shown_tx(tx: Tx, agent_id: str, message_id: str, event_id: str) -> None:
    """It is there, as this event."""
    tx.execute(
        "UPDATE matrix_streams SET event_id = ? WHERE agent_id = ? AND message_id = ?",
        (event_id, agent_id, message_id),
    )


def distrust_tx(tx: Tx, agent_id: str, message_id: str) -> None:
    """An edit of it may still come into effect, or the answer has gone as a message of its own."""
    tx.execute(
        "UPDATE matrix_streams SET trusted = 0 WHERE agent_id = ? AND message_id = ?",
        (agent_id, message_id),
    )


def taken_tx(tx: Tx, agent_id: str, message_id: str) -> None:
    """Nothing of the stream is under way any more; the answer is put there."""
    tx.execute(
        "UPDATE matrix_streams SET trusted = 2 WHERE agent_id = ? AND message_id = ?"
        " AND trusted = 1",
        (agent_id, message_id),
    )


def forget_tx(tx: Tx, agent_id: str, message_id: str) -> None:
    """Take it off the record; harmless when repeated."""
    tx.execute(
        "DELETE FROM matrix_streams WHERE agent_id = ? AND message_id = ?", (agent_id, message_id)
    )


def all_of(reader: Reader, agent_id: str) -> list[Placeholder]:
    """What is on record for one agent."""
    rows = reader.all(
        "SELECT message_id, conversation, event_id, at, trusted FROM matrix_streams"
        " WHERE agent_id = ?",
        (agent_id,),
    )
    return [
        Placeholder(row[0], row[1], row[2], row[3], is_trusted=row[4] > 0, is_taken=row[4] == 2)
        for row in rows
    ]
