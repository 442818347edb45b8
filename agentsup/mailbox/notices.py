"""Notices, and the conversation in which people see what concerns an agent."""

from __future__ import annotations

from typing import Any

from agentsup.mailbox import outbox
from agentsup.mailbox.naming import chat_of_key, root_chat
from agentsup.model.message import Kind, Message
from agentsup.model.principal import OPERATORS
from agentsup.store.database import Reader, Tx

__all__ = [
    "FALLBACK_CHANNEL",
    "FALLBACK_CONVERSATION",
    "asked_topic_of",
    "chats_of",
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


def latest_conversation(reader: Reader, agent_id: str, person: str) -> tuple[str, str]:
    """Where the person last talked to the agent, with no other person below operator there; the
    operators' console if they never did. Nobody's work is the operators' to see."""
    return _latest(reader, agent_id, person) or (FALLBACK_CHANNEL, FALLBACK_CONVERSATION)


def chats_of(reader: Reader, agent_id: str) -> dict[tuple[str, str], str]:
    """The conversations that people have with an agent, by channel and name: whose each is, as far
    as that is on record. A session at the console proves nobody there: results made some."""
    found = {
        chat_of_key(row["key"]): ""
        for row in reader.all(
            "SELECT key FROM pointers WHERE agent_id = ? AND key GLOB 'chat:*'"
            " AND key NOT GLOB 'chat:console:*'",
            (agent_id,),
        )
    }
    for row in reader.all(
        "SELECT channel, conversation, person FROM conversations WHERE agent_id = ?", (agent_id,)
    ):
        found[row["channel"], row["conversation"]] = row["person"]
    return found


def _latest(reader: Reader, agent_id: str, person: str) -> tuple[str, str] | None:
    row = reader.one(
        "SELECT channel, conversation FROM conversations WHERE agent_id = ? AND person = ?"
        " ORDER BY last_at DESC, channel, conversation LIMIT 1",
        (agent_id, person or OPERATORS),
    )
    return None if row is None else (row["channel"], row["conversation"])


def place_of(reader: Reader, message: Message) -> tuple[str, tuple[str, str]]:
    """The agent and the conversation in which people see what concerns this message.

    Work that was handed on is shown where it was asked for: in the chat at the end of its way back.
    Other work is shown where its person talks to this agent, or else there, too.
    """
    chat, own = root_chat(message.deliver_to), None
    if message.kind not in _HANDED_ON and message.deliver_to.kind != "chat":
        own = _latest(reader, message.agent_id, message.person)
    if own is None and chat is not None:
        return chat.agent_id or message.agent_id, (chat.channel, chat.conversation)
    return message.agent_id, own or (FALLBACK_CHANNEL, FALLBACK_CONVERSATION)


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
    person: str = "",
) -> int:
    """Add a notice for ``place``, or for the conversation in which ``person`` last talked to the
    agent."""
    channel, conversation = place or latest_conversation(tx, agent_id, person)
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
