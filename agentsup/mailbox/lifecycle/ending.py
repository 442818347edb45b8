"""The ends of a message (done, dead, cancelled, expired), and its way back to the queue.

Each end is one transaction with its events, its delivery and the end of all waits on it. The fence
decides who may end a turn, so a late completion changes nothing (P1, P2).
"""

from __future__ import annotations

from agentsup.catalogue import words
from agentsup.mailbox.lifecycle.closing import end_moot_tx, finish_tx
from agentsup.mailbox.lifecycle.results import MessageResult, deliver_tx
from agentsup.mailbox.messages import current_rights
from agentsup.mailbox.messages.events import emit_message_event
from agentsup.mailbox.messages.rows import is_asked, message_of, need_message
from agentsup.mailbox.messages.values import MailboxContext, MessageEnd
from agentsup.mailbox.queue import waits
from agentsup.model.agent import FAILED, FINISHED
from agentsup.model.errors import LeaseLost, RightsLost
from agentsup.model.event import EventType
from agentsup.model.message import Lease, Message, MessageOutcome, MessageState, check_transition
from agentsup.store import Tx


def leased_tx(ctx: MailboxContext, tx: Tx, lease: Lease) -> Message:
    """The message of ``lease`` as it is now. Raises ``LeaseLost`` if the lease is not valid."""
    message = message_of(waits.need_lease(ctx, tx, lease))
    if ctx.epochs.stops(message.agent_id, message.session_id, message.accepted_at):
        raise LeaseLost(
            f"message {message.message_id} is being stopped; drop the work",
            message_id=message.message_id,
        )
    return message


def release_message_tx(ctx: MailboxContext, tx: Tx, message: Message, at: int) -> None:
    """Queue or park a message whose turn has ended; no attempt is counted."""
    if end_moot_tx(ctx, tx, message, at=at):
        return
    state = requeue_tx(tx, message, attempts=message.attempts - 1)
    event = EventType.MESSAGE_PARKED if state is MessageState.PARKED else EventType.MESSAGE_RETRY
    emit_message_event(tx, event, message, at, {"code": "released"})


def park_interrupted_tx(ctx: MailboxContext, tx: Tx, message: Message, at: int) -> bool:
    """Park a message whose turn was interrupted while a person was being asked.

    It runs again only after the answer, however long that takes. False if nobody is being asked.
    """
    if not is_asked(tx, message.message_id):
        return False
    release_message_tx(ctx, tx, message, at)
    return True


def dead_letter_tx(
    ctx: MailboxContext,
    tx: Tx,
    message_id: str,
    *,
    code: str,
    text: str,
    at: int,
    notice: str = "",
) -> None:
    """Make a message a failed message and notify its asker (a person by ``notice``, if given)."""
    message = need_message(tx, message_id)
    why = notice.removesuffix(".") if message.deliver_to.kind == "chat" else ""
    sentence = words(message.principal.language)("ended.failed", why=why or text)
    result = MessageResult("dead", sentence, code=code)
    end_tx(ctx, tx, message, result, MessageEnd(MessageState.DEAD, code, text), at=at)


def expire_tx(ctx: MailboxContext, tx: Tx, message_id: str, *, at: int) -> None:
    """End a queued message that has expired: failed, with a notice."""
    message = need_message(tx, message_id)
    why = "ended.not_started" if message.started_at is None else "ended.not_finished"
    text, sentence = words()(why), words(message.principal.language)(why)
    result = MessageResult("expired", sentence, code="expired")
    end = MessageEnd(MessageState.DONE, result.code, text, MessageOutcome.FAILED)
    end_tx(ctx, tx, message, result, end, at=at)


def refuse_tx(ctx: MailboxContext, tx: Tx, message_id: str, lost: RightsLost, *, at: int) -> None:
    """End a message whose person no longer has the rights for it: failed, with a notice."""
    message = need_message(tx, message_id)
    sentence = current_rights.refusal_text(lost, message.principal.language)
    result = MessageResult("failed", sentence, code=lost.code)
    end = MessageEnd(MessageState.DONE, lost.code, lost.message, MessageOutcome.FAILED)
    end_tx(ctx, tx, message, result, end, at=at)


def end_tx(
    ctx: MailboxContext,
    tx: Tx,
    message: Message,
    result: MessageResult,
    end: MessageEnd,
    *,
    at: int,
) -> None:
    """Deliver ``result``, finish the message and notify the observers."""
    delivered = deliver_tx(ctx, tx, message, result, at=at)
    finish_tx(ctx, tx, message, end, at=at, delivered=delivered)
    what, why = (
        (FINISHED, {}) if result.word == "ok" else (FAILED, {"code": end.code, "text": end.text})
    )
    for observer in ctx.message_observers:
        observer.changed_tx(ctx, tx, message, what, at=at, **why)


def requeue_tx(
    tx: Tx,
    message: Message,
    *,
    attempts: int,
    not_before: int = 0,
    code: str = "",
    text: str = "",
) -> MessageState:
    """Queue the message again; if a person is being asked about it, park it until the answer."""
    asked = is_asked(tx, message.message_id)
    state = MessageState.PARKED if asked else MessageState.QUEUED
    check_transition(message.message_id, message.state, state)
    tx.execute(
        "UPDATE messages SET state = ?, attempts = ?, not_before = ?, lease_until = NULL,"
        " error_code = ?, error_text = ? WHERE seq = ?",
        (state.value, max(0, attempts), not_before, code, text, message.seq),
    )
    waits.end_waits_tx(tx, message.message_id, as_target=False)
    tx.touch(f"agent:{message.agent_id}")
    return state
