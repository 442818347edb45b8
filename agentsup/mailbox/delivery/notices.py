"""Notices, and the conversation in which people see what concerns an agent."""

from __future__ import annotations

from typing import Any

from agentsup.mailbox.delivery import outbox
from agentsup.mailbox.messages.current_rights import is_still_operators
from agentsup.mailbox.messages.keys import chat_of_key, root_chat
from agentsup.mailbox.messages.values import RoleNow
from agentsup.model.message import DeliverTo, Message, MessageKind
from agentsup.model.principal import OPERATORS
from agentsup.store import Reader, Tx

FALLBACK_CHANNEL = "console"
FALLBACK_CONVERSATION = "local"
_PREVIEW_CHARS = 200
_HANDED_ON = frozenset({MessageKind.TASK, MessageKind.DIRECTIVE})


def latest_conversation(
    reader: Reader, agent_id: str, person: str, role_now: RoleNow
) -> tuple[str, str]:
    """The conversation of this person alone in which they last talked to the agent.

    Operators may take part in it. Without one, it is the operators' console. Work without a person
    is shown to the operators; their conversations are those whose last speaker is still an operator
    by ``role_now``.
    """
    return find_conversation(reader, agent_id, person, role_now) or (
        FALLBACK_CHANNEL,
        FALLBACK_CONVERSATION,
    )


def chats_of(reader: Reader, agent_id: str) -> dict[tuple[str, str], str]:
    """The conversations that people have with an agent, by channel and name, and their ``person``.

    The person is empty if it is not recorded. Sessions at the console don't count: some were made
    by results, without people.
    """
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


def is_known_conversation(reader: Reader, agent_id: str, channel: str, conversation: str) -> bool:
    """Whether anybody has ever talked to the agent there."""
    found = reader.scalar(
        "SELECT 1 FROM conversations WHERE agent_id = ? AND channel = ? AND conversation = ?",
        (agent_id, channel, conversation),
    )
    return found is not None


def latest_conversations(
    reader: Reader, first_id: str, limit: int
) -> list[tuple[str, tuple[str, str]]]:
    """Agents and their conversations (channel and name): first those of agent ``first_id``, the
    one used last first."""
    rows = reader.all(
        "SELECT agent_id, channel, conversation FROM conversations"
        " ORDER BY agent_id = ? DESC, last_at DESC LIMIT ?",
        (first_id, limit),
    )
    return [(row["agent_id"], (row["channel"], row["conversation"])) for row in rows]


def find_conversation(
    reader: Reader, agent_id: str, person: str, role_now: RoleNow
) -> tuple[str, str] | None:
    """The conversation in which that person talked to the agent last, or None.

    ``person`` and ``role_now`` as in ``latest_conversation``.
    """
    whose = person or OPERATORS
    rows = reader.execute(
        "SELECT channel, conversation, speaker FROM conversations WHERE agent_id = ? AND person = ?"
        " ORDER BY last_at DESC, channel, conversation",
        (agent_id, whose),
    )
    for row in rows:
        if whose != OPERATORS or is_still_operators(row["speaker"], role_now):
            return row["channel"], row["conversation"]
    return None


def conversation_of_message(
    reader: Reader, message: Message, role_now: RoleNow
) -> tuple[str, tuple[str, str]]:
    """The agent and the conversation in which people see what concerns this message.

    Delegated work is shown in the chat at the end of its ``then`` chain, where it was requested.
    Other work is shown where its person talks to this agent, or else in that chat, too.
    """
    chat, own = root_chat(message.deliver_to), None
    if message.kind not in _HANDED_ON and message.deliver_to.kind != "chat":
        own = find_conversation(reader, message.agent_id, message.person, role_now)
    if own is None and chat is not None:
        return chat.agent_id or message.agent_id, (chat.channel, chat.conversation)
    return message.agent_id, own or (FALLBACK_CHANNEL, FALLBACK_CONVERSATION)


def asked_topic_of(agent_id: str) -> str:
    """The topic that is touched when a question shown in that agent's chats is closed."""
    return f"asked:{agent_id}"


def touch_asked_tx(tx: Tx, message: Message) -> None:
    """Wake the channels that show questions about a message, of either agent that may show them."""
    chat = root_chat(message.deliver_to)
    for agent_id in {message.agent_id, (chat and chat.agent_id) or message.agent_id}:
        tx.touch(asked_topic_of(agent_id))


def notify_tx(
    tx: Tx,
    *,
    message_id: str,
    agent_id: str,
    text: str,
    at: int,
    address: tuple[str, str],
    facts: dict[str, Any] | None = None,
) -> int:
    """Add a notice for ``address``, a channel and a conversation."""
    channel, conversation = address
    return outbox.add_tx(
        tx,
        message_id=message_id,
        agent_id=agent_id,
        channel=channel,
        conversation=conversation,
        kind="notice",
        body={"text": text, **(facts or {})},
        at=at,
    )


def notify_of_tx(
    tx: Tx, message: Message, chat: DeliverTo, text: str, *, at: int, **facts: Any
) -> None:
    """Add a notice about a message for ``chat``."""
    notify_tx(
        tx,
        message_id=message.message_id,
        agent_id=chat.agent_id or message.agent_id,
        text=text,
        at=at,
        address=(chat.channel, chat.conversation),
        facts=facts,
    )


def drop_pending_tx(tx: Tx, message_id: str, *, kind: str, detail: str, at: int) -> None:
    """Drop parts that became pointless before they were delivered."""
    dropped = tx.all(
        "UPDATE outbox SET state = 'dropped', ended_at = ?, detail = ?"
        " WHERE message_id = ? AND kind = ? AND state = 'pending' RETURNING channel",
        (at, detail, message_id, kind),
    )
    for row in dropped:
        # The parts after it need not wait for its ``not_before`` any more.
        tx.touch(f"outbox:{row['channel']}")


def preview(text: str, limit: int = _PREVIEW_CHARS) -> str:
    """The beginning of ``text`` on one line."""
    line = " ".join(text.split())
    return line if len(line) <= limit else line[: limit - 1] + "…"
