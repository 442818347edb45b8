"""Actions of people on single messages: requeue, replay or drop a failed one; change the text or
the priority of an open one."""

from __future__ import annotations

from dataclasses import replace

from agentsup.mailbox.lifecycle import closing
from agentsup.mailbox.messages import attempts, current_rights
from agentsup.mailbox.messages.events import emit_message_event
from agentsup.mailbox.messages.rows import encode, find_message, message_of, need_message
from agentsup.mailbox.messages.values import MailboxContext
from agentsup.mailbox.queue.accept import accept_tx
from agentsup.mailbox.queue.draft import check_size, draft
from agentsup.model.errors import Conflict
from agentsup.model.event import EventType
from agentsup.model.message import (
    OPEN,
    TERMINAL,
    Accepted,
    Message,
    MessageState,
    Part,
    Priority,
    check_transition,
)
from agentsup.model.principal import Principal
from agentsup.store import Reader, Tx


def failed_messages(reader: Reader, limit: int = 100) -> list[Message]:
    """Failed messages, newest first."""
    return reader.values(
        message_of,
        "SELECT * FROM messages WHERE state = 'dead' ORDER BY seq DESC LIMIT ?",
        (limit,),
    )


def requeue_tx(ctx: MailboxContext, tx: Tx, message_id: str, by: Principal) -> None:
    """Queue a failed message again in its old order, with no attempts counted.

    Calls that were finished are not repeated. Raises ``NotFound`` or ``Conflict`` (not a failed
    message).
    """
    message = _need_failed(tx, message_id)
    check_transition(message_id, message.state, MessageState.QUEUED)
    tx.execute(
        "UPDATE messages SET state = 'queued', attempts = 0, crashes = 0, not_before = 0,"
        " finished_at = NULL, expires_at = NULL WHERE seq = ?",
        (message.seq,),
    )
    at = ctx.clock.now_ms()
    ctx.loads.change_tx(tx, message.agent_id, 1, at=at)
    attempts.reset_attempts_tx(tx, message_id, at)
    facts = {"code": "requeued", "by": by.to_json()}
    emit_message_event(tx, EventType.MESSAGE_RETRY, message, at, facts)
    tx.touch(f"agent:{message.agent_id}")


def drop_tx(ctx: MailboxContext, tx: Tx, message_id: str, by: Principal) -> None:
    """Cancel a failed message for good. Raises ``NotFound`` or ``Conflict`` (not a failed one)."""
    message = _need_failed(tx, message_id)
    closing.close_tx(
        ctx,
        tx,
        message,
        MessageState.CANCELLED,
        at=ctx.clock.now_ms(),
        code="dropped",
        text=f"dropped by {by.label}; it had failed: {message.error_text}",
    )


def replay_tx(
    ctx: MailboxContext, tx: Tx, message_id: str, by: Principal, key: str = ""
) -> Accepted:
    """Run an ended message once more, as a new message with ``replay_of``.

    It counts as new work; the same ``key`` gives the same message. Nobody waits for it any more, so
    an answer that was waited for goes to the asker's mailbox. Raises ``NotFound``, ``Conflict`` (it
    has not ended) and what accepting raises.
    """
    old = need_message(tx, message_id)
    if old.state not in TERMINAL:
        raise Conflict(
            f"message {message_id} is {old.state.value}; only one that has ended can be replayed",
            message_id=message_id,
            state=old.state.value,
        )
    new = replace(
        old.renewed(old.session_id),
        principal=current_rights.principal_for_new_root(tx, old),
        in_reply_to="",
        root_id="",
        epochs={},
        summary=f"replayed by {by.label}: {old.summary or old.text}"[:200],
        idempotency_key=key and f"replay:{message_id}:{key}",
    )
    return accept_tx(ctx, tx, draft(ctx, new))


def _need_failed(reader: Reader, message_id: str) -> Message:
    message = need_message(reader, message_id)
    if message.state is not MessageState.DEAD:
        raise Conflict(
            f"message {message_id} is {message.state.value}, not a failed message",
            message_id=message_id,
            state=message.state.value,
        )
    return message


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
