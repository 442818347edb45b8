"""Closing a question: answered once, by somebody who may answer it, or past its deadline.

The question's end and its message's way back to the queue are one transaction (P8).
"""

from __future__ import annotations

import json
from functools import partial

from agentsup.kit import faults
from agentsup.mailbox.delivery.notices import (
    conversation_of_message,
    drop_pending_tx,
    touch_asked_tx,
)
from agentsup.mailbox.lifecycle.closing import withdraw_agent_question_tx
from agentsup.mailbox.messages import answer_options
from agentsup.mailbox.messages.answer_options import ANY
from agentsup.mailbox.messages.events import emit_task_event
from agentsup.mailbox.messages.rows import find_question, is_asked, need_message
from agentsup.mailbox.messages.values import MailboxContext
from agentsup.model.errors import BadRequest, Conflict, Forbidden, NotConfirmed, NotSeen
from agentsup.model.event import EventType
from agentsup.model.message import MessageState, check_transition
from agentsup.model.principal import Principal, PrincipalKind
from agentsup.model.question import (
    APPROVAL,
    NOTHING_SEEN,
    OF_AGENTS,
    AnswerableBy,
    ClosedReason,
    Question,
    QuestionState,
    SeenCall,
    call_digest,
    may_answer,
)
from agentsup.store import Reader, Tx, append, clock_time


def answer_tx(
    ctx: MailboxContext,
    tx: Tx,
    question_id: str,
    answer: str,
    by: Principal,
    args: str = "",
    seen: SeenCall = NOTHING_SEEN,
) -> Question:
    """Answer a question, once; its message goes back to the queue in its old order.

    ``args`` (JSON) replace the arguments of the call; ``seen`` is what the person was shown.

    Raises ``NotFound``, ``Forbidden`` (this principal may not answer it), ``BadRequest`` (not one
    of the options), ``NotSeen`` (only a part of the call was shown, or another call),
    ``NotConfirmed`` (an approval of every command) and ``Conflict`` (answered, expired or void
    already; says by whom and when). A ``Conflict`` with the ``state`` open means that the question
    is late by a clock that may still be set: it can be answered again in a minute.
    """
    question, meant = meant_by(ctx, tx, question_id, answer, by, seen)
    at = ctx.clock.now_ms()
    if args:
        tx.execute("UPDATE questions SET args = ? WHERE question_id = ?", (args, question_id))
    closed = close_question_tx(ctx, tx, question, ClosedReason.ANSWERED, by.label, at, meant)
    withdraw_agent_question_tx(ctx, tx, question_id, at=at)
    for observer in ctx.question_observers:
        observer.answered_tx(ctx, tx, closed, by)
    tx.after_commit(partial(faults.point, "question.answered"))
    return closed


def meant_by(
    ctx: MailboxContext,
    reader: Reader,
    question_id: str,
    answer: str,
    by: Principal,
    seen: SeenCall = NOTHING_SEEN,
) -> tuple[Question, str]:
    """An open question, and what the answer of somebody who may give it means.

    Changes nothing. Raises as ``answer_tx`` does.
    """
    question = find_question(reader, question_id)
    if question.state is not QuestionState.OPEN:
        raise Conflict(_too_late(question), question_id=question_id, state=question.state.value)
    _check_in_time(ctx, reader, question)
    if not may_answer(question, need_message(reader, question.message_id).principal, by):
        whose = "somebody else's"
        if question.who is AnswerableBy.OPERATORS:
            whose = "an operator's"
        elif by.kind in (PrincipalKind.AGENT, PrincipalKind.RUN):
            whose = "a person's"
        raise Forbidden(
            f"this question is {whose} to answer", question_id=question_id, who=question.who.value
        )
    meant = answer_options.meant(question, answer)
    if meant is None:
        raise BadRequest(
            f"{answer!r} is not one of the options: {', '.join(question.options)}",
            field="answer",
            options=list(question.options),
        )
    if (
        question.kind == APPROVAL
        and meant != answer_options.DENY
        and (meant == ANY or answer_options.decided(APPROVAL, meant)[0].allows)
    ):
        check_seen(question, seen)
        if meant == ANY:
            if not seen.is_confirmed:
                raise NotConfirmed(
                    f"this would let every command of {question.tool} run, whatever it does, until "
                    "the grant is taken back; answer again and confirm it, or allow this call alone",
                    question_id=question_id,
                )
            meant = answer_options.ALWAYS
    return question, meant


def check_seen(question: Question, seen: SeenCall) -> None:
    """Raise ``NotSeen`` unless this call was shown, and shown whole."""
    call = question.call
    if seen.digest and seen.digest != call.digest:
        raise NotSeen(
            f"the call that waits has the digest {call.digest}; what was shown is another one. "
            "Look at the question again",
            question_id=question.question_id,
        )
    problem = ""
    if seen.is_in_doubt:
        problem = "it is not certain that all of this call was shown there; look at it again"
    elif call.whole and not seen.digest:
        problem = "a part of this call only was shown; look at all of it first"
    if problem:
        raise NotSeen(
            f"{problem} (/question {question.question_id}, or `agentsup questions show "
            f"{question.question_id}`), or deny it",
            question_id=question.question_id,
        )


def _check_in_time(ctx: MailboxContext, reader: Reader, question: Question) -> None:
    """Raise ``Conflict`` if the deadline has passed, though the question is not closed yet."""
    if question.deadline_at is None:
        return
    is_of_before = _is_of_before(ctx, reader, question)
    now = ctx.clock.now_ms() if is_of_before else ctx.steady.now_ms()
    if question.deadline_at > now:
        return
    when = clock_time(question.deadline_at)
    if is_of_before:
        raise Conflict(
            f"by this machine's clock the question expired at {when}; the daemon has just started, and "
            "the clock may still be set: answer again in a minute, if the question is open then",
            question_id=question.question_id,
            state=QuestionState.OPEN.value,
        )
    raise Conflict(
        f"this question expired at {when}",
        question_id=question.question_id,
        state=QuestionState.EXPIRED.value,
    )


