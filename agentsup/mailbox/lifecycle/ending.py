"""The ends of a message (done, dead, cancelled, expired), and its way back to the queue.

Each end is one transaction with its events, its delivery and the end of all waits on it. The fence
decides who may end a turn, so a late completion changes nothing (P1, P2).
"""

from __future__ import annotations

from collections.abc import Collection
from functools import partial

from agentsup.catalogue import words
from agentsup.kit import backoff, faults
from agentsup.mailbox.lifecycle.closing import close_tx, end_moot_tx
from agentsup.mailbox.lifecycle.results import MessageResult, deliver_tx
from agentsup.mailbox.messages import current_rights
from agentsup.mailbox.messages.events import emit_message_event
from agentsup.mailbox.messages.rows import OPEN_SQL, is_asked, message_of, need_message
from agentsup.mailbox.messages.values import Completion, MailboxContext
from agentsup.mailbox.queue import waits
from agentsup.model.agent import FAILED, FINISHED
from agentsup.model.errors import LeaseLost, RightsLost
from agentsup.model.event import EventType
from agentsup.model.message import Lease, Message, MessageOutcome, MessageState, check_transition
from agentsup.store import Tx

_RETRY_CAP_S = 300.0
_RETRY_MOST_S = 8 * 24 * 3600.0
"""The longest pause that a provider is granted: a plan's limit ends after a week at the latest."""


def leased_tx(ctx: MailboxContext, tx: Tx, lease: Lease) -> Message:
    """The message of ``lease`` as it is now. Raises ``LeaseLost`` if the lease is not valid."""
    message = message_of(waits.need_lease(ctx, tx, lease))
    if ctx.epochs.stops(message.agent_id, message.session_id, message.accepted_at):
        raise LeaseLost(
            f"message {message.message_id} is being stopped; drop the work",
            message_id=message.message_id,
        )
    return message


def complete_tx(ctx: MailboxContext, tx: Tx, lease: Lease, completion: Completion) -> None:
    """End the turn: state, session, delivery, waits and events together.

    Raises ``LeaseLost`` if the turn was taken over or stopped; nothing is changed then.
    """
    message = leased_tx(ctx, tx, lease)
    at = ctx.clock.now_ms()
    result = MessageResult("ok", completion.text, completion.parts, completion.error_code)
    if completion.outcome is not MessageOutcome.OK:
        why = completion.error_text or completion.text
        if completion.notice and message.deliver_to.kind == "chat":
            why = completion.notice
        result = MessageResult("failed", why, code=completion.error_code)
    if completion.engine_state is None:
        tx.execute(
            "UPDATE sessions SET updated_at = ? WHERE session_id = ?", (at, message.session_id)
        )
    else:
        tx.execute(
            "UPDATE sessions SET updated_at = ?, engine = ?, engine_state = ? WHERE session_id = ?",
            (at, completion.engine, completion.engine_state, message.session_id),
        )
    outcome, text = completion.outcome, completion.error_text
    _end_tx(ctx, tx, message, result, text, at=at, outcome=outcome, answer=completion.text)
    if message.attempts == 1 and message.started_at is not None:
        seconds = (at - message.started_at) / 1000
        tx.after_commit(partial(ctx.durations.sample, message.agent_id, seconds))
    tx.after_commit(partial(faults.point, "turn.completed"))
    faults.point("turn.complete.before_commit")


def retry_tx(
    ctx: MailboxContext,
    tx: Tx,
    lease: Lease,
    *,
    code: str,
    text: str,
    unit: float,
    least_s: float = 0.0,
    is_last: bool = False,
    notice: str = "",
) -> MessageState:
    """Queue the message again after a transient failure, or let it fail after the last attempt.

    ``unit`` in [0, 1] selects the delay within its jitter; the delay is at least ``least_s``
    seconds. ``is_last``: no other attempt is made. ``notice`` is shown to the asker of a failed
    message instead of ``text``. A message that puts a closed question is cancelled instead. Returns
    the new state. Raises ``LeaseLost``.
    """
    message = leased_tx(ctx, tx, lease)
    at = ctx.clock.now_ms()
    if end_moot_tx(ctx, tx, message, at=at):
        return MessageState.CANCELLED
    if is_last or message.attempts >= ctx.limits.max_attempts:
        sentence = f"{message.attempts} attempts failed, the last one: {text}"
        dead_letter_tx(ctx, tx, message.message_id, code=code, text=sentence, at=at, notice=notice)
        return MessageState.DEAD
    delay_s = backoff.delay_s(message.attempts, base_s=1.0, cap_s=_RETRY_CAP_S, unit=unit)
    delay_s = max(delay_s, min(least_s, _RETRY_MOST_S))
    not_before = ctx.steady.now_ms() + round(delay_s * 1000)
    return _postpone_tx(tx, message, message.attempts, at, not_before, code, text)


def postpone_tx(
    ctx: MailboxContext, tx: Tx, lease: Lease, *, code: str, text: str, wait_s: float, unit: float
) -> None:
    """Queue the message again, to start in ``wait_s`` seconds, without counting an attempt.

    ``unit`` in [0, 1] adds up to one second. Raises ``LeaseLost``.
    """
    message = leased_tx(ctx, tx, lease)
    at = ctx.clock.now_ms()
    if not end_moot_tx(ctx, tx, message, at=at):
        not_before = ctx.steady.now_ms() + round((wait_s + unit) * 1000)
        _postpone_tx(tx, message, message.attempts - 1, at, not_before, code, text)


