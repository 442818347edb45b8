"""Closing a question: answered once, by whoever may, or past its deadline.

The question's end and its message's way back to the queue are one transaction (P8).
"""

from __future__ import annotations

import json
from datetime import UTC, datetime
from functools import partial

from agentsup.kit import faults
from agentsup.mailbox import choices
from agentsup.mailbox.choices import ANY
from agentsup.mailbox.notices import drop_pending_tx, place_of, touch_asked_tx
from agentsup.mailbox.rows import find_question, need_message
from agentsup.mailbox.telling import tell_task
from agentsup.mailbox.values import Desk
from agentsup.mailbox.withdrawing import take_back_tx
from agentsup.model.errors import BadRequest, Conflict, Forbidden, NotConfirmed, NotSeen
from agentsup.model.event import EventType
from agentsup.model.message import State, check_transition
from agentsup.model.principal import Principal, PrincipalKind
from agentsup.model.question import (
    APPROVAL,
    NOTHING_SEEN,
    OF_AGENTS,
    Question,
    QuestionState,
    Seen,
    Who,
    call_digest,
    may_answer,
)
from agentsup.store.database import Tx
from agentsup.store.events import append

__all__ = ["answer_tx", "answered_by_agent_tx", "close_tx", "skip_tx", "tell"]


def answer_tx(
    desk: Desk,
    tx: Tx,
    question_id: str,
    answer: str,
    by: Principal,
    args: str = "",
    seen: Seen = NOTHING_SEEN,
) -> Question:
    """Answer once; the message goes back to its place in the queue. ``args`` (JSON) are the
    arguments that the call is to have instead of its own; ``seen`` is what the person was shown.

    Raises ``NotFound``, ``Forbidden`` (not this one's to answer), ``BadRequest`` (not one of the
    options), ``NotSeen`` (the call was shown in part, or another one), ``NotConfirmed`` (leave for
    every command) and ``Conflict`` (answered, expired or void already; says by whom and when. With the
    ``state`` open: it is late by a clock that may still be set, and can be answered again in a minute).
    """
    question = find_question(tx, question_id)
    at = desk.clock.now_ms()
    if question.state is not QuestionState.OPEN:
        raise Conflict(_too_late(question), question_id=question_id, state=question.state.value)
    _check_in_time(desk, tx, question)
    if not may_answer(question, need_message(tx, question.message_id).principal, by):
        whose = "somebody else's"
        if question.who is Who.OPERATORS:
            whose = "an operator's"
        elif by.kind in (PrincipalKind.AGENT, PrincipalKind.RUN):
            whose = "a person's"
        raise Forbidden(
            f"this question is {whose} to answer", question_id=question_id, who=question.who.value
        )
    meant = choices.meant(question, answer)
    if meant is None:
        raise BadRequest(
            f"{answer!r} is not one of the options: {', '.join(question.options)}",
            field="answer",
            options=list(question.options),
        )
    if question.kind == APPROVAL and meant in (ANY, *question.options) and meant != choices.DENY:
        _check_seen(question, seen)
        if meant == ANY:
            if not seen.is_confirmed:
                raise NotConfirmed(
                    f"this would let every command of {question.tool} run, whatever it does, until "
                    "the grant is taken back; answer again and confirm it, or allow this call alone",
                    question_id=question_id,
                )
            meant = choices.ALWAYS
    if args:
        tx.execute("UPDATE questions SET args = ? WHERE question_id = ?", (args, question_id))
    closed = close_tx(tx, question, QuestionState.ANSWERED, meant, by.label, at)
    take_back_tx(tx, question_id, at=at)
    for book in desk.approvals:
        book.answered_tx(tx, closed, by)
    tx.after_commit(partial(faults.point, "question.answered"))
    return closed


def _check_seen(question: Question, seen: Seen) -> None:
    """An approval counts for the call that was shown, and shown whole."""
    call = question.call
    if seen.digest and seen.digest != call.digest:
        raise NotSeen(
            f"the call that waits has the digest {call.digest}; what was shown is another one. "
            "Look at the question again",
            question_id=question.question_id,
        )
    if seen.is_in_doubt:
        raise NotSeen(
            "it is not certain that all of this call was shown there; look at it again "
            f"(/question {question.question_id}, or `agentsup questions show "
            f"{question.question_id}`), or deny it",
            question_id=question.question_id,
        )
    if call.whole and not seen.digest:
        raise NotSeen(
            "a part of this call only was shown; look at all of it first "
            f"(/question {question.question_id}, or `agentsup questions show "
            f"{question.question_id}`), or deny it",
            question_id=question.question_id,
        )


