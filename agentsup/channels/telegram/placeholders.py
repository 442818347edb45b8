"""The messages in which answers are streamed by edits, on record until the answer is in place.

A row is written as soon as the platform has given the id, so that a crash in mid-stream neither
doubles an answer nor leaves half of one behind (P2).
"""

from __future__ import annotations

from dataclasses import dataclass

from agentsup.store.database import Reader, Tx

__all__ = ["Placeholder", "all_of", "distrust_tx", "forget_tx", "put_tx"]


@dataclass(frozen=True, slots=True)
class Placeholder:
    """One row of ``streams``. ``platform_id`` is the platform's id of the message."""

    message_id: str
    conversation: str
    platform_id: int
    is_trusted: bool = True
    """Whether it shows nothing but what we last put there; else an edit whose fate is unknown may
    still change it."""


def put_tx(tx: Tx, agent_id: str, placeholder: Placeholder, at: int) -> None:
    """Put it on record; replaces an earlier one of the same message. ``at`` is wall ms."""
    tx.execute(
        "INSERT OR REPLACE INTO streams (agent_id, message_id, conversation, platform_id, at)"
        " VALUES (?, ?, ?, ?, ?)",
        (agent_id, placeholder.message_id, placeholder.conversation, placeholder.platform_id, at),
    )


def distrust_tx(tx: Tx, agent_id: str, message_id: str) -> None:
    """An edit of it may still come into effect, nobody knows when. Recorded by a minus."""
    tx.execute(
        "UPDATE streams SET platform_id = -abs(platform_id) WHERE agent_id = ? AND message_id = ?",
        (agent_id, message_id),
    )


def forget_tx(tx: Tx, agent_id: str, message_id: str) -> None:
    """Take it off the record; harmless when repeated."""
    tx.execute("DELETE FROM streams WHERE agent_id = ? AND message_id = ?", (agent_id, message_id))


def all_of(reader: Reader, agent_id: str) -> list[Placeholder]:
    """What is on record for one agent."""
    rows = reader.all(
        "SELECT message_id, conversation, platform_id FROM streams WHERE agent_id = ?",
        (agent_id,),
    )
    return [Placeholder(row[0], row[1], abs(row[2]), row[2] > 0) for row in rows]