def _postpone_tx(
    tx: Tx, message: Message, attempts: int, at: int, not_before: int, code: str, text: str
) -> MessageState:
    state = _requeue(tx, message, attempts=attempts, not_before=not_before, code=code, text=text)
    facts = {"code": code, "text": text, "attempt": max(0, attempts), "not_before": not_before}
    emit_message_event(tx, EventType.MESSAGE_RETRY, message, at, facts)
    return state


def release_tx(ctx: MailboxContext, tx: Tx, lease: Lease) -> None:
    """Queue the message again in its old order; no attempt is counted. Raises ``LeaseLost``."""
    message = leased_tx(ctx, tx, lease)
    _give_back(ctx, tx, message, ctx.clock.now_ms())


def release_instance_tx(
    ctx: MailboxContext,
    tx: Tx,
    instance_id: str,
    *,
    culprits: Collection[str] | None = (),
    text: str = "",
) -> list[str]:
    """Release all leases of an agent stack that has ended. Returns the ids of the culprits.

    ``culprits`` are the messages on which it crashed (None: all of them): each counts a crash and
    is queued again, or becomes a failed message. The others go back to the queue without counting
    an attempt, also if the stack had not received their leases yet.
    """
    at = ctx.clock.now_ms()
    rows = tx.all(
        f"SELECT message_id FROM messages INDEXED BY messages_open WHERE {OPEN_SQL} AND state = 'leased'"  # noqa: S608 - a constant
        " AND lease_instance = ? AND lease_boot = ? ORDER BY seq",
        (instance_id, ctx.boot_id),
    )
    blamed = []
    for row in rows:
        message = need_message(tx, row["message_id"])
        if ctx.epochs.stops(message.agent_id, message.session_id, message.accepted_at):
            continue  # the stop in progress cancels it
        if culprits is None or message.message_id in culprits:
            blamed.append(str(message.message_id))
            _crash(ctx, tx, message, text, at)
        else:
            _give_back(ctx, tx, message, at)
    return blamed


def _give_back(ctx: MailboxContext, tx: Tx, message: Message, at: int) -> None:
    if end_moot_tx(ctx, tx, message, at=at):
        return
    state = _requeue(tx, message, attempts=message.attempts - 1)
    event = EventType.MESSAGE_PARKED if state is MessageState.PARKED else EventType.MESSAGE_RETRY
    emit_message_event(tx, event, message, at, {"code": "released"})


def park_interrupted_tx(ctx: MailboxContext, tx: Tx, message: Message, at: int) -> bool:
    """Park a message whose turn was interrupted while a person was being asked.

    It runs again only after the answer, however long that takes. False if nobody is being asked.
    """
    if not is_asked(tx, message.message_id):
        return False
    _give_back(ctx, tx, message, at)
    return True


def _crash(ctx: MailboxContext, tx: Tx, message: Message, text: str, at: int) -> None:
    if end_moot_tx(ctx, tx, message, at=at):
        return
    crashes = message.crashes + 1
    tx.execute("UPDATE messages SET crashes = ? WHERE seq = ?", (crashes, message.seq))
    if crashes >= ctx.limits.max_crashes or message.attempts >= ctx.limits.max_attempts:
        sentence = f"the agent crashed on it {crashes} times, the last time: {text}"
        dead_letter_tx(ctx, tx, message.message_id, code="crashed", text=sentence, at=at)
        return
    _requeue(tx, message, attempts=message.attempts, code="crashed", text=text)
    facts = {"code": "crashed", "text": text, "attempt": message.attempts}
    emit_message_event(tx, EventType.MESSAGE_RETRY, message, at, facts)


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
    _end_tx(ctx, tx, message, result, text, at=at, state=MessageState.DEAD, outcome=None)


def expire_tx(ctx: MailboxContext, tx: Tx, message_id: str, *, at: int) -> None:
    """End a queued message that has expired: failed, with a notice."""
    message = need_message(tx, message_id)
    why = "ended.not_started" if message.started_at is None else "ended.not_finished"
    text, sentence = words()(why), words(message.principal.language)(why)
    _end_tx(ctx, tx, message, MessageResult("expired", sentence, code="expired"), text, at=at)


def refuse_tx(ctx: MailboxContext, tx: Tx, message_id: str, lost: RightsLost, *, at: int) -> None:
    """End a message whose person no longer has the rights for it: failed, with a notice."""
    message = need_message(tx, message_id)
    sentence = current_rights.refusal_text(lost, message.principal.language)
    result = MessageResult("failed", sentence, code=lost.code)
    _end_tx(ctx, tx, message, result, lost.message, at=at)


def _end_tx(
    ctx: MailboxContext,
    tx: Tx,
    message: Message,
    result: MessageResult,
    text: str,
    *,
    at: int,
    state: MessageState = MessageState.DONE,
    outcome: MessageOutcome | None = MessageOutcome.FAILED,
    answer: str = "",
) -> None:
    """Deliver ``result`` and end the message with its code and ``text``; notify the observers."""
    facts = {"delivered": deliver_tx(ctx, tx, message, result, at=at)}
    close_tx(
        ctx,
        tx,
        message,
        state,
        at=at,
        outcome=outcome,
        result_text=answer,
        code=result.code,
        text=text,
        data=facts,
    )
    what, why = (
        (FINISHED, {}) if result.word == "ok" else (FAILED, {"code": result.code, "text": text})
    )
    for observer in ctx.message_observers:
        observer.changed_tx(ctx, tx, message, what, at=at, **why)


def _requeue(
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
    waits.close_tx(tx, message.message_id, as_target=False)
    tx.touch(f"agent:{message.agent_id}")
    return state
