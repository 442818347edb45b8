"""The first segment of a turn: begun with the claim of its message, and undone with the claim."""

from __future__ import annotations

from agentsup.store import Tx


def begin_first_tx(tx: Tx, message_id: str, fence: int, at: int) -> int:
    """Begin the first segment of a message, in the transaction of its first lease; its number."""
    tx.execute(
        "INSERT INTO segments (message_id, segment_no, fence, state, started_at)"
        " VALUES (?, 1, ?, 'running', ?)",
        (message_id, fence, at),
    )
    return 1


def withdraw_tx(tx: Tx, message_id: str, segment_no: int) -> None:
    """Undo the beginning of a segment whose engine was not started after all.

    Else the next turn on the message would be taken for one that was interrupted.
    """
    tx.execute(
        "DELETE FROM segments WHERE message_id = ? AND segment_no = ? AND state = 'running'",
        (message_id, segment_no),
    )
