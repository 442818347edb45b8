"""The messages in which answers are streamed by edits, stored until the answer is delivered.

A row is written before the message is sent where a send can be repeated by its key, else as soon as
the platform has returned the id. So a crash during a stream neither doubles an answer nor leaves
half of one in the chat (P2).
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from agentsup.store import Reader, Tx


class Trust(StrEnum):
    """The certainty about the text that a placeholder shows."""

    TRUSTED = "trusted"
    """It shows what was put there last."""
    UNSAFE = "unsafe"
    """An edit with unknown outcome may still change it, or the answer was sent as a new message."""
    REPLACING = "replacing"
    """The answer was being put there; no request of the stream was under way any more."""


@dataclass(frozen=True, slots=True)
class Placeholder:
    """One row of ``placeholders``."""

    message_id: str
    conversation: str
    platform_id: str
    """Empty until the platform has returned it: then it is not known whether the message exists."""
    begun_at: int
    """Wall ms."""
    trust: Trust = Trust.TRUSTED


def put_tx(tx: Tx, channel: str, agent_id: str, placeholder: Placeholder) -> None:
    """Store it; replaces an earlier one of the same message."""
    tx.execute(
        "INSERT OR REPLACE INTO placeholders"
        " (channel, agent_id, message_id, conversation, platform_id, trust, at)"
        " VALUES (?, ?, ?, ?, ?, ?, ?)",
        (
            channel,
            agent_id,
            placeholder.message_id,
            placeholder.conversation,
            placeholder.platform_id,
            placeholder.trust,
            placeholder.begun_at,
        ),
    )


def shown_tx(tx: Tx, channel: str, agent_id: str, message_id: str, platform_id: str) -> None:
    """Record the platform's message that was sent."""
    tx.execute(
        "UPDATE placeholders SET platform_id = ?"
        " WHERE channel = ? AND agent_id = ? AND message_id = ?",
        (platform_id, channel, agent_id, message_id),
    )


def distrust_tx(tx: Tx, channel: str, agent_id: str, message_id: str) -> None:
    """Record that no answer may be put there; see ``Trust.UNSAFE``."""
    tx.execute(
        "UPDATE placeholders SET trust = 'unsafe'"
        " WHERE channel = ? AND agent_id = ? AND message_id = ?",
        (channel, agent_id, message_id),
    )


def replacing_tx(tx: Tx, channel: str, agent_id: str, message_id: str) -> None:
    """Record that the answer is put there; see ``Trust.REPLACING``."""
    tx.execute(
        "UPDATE placeholders SET trust = 'replacing'"
        " WHERE channel = ? AND agent_id = ? AND message_id = ? AND trust = 'trusted'",
        (channel, agent_id, message_id),
    )


def forget_tx(tx: Tx, channel: str, agent_id: str, message_id: str) -> None:
    """Remove the row. A second call does nothing."""
    tx.execute(
        "DELETE FROM placeholders WHERE channel = ? AND agent_id = ? AND message_id = ?",
        (channel, agent_id, message_id),
    )


def all_of(reader: Reader, channel: str, agent_id: str) -> list[Placeholder]:
    """Return the stored placeholders of one agent's bot."""
    rows = reader.all(
        "SELECT message_id, conversation, platform_id, at, trust FROM placeholders"
        " WHERE channel = ? AND agent_id = ?",
        (channel, agent_id),
    )
    return [Placeholder(row[0], row[1], row[2], row[3], Trust(row[4])) for row in rows]