def _is_of_before(ctx: MailboxContext, reader: Reader, question: Question) -> bool:
    """Whether an earlier boot has set its deadline, and the clock has not settled since."""
    earlier = ctx.steady.earlier.questions
    return bool(earlier) and bool(
        reader.scalar(
            "SELECT rowid <= ? FROM questions WHERE question_id = ?",
            (earlier, question.question_id),
        )
    )


def skip_tx(ctx: MailboxContext, tx: Tx, question_id: str, by: Principal) -> Question:
    """Close a question of an agent unanswered, on behalf of somebody who may answer it.

    Its turn goes on as after the deadline. ``answered_by`` says who did it. Raises ``NotFound``,
    ``BadRequest`` (an approval is denied, not skipped), ``Forbidden`` and ``Conflict`` (closed
    already; says by whom and when).
    """
    question = find_question(tx, question_id)
    if question.state is not QuestionState.OPEN:
        raise Conflict(_too_late(question), question_id=question_id, state=question.state.value)
    if question.kind not in OF_AGENTS:
        raise BadRequest(
            f"this question must be answered with one of: {', '.join(question.options)}",
            field="question_id",
        )
    if not may_answer(question, need_message(tx, question.message_id).principal, by):
        raise Forbidden("this question is not yours to leave", question_id=question_id)
    at = ctx.clock.now_ms()
    closed = close_question_tx(ctx, tx, question, ClosedReason.SKIPPED, by.label, at)
    withdraw_agent_question_tx(ctx, tx, question_id, at=at)
    tx.after_commit(partial(faults.point, "question.answered"))
    return closed


def answered_by_agent_tx(
    ctx: MailboxContext, tx: Tx, question_id: str, answer: str, by: Principal
) -> bool:
    """Close a question with the text of the agent that it was put to; False if it was closed.

    The text is the answer, whether or not it names one of the options.
    """
    question = find_question(tx, question_id)
    if question.state is not QuestionState.OPEN:
        return False
    at = ctx.clock.now_ms()
    said = answer_options.meant(question, answer.strip()) or answer
    close_question_tx(ctx, tx, question, ClosedReason.ANSWERED, by.label, at, said)
    tx.after_commit(partial(faults.point, "question.answered"))
    return True


def close_question_tx(
    ctx: MailboxContext,
    tx: Tx,
    question: Question,
    reason: ClosedReason,
    by: str,
    at: int,
    answer: str = "",
) -> Question:
    """Close an open question; queue its parked message again, unless another question is open.

    ``by`` is who answered or skipped it, ``answer`` what ``answer_options.meant`` has returned.
    """
    decision, text = None, ""
    if reason is ClosedReason.ANSWERED:
        decision, text = answer_options.decided(question.kind, answer)
    tx.execute(
        "UPDATE questions SET state = ?, closed_reason = ?, decision = ?, answer = ?,"
        " answered_at = ?, answered_by = ? WHERE question_id = ?",
        (reason.state.value, reason.value, decision, text, at, by, question.question_id),
    )
    message = need_message(tx, question.message_id)
    if message.state is MessageState.PARKED and not is_asked(tx, message.message_id):
        check_transition(message.message_id, message.state, MessageState.QUEUED)
        tx.execute("UPDATE messages SET state = 'queued' WHERE seq = ?", (message.seq,))
    drop_pending_tx(tx, question.message_id, kind="question", detail=reason.state.value, at=at)
    closed = find_question(tx, question.question_id)
    conversation = (
        None if question.put_as else conversation_of_message(tx, message, ctx.role_now)[1]
    )
    emit_question_event(tx, EventType.QUESTION_CLOSED, closed, at, conversation)
    emit_task_event(tx, message, at)
    touch_asked_tx(tx, message)
    tx.touch(f"agent:{question.agent_id}")
    tx.touch(f"done:{question.message_id}")
    return closed


def _too_late(question: Question) -> str:
    when = clock_time(question.answered_at or question.asked_at)
    if question.state is QuestionState.ANSWERED:
        return f"this question was answered by {question.answered_by} at {when}: {question.answer}"
    if question.state is QuestionState.EXPIRED:
        if question.closed_reason is ClosedReason.SKIPPED:
            return f"{question.answered_by} left this question unanswered at {when}"
        return f"this question expired at {when}"
    return f"this question was withdrawn at {when}, because its work was stopped"


def _allowed(question: Question) -> str:
    """The digest of the call that was allowed, with changed arguments if there are any."""
    if not question.args:
        return question.call.digest
    try:
        return call_digest(question.permission, json.loads(question.args))
    except ValueError:
        return ""  # refused in this very transaction


def emit_question_event(
    tx: Tx,
    event: EventType,
    question: Question,
    at: int,
    conversation: tuple[str, str] | None = None,
) -> None:
    """Write an event about a question, in the conversation where it is shown."""
    is_allowed = question.decision is not None and question.decision.allows
    append(
        tx,
        event,
        at=at,
        agent_id=question.agent_id,
        session_id=question.session_id,
        message_id=question.message_id,
        conversation=":".join(conversation) if conversation else "",
        data={
            "question_id": question.question_id,
            "kind": question.kind,
            "state": question.state.value,
            "answer": question.answer,
            "by": question.answered_by,
            **({"digest": _allowed(question)} if is_allowed else {}),
        },
    )
