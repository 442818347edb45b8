"""Notices, and the conversation in which people see what concerns an agent."""

from __future__ import annotations

from typing import Any

from agentsup.mailbox import outbox
from agentsup.model.message import DeliverTo, Kind, Message
from agentsup.store.database import Reader, Tx

__all__ = [
    "FALLBACK_CHANNEL",
    "FALLBACK_CONVERSATION",
    "asked_topic_of",
    "drop_pending_tx",
    "latest_conversation",
    "name_of",
    "notify_tx",
    "place_of",
    "preview",
    "touch_asked_tx",
]

FALLBACK_CHANNEL = "console"
FALLBACK_CONVERSATION = "local"
_PREVIEW_CHARS = 200
_HANDED_ON = frozenset({Kind.TASK, Kind.DIRECTIVE})


def latest_conversation(reader: Reader, agent_id: str) -> tuple[str, str]:
    """Where people last talked to the agent; the local console if nobody ever did."""
    row = reader.one(
        "SELECT channel, conversation FROM conversations WHERE agent_id = ?"
        " ORDER BY last_at DESC, channel, conversation LIMIT 1",
        (agent_id,),
    )
    if row is None:
        return FALLBACK_CHANNEL, FALLBACK_CONVERSATION
    return row["channel"], row["conversation"]


def place_of(reader: Reader, message: Message) -> tuple[str, tuple[str, str]]:
    """The agent and the conversation in which people see what concerns this message.

    Work that was handed on is shown where it was asked for: in the chat at the end of its way back.
    """
    to: DeliverTo | None = message.deliver_to
    if message.kind in _HANDED_ON:
        while to is not None and to.kind != "chat":
            to = to.then
    if to is not None and to.kind == "chat":
        return to.agent_id or message.agent_id, (to.channel, to.conversation)
    return message.agent_id, latest_conversation(reader, message.agent_id)


def asked_topic_of(agent_id: str) -> str:
    """The topic that is touched when a question shown in that agent's chats is closed."""
    return f"asked:{agent_id}"


def touch_asked_tx(tx: Tx, message: Message) -> None:
    """Wake whoever shows the questions about a message."""
    tx.touch(asked_topic_of(place_of(tx, message)[0]))


def notify_tx(
    tx: Tx,
    *,
    message_id: str,
    agent_id: str,
    session_id: str,
    text: str,
    at: int,
    place: tuple[str, str] | None = None,
    facts: dict[str, Any] | None = None,
) -> int:
    """Add a notice for ``place``, or for the agent's latest conversation."""
    channel, conversation = place or latest_conversation(tx, agent_id)
    return outbox.add_tx(
        tx,
        message_id=message_id,
        agent_id=agent_id,
        session_id=session_id,
        channel=channel,
        conversation=conversation,
        kind="notice",
        body={"text": text, **(facts or {})},
        at=at,
    )


def drop_pending_tx(tx: Tx, message_id: str, *, kind: str, detail: str, at: int) -> None:
    """Take back parts that became pointless before they were delivered."""
    dropped = tx.all(
        "UPDATE outbox SET state = 'dropped', ended_at = ?, detail = ?"
        " WHERE message_id = ? AND kind = ? AND state = 'pending' RETURNING channel",
        (at, detail, message_id, kind),
    )
    for row in dropped:
        # The parts behind it need not wait for its time any more.
        tx.touch(f"outbox:{row['channel']}")


def name_of(reader: Reader, agent_id: str) -> str:
    """The agent's name as people know it; the id if it isn't on record."""
    return str(reader.scalar("SELECT name FROM agents WHERE agent_id = ?", (agent_id,)) or agent_id)


def preview(text: str, limit: int = _PREVIEW_CHARS) -> str:
    """The beginning of ``text`` on one line."""
    line = " ".join(text.split())
    return line if len(line) <= limit else line[: limit - 1] + "…"
