"""The reactions that mark people's messages as seen, on record until they are taken back.

The row comes before the reaction, and the transaction id is made of it: a later life learns the id
of a reaction by setting it again, which changes nothing.
"""

from __future__ import annotations

from dataclasses import dataclass

from agentsup.channels.matrix.placeholders import short
from agentsup.store.database import Reader, Tx

__all__ = ["Eyes", "all_of", "forget_tx", "put_tx"]


@dataclass(frozen=True, slots=True)
class Eyes:
    """One row of ``matrix_eyes``: ``event_id`` is the person's event."""

    message_id: str
    room_id: str
    event_id: str

    @property
    def txn_id(self) -> str:
        """The transaction id of the reaction."""
        return f"ag-v-{short(self.message_id)}"


def put_tx(tx: Tx, agent_id: str, eyes: Eyes, at: int) -> None:
    """Put on record that they are about to be set. ``at`` is wall ms."""
    tx.execute(
        "INSERT INTO matrix_eyes (agent_id, message_id, room_id, event_id, at)"
        " VALUES (?, ?, ?, ?, ?) ON CONFLICT DO NOTHING",
        (agent_id, eyes.message_id, eyes.room_id, eyes.event_id, at),
    )


def forget_tx(tx: Tx, agent_id: str, message_id: str) -> None:
    """Take them off the record; harmless when repeated."""
    tx.execute(
        "DELETE FROM matrix_eyes WHERE agent_id = ? AND message_id = ?", (agent_id, message_id)
    )


def all_of(reader: Reader, agent_id: str, limit: int) -> list[tuple[Eyes, bool]]:
    """What is on record for one agent, and whether the work still goes on."""
    rows = reader.all(
        "SELECT e.message_id, e.room_id, e.event_id, m.state IN ('queued', 'leased', 'parked')"
        " FROM matrix_eyes e LEFT JOIN messages m ON m.message_id = e.message_id"
        " WHERE e.agent_id = ? LIMIT ?",
        (agent_id, limit),
    )
    return [(Eyes(row[0], row[1], row[2]), bool(row[3])) for row in rows]
