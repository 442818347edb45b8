"""The reactions that mark people's messages as seen, stored until they are removed.

The row is written before the reaction is sent, and the transaction id is made from the row. So a
later life learns the id of a reaction by sending it again, which changes nothing.
"""

from __future__ import annotations

from dataclasses import dataclass

from agentsup.channels.matrix.outgoing import short
from agentsup.store import Reader, Tx


@dataclass(frozen=True, slots=True)
class SeenReaction:
    """One row of ``matrix_eyes``: ``event_id`` is the person's event."""

    message_id: str
    room_id: str
    event_id: str

    @property
    def txn_id(self) -> str:
        """The transaction id of the reaction."""
        return f"ag-v-{short(self.message_id)}"


def put_tx(tx: Tx, agent_id: str, seen: SeenReaction, at: int) -> None:
    """Store that the reaction is about to be sent. ``at`` is wall ms."""
    tx.execute(
        "INSERT INTO matrix_eyes (agent_id, message_id, room_id, event_id, at)"
        " VALUES (?, ?, ?, ?, ?) ON CONFLICT DO NOTHING",
        (agent_id, seen.message_id, seen.room_id, seen.event_id, at),
    )


def forget_tx(tx: Tx, agent_id: str, message_id: str) -> None:
    """Remove the row; harmless when repeated."""
    tx.execute(
        "DELETE FROM matrix_eyes WHERE agent_id = ? AND message_id = ?", (agent_id, message_id)
    )


def all_of(reader: Reader, agent_id: str, limit: int) -> list[tuple[SeenReaction, bool]]:
    """Return the stored reactions of one agent, each with whether its message is still open."""
    rows = reader.all(
        "SELECT e.message_id, e.room_id, e.event_id, m.state IN ('queued', 'leased', 'parked')"
        " FROM matrix_eyes e LEFT JOIN messages m ON m.message_id = e.message_id"
        " WHERE e.agent_id = ? LIMIT ?",
        (agent_id, limit),
    )
    return [(SeenReaction(row[0], row[1], row[2]), bool(row[3])) for row in rows]
