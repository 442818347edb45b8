"""Changes of a message that is still open: another text before a turn reads it, another priority."""

from __future__ import annotations

from dataclasses import replace

from agentsup.mailbox.draft import check_size
from agentsup.mailbox.rows import encode, find_message, need_message
from agentsup.mailbox.values import Desk
from agentsup.model.errors import Conflict
from agentsup.model.event import EventType
from agentsup.model.message import OPEN, Message, Part, Priority, State
from agentsup.store.database import Tx
from agentsup.store.events import append

__all__ = ["edit_tx", "reprioritise_tx"]


def edit_tx(desk: Desk, tx: Tx, message_id: str, text: str) -> bool:
    """Replace the text of a queued message; its files stay. False if a turn has begun it.

    A message that was begun and is queued again has been read already. Raises ``TooLarge``, and
    ``BadRequest`` for text that is no text; nothing is changed then.
    """
    message = find_message(tx, message_id)
    if message is None or message.state is not State.QUEUED or message.started_at is not None:
        return False
    others = tuple(part for part in message.parts if part.type != "text")
    parts = encode([part.to_json() for part in (Part("text", text=text), *others)])
    check_size(parts, desk.limits.max_body_bytes)
    tx.execute("UPDATE messages SET parts = ? WHERE seq = ?", (parts, message.seq))
    to = message.deliver_to
    append(
        tx,
        EventType.CHAT_EDITED,
        at=desk.clock.now_ms(),
        agent_id=message.agent_id,
        session_id=message.session_id,
        message_id=message_id,
        conversation=f"{to.channel}:{to.conversation}" if to.kind == "chat" else "",
        data={"text": text, "from": message.principal.label},
    )
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
