"""Changes of an open message: another text before a turn reads it, another priority."""

from __future__ import annotations

from dataclasses import replace

from agentsup.mailbox.messages.events import emit_message_event
from agentsup.mailbox.messages.rows import encode, find_message, need_message
from agentsup.mailbox.messages.values import MailboxContext
from agentsup.mailbox.queue.draft import check_size
from agentsup.model.errors import Conflict
from agentsup.model.event import EventType
from agentsup.model.message import OPEN, Message, MessageState, Part, Priority
from agentsup.store import Tx


def edit_tx(ctx: MailboxContext, tx: Tx, message_id: str, text: str) -> bool:
    """Replace the text of a queued message; its files stay. False if a turn has begun it.

    A message that was begun and is queued again has been read already. Raises ``TooLarge``, and
    ``BadRequest`` for text that can't be stored; nothing is changed then.
    """
    message = find_message(tx, message_id)
    if (
        message is None
        or message.state is not MessageState.QUEUED
        or message.started_at is not None
    ):
        return False
    others = tuple(part for part in message.parts if part.type != "text")
    parts = encode([part.to_json() for part in (Part("text", text=text), *others)])
    check_size(parts, ctx.limits.max_body_bytes)
    tx.execute("UPDATE messages SET parts = ? WHERE seq = ?", (parts, message.seq))
    facts = {"text": text, "from": message.principal.label}
    emit_message_event(tx, EventType.CHAT_EDITED, message, ctx.clock.now_ms(), facts)
    return True


def reprioritise_tx(tx: Tx, message_id: str, priority: Priority) -> Message:
    """Change the priority of an open message. Raises ``NotFound`` and ``Conflict`` (ended)."""
    message = need_message(tx, message_id)
    if message.state not in OPEN:
        raise Conflict(
            f"message {message_id} is {message.state.value}; its priority is of no use",
            message_id=message_id,
            state=message.state.value,
        )
    tx.execute("UPDATE messages SET priority = ? WHERE seq = ?", (int(priority), message.seq))
    tx.touch(f"agent:{message.agent_id}")
    return replace(message, priority=priority)