def _check_in_time(desk: Desk, tx: Tx, question: Question) -> None:
    """Raises ``Conflict`` where the deadline has passed, though nobody has closed the question yet."""
    if question.deadline_at is None:
        return
    is_of_before = _is_of_before(desk, tx, question)
    now = desk.clock.now_ms() if is_of_before else desk.steady.now_ms()
    if question.deadline_at > now:
        return
    when = _clock_time(question.deadline_at)
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


def _is_of_before(desk: Desk, tx: Tx, question: Question) -> bool:
    """Whether an earlier life has told its deadline, and the clock has not settled since."""
    earlier = desk.steady.earlier.questions
    return bool(earlier) and bool(
        tx.scalar(
            "SELECT rowid <= ? FROM questions WHERE question_id = ?",
            (earlier, question.question_id),
        )
    )


def skip_tx(desk: Desk, tx: Tx, question_id: str, by: Principal) -> Question:
    """Leave a question of an agent unanswered, for whoever may answer it: its turn goes on as after
    the deadline, and need not wait for one. ``answered_by`` says who did.

    Raises ``NotFound``, ``BadRequest`` (leave for a call is denied, not skipped), ``Forbidden`` and
    ``Conflict`` (closed already; says by whom and when).
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
    at = desk.clock.now_ms()
    closed = close_tx(tx, question, QuestionState.EXPIRED, "", by.label, at)
    take_back_tx(tx, question_id, at=at)
    tx.after_commit(partial(faults.point, "question.answered"))
    return closed


def answered_by_agent_tx(desk: Desk, tx: Tx, question_id: str, answer: str, by: Principal) -> bool:
    """What an agent said to a question that was put to it; False if that is closed already.

    Its words are the answer, whether or not they name one of the options.
    """
    question = find_question(tx, question_id)
    if question.state is not QuestionState.OPEN:
        return False
    at = desk.clock.now_ms()
    said = choices.meant(question, answer.strip()) or answer
    close_tx(tx, question, QuestionState.ANSWERED, said, by.label, at)
    tx.after_commit(partial(faults.point, "question.answered"))
    return True


def close_tx(
    tx: Tx, question: Question, state: QuestionState, answer: str, by: str, at: int
) -> Question:
    """Close an open question; its message, if that is parked and nothing else is asked about it, is
    queued again."""
    tx.execute(
        "UPDATE questions SET state = ?, answer = ?, answered_at = ?, answered_by = ?"
        " WHERE question_id = ?",
        (state.value, answer, at, by, question.question_id),
    )
    message = need_message(tx, question.message_id)
    if message.state is State.PARKED and not _is_asked_more(tx, message.message_id):
        check_transition(message.message_id, message.state, State.QUEUED)
        tx.execute("UPDATE messages SET state = 'queued' WHERE seq = ?", (message.seq,))
    drop_pending_tx(tx, question.message_id, kind="question", detail=state.value, at=at)
    closed = find_question(tx, question.question_id)
    place = None if question.put_as else place_of(tx, message)[1]
    tell(tx, EventType.QUESTION_CLOSED, closed, at, place)
    tell_task(tx, message, at)
    touch_asked_tx(tx, message)
    tx.touch(f"agent:{question.agent_id}")
    tx.touch(f"done:{question.message_id}")
    return closed


def _is_asked_more(tx: Tx, message_id: str) -> bool:
    return bool(
        tx.scalar(
            "SELECT 1 FROM questions WHERE message_id = ? AND state = 'open' LIMIT 1", (message_id,)
        )
    )


def _too_late(question: Question) -> str:
    when = _clock_time(question.answered_at or question.asked_at)
    if question.state is QuestionState.ANSWERED:
        return f"this question was answered by {question.answered_by} at {when}: {question.answer}"
    if question.state is QuestionState.EXPIRED:
        if question.answered_by:
            return f"{question.answered_by} left this question unanswered at {when}"
        return f"this question expired at {when}"
    return f"this question was withdrawn at {when}, because its work was stopped"


def _clock_time(at_ms: int) -> str:
    return datetime.fromtimestamp(at_ms / 1000, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")


def _allowed(question: Question) -> str:
    """The digest of the call that was allowed; changed arguments make it another one."""
    if not question.args:
        return question.call.digest
    try:
        return call_digest(question.leave, json.loads(question.args))
    except ValueError:
        return ""  # refused in this very transaction


def tell(
    tx: Tx,
    event: EventType,
    question: Question,
    at: int,
    place: tuple[str, str] | None = None,
) -> None:
    """The event of what happened to a question, in the conversation where it is shown."""
    append(
        tx,
        event,
        at=at,
        agent_id=question.agent_id,
        session_id=question.session_id,
        message_id=question.message_id,
        conversation=":".join(place) if place else "",
        data={
            "question_id": question.question_id,
            "kind": question.kind,
            "state": question.state.value,
            "answer": question.answer,
            "by": question.answered_by,
            **({"digest": _allowed(question)} if choices.allows(question.answer) else {}),
        },
    )
