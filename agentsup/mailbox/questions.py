"""Questions: a turn parks until a person or an agent answers, or the deadline passes.

A question is single use. Its row, the parked message and the part shown to the person are one
transaction; so are the answer and the message's return to the queue (P8).
"""

from __future__ import annotations

from datetime import UTC, datetime
from functools import partial

from agentsup.kit import faults
from agentsup.mailbox import choices, ending, outbox, waits
from agentsup.mailbox.notices import drop_pending_tx, place_of, touch_asked_tx
from agentsup.mailbox.rows import encode, find_question, need_message, question_of
from agentsup.mailbox.values import Desk, Expired
from agentsup.model.engine import Suspended
from agentsup.model.errors import BadRequest, Conflict, Forbidden
from agentsup.model.event import EventType
from agentsup.model.message import Lease, Message, State, check_transition
from agentsup.model.principal import Principal
from agentsup.model.question import Question, QuestionState, Who, may_answer, of_leave
from agentsup.store.database import Reader, Tx
from agentsup.store.events import append

__all__ = ["answer_tx", "ask_tx", "expire_tx", "list_of", "next_deadline", "park_tx"]

_EXPIRE_AT_ONCE = 200


def park_tx(desk: Desk, tx: Tx, lease: Lease, suspended: Suspended) -> Question:
    """Ask and wait: the message is parked, keeps its session and gives its lease and slot back.

    The attempt is not counted. Raises ``LeaseLost``.
    """
    message = ending.held_tx(desk, tx, lease)
    check_transition(message.message_id, message.state, State.PARKED)
    tx.execute(
        "UPDATE messages SET state = 'parked', attempts = ?, lease_until = NULL WHERE seq = ?",
        (max(0, message.attempts - 1), message.seq),
    )
    waits.close_tx(tx, message.message_id, as_target=False)
    question = ask_tx(desk, tx, message, suspended, parks=True)
    tx.after_commit(partial(faults.point, "question.parked"))
    return question


def ask_tx(
    desk: Desk, tx: Tx, message: Message, suspended: Suspended, *, parks: bool = False
) -> Question:
    """Put a question about a message, parked or at work, to whoever reads what becomes of it.

    Where the call it is about got leave meanwhile, it is answered already.
    """
    at = desk.clock.now_ms()
    deadline_at = None
    if suspended.timeout_s is not None:
        deadline_at = at + round(suspended.timeout_s * 1000)
    question_id = desk.entropy.new_id("q")
    tx.execute(
        "INSERT INTO questions (question_id, agent_id, session_id, message_id, kind, text,"
        " options, state, asked_at, deadline_at, who, call_id, tool)"
        " VALUES (?, ?, ?, ?, ?, ?, ?, 'open', ?, ?, ?, ?, ?)",
        (
            question_id,
            message.agent_id,
            message.session_id,
            message.message_id,
            suspended.kind,
            suspended.text,
            encode(suspended.options),
            at,
            deadline_at,
            suspended.who.value,
            suspended.call_id,
            suspended.tool,
        ),
    )
    agent_id, place = place_of(tx, message.deliver_to, message.agent_id)
    outbox.add_tx(
        tx,
        message_id=message.message_id,
        agent_id=agent_id,
        session_id=message.session_id,
        channel=place[0],
        conversation=place[1],
        kind="question",
        body={
            "question_id": question_id,
            "kind": suspended.kind,
            "text": suspended.text,
            "options": choices.labels(
                suspended.kind, suspended.options, message.principal.language
            ),
            "deadline_at": deadline_at,
            "who": suspended.who.value,
            "tool": of_leave(suspended.tool)[0],
        },
        at=at,
    )
    question = find_question(tx, question_id)
    if parks:
        _tell(tx, EventType.MESSAGE_PARKED, question, at)
    _tell(tx, EventType.QUESTION_ASKED, question, at, place)
    tx.touch(f"agent:{message.agent_id}")
    tx.touch(f"done:{message.message_id}")
    for book in desk.approvals:
        giver = book.asked_tx(tx, question)
        if giver is not None:
            return _close(tx, question, QuestionState.ANSWERED, choices.ONCE, giver.label, at)
    return question


def answer_tx(
    desk: Desk, tx: Tx, question_id: str, answer: str, by: Principal, args: str = ""
) -> Question:
    """Answer once; the message goes back to its place in the queue. ``args`` (JSON) are the
    arguments that the call is to have instead of its own.

    Raises ``NotFound``, ``Forbidden`` (not this one's to answer), ``BadRequest`` (not one of the
    options) and ``Conflict`` (answered, expired or void already; says by whom and when).
    """
    question = find_question(tx, question_id)
    at = desk.clock.now_ms()
    if question.state is not QuestionState.OPEN:
        raise Conflict(_too_late(question), question_id=question_id, state=question.state.value)
    if question.deadline_at is not None and question.deadline_at <= at:
        raise Conflict(
            f"this question expired at {_clock_time(question.deadline_at)}",
            question_id=question_id,
            state=QuestionState.EXPIRED.value,
        )
    if not may_answer(question, need_message(tx, question.message_id).principal, by):
        whose = "an operator's" if question.who is Who.OPERATORS else "somebody else's"
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
    if args:
        tx.execute("UPDATE questions SET args = ? WHERE question_id = ?", (args, question_id))
    closed = _close(tx, question, QuestionState.ANSWERED, meant, by.label, at)
    for book in desk.approvals:
        book.answered_tx(tx, closed, by)
    tx.after_commit(partial(faults.point, "question.answered"))
    return closed


def expire_tx(desk: Desk, tx: Tx) -> Expired:
    """Close what is past its deadline: questions resume their turn without an answer, queued
    messages fail with a notice. At most 200 of each at once."""
    now = desk.clock.now_ms()
    questions = tx.all(
        "SELECT * FROM questions WHERE state = 'open' AND deadline_at <= ?"
        " ORDER BY deadline_at LIMIT ?",
        (now, _EXPIRE_AT_ONCE),
    )
    for row in questions:
        _close(tx, question_of(row), QuestionState.EXPIRED, "", "", now)  # type: ignore[arg-type]  # Row is a mapping in all but name
    messages = tx.all(
        "SELECT message_id FROM messages WHERE state = 'queued' AND expires_at IS NOT NULL"
        " AND expires_at <= ? ORDER BY expires_at LIMIT ?",
        (now, _EXPIRE_AT_ONCE),
    )
    for row in messages:
        ending.expire_tx(desk, tx, row["message_id"], at=now)
    return Expired(
        tuple(row["question_id"] for row in questions),
        tuple(row["message_id"] for row in messages),
    )


def next_deadline(reader: Reader) -> int | None:
    """The earliest wall time (ms) at which ``expire_tx`` has something to do, or None."""
    times = [
        reader.scalar(
            "SELECT MIN(deadline_at) FROM questions WHERE state = 'open' AND deadline_at > 0"
        ),
        reader.scalar(
            "SELECT MIN(expires_at) FROM messages WHERE state = 'queued' AND expires_at IS NOT NULL"
        ),
    ]
    return min((time for time in times if time is not None), default=None)


def list_of(reader: Reader, state: QuestionState | None, *, limit: int = 100) -> list[Question]:
    """Questions in that state (None: any): open ones oldest first, others newest first."""
    if state is QuestionState.OPEN:
        rows = reader.all(
            "SELECT * FROM questions INDEXED BY questions_open WHERE state = 'open'"
            " ORDER BY question_id LIMIT ?",
            (limit,),
        )
    else:
        rows = reader.all(
            "SELECT * FROM questions WHERE ? IS NULL OR state = ?"
            " ORDER BY question_id DESC LIMIT ?",
            (state, state, limit),
        )
    return [question_of(row) for row in rows]  # type: ignore[arg-type]  # as above


def list_for(
    reader: Reader,
    state: QuestionState | None,
    by: Principal,
    *,
    channel: str,
    conversation: str,
    limit: int = 100,
) -> list[Question]:
    """As ``list_of``, of those alone that are about this one's messages or were asked in the
    conversation, or in one named after it (``<conversation>.<anything>``)."""
    order = "ASC" if state is QuestionState.OPEN else "DESC"
    rows = reader.all(
        "SELECT q.* FROM questions AS q JOIN messages AS m ON m.message_id = q.message_id"  # noqa: S608 - constants
        " WHERE (:state IS NULL OR q.state = :state)"
        " AND ((m.principal ->> '$.kind' = :kind AND m.principal ->> '$.subject' = :subject)"
        "  OR (m.deliver_to ->> '$.kind' = 'chat' AND m.deliver_to ->> '$.channel' = :channel"
        "   AND substr(m.deliver_to ->> '$.conversation' || '.', 1, length(:place)) = :place))"
        f" ORDER BY q.question_id {order} LIMIT :limit",
        {
            "state": state,
            "kind": by.kind.value,
            "subject": by.subject,
            "channel": channel,
            "place": f"{conversation}.",
            "limit": limit,
        },
    )
    return [question_of(row) for row in rows]  # type: ignore[arg-type]  # as above


SEEN_SQL = (
    "(o.state IN ('delivered', 'unknown') OR o.begun_boot <> '' OR o.begun_at > 0"
    " OR o.progress > 0)"
)
"""Whether people may have seen a part ``o`` of the outbox: nobody can mean a question that still
waits for its delivery."""
_SHOWN = (
    "o.kind = 'question' AND o.agent_id = ? AND o.channel = ? AND o.conversation = ?"
    f" AND o.body ->> '$.question_id' = q.question_id AND {SEEN_SQL}"
)


def asked_in(reader: Reader, agent_id: str, channel: str, conversation: str) -> list[Question]:
    """The agent's open questions that people of this conversation may have seen, oldest first."""
    rows = reader.all(
        "SELECT q.* FROM questions AS q JOIN outbox AS o ON o.message_id = q.message_id"  # noqa: S608  # a constant
        f" WHERE q.state = 'open' AND {_SHOWN} ORDER BY q.question_id",
        (agent_id, channel, conversation),
    )
    return [question_of(row) for row in rows]  # type: ignore[arg-type]  # as above


def was_asked_in(
    reader: Reader, question_id: str, agent_id: str, channel: str, conversation: str
) -> bool:
    """Whether that question, open or not, was shown in this conversation."""
    return bool(
        reader.scalar(
            "SELECT 1 FROM questions AS q JOIN outbox AS o ON o.message_id = q.message_id"  # noqa: S608  # a constant
            f" WHERE q.question_id = ? AND {_SHOWN} LIMIT 1",
            (question_id, agent_id, channel, conversation),
        )
    )


def _close(
    tx: Tx, question: Question, state: QuestionState, answer: str, by: str, at: int
) -> Question:
    tx.execute(
        "UPDATE questions SET state = ?, answer = ?, answered_at = ?, answered_by = ?"
        " WHERE question_id = ?",
        (state.value, answer, at, by, question.question_id),
    )
    message = need_message(tx, question.message_id)
    if message.state is State.PARKED:
        check_transition(message.message_id, message.state, State.QUEUED)
        tx.execute("UPDATE messages SET state = 'queued' WHERE seq = ?", (message.seq,))
    drop_pending_tx(tx, question.message_id, kind="question", detail=state.value, at=at)
    closed = find_question(tx, question.question_id)
    _, place = place_of(tx, message.deliver_to, message.agent_id)
    _tell(tx, EventType.QUESTION_CLOSED, closed, at, place)
    touch_asked_tx(tx, message.deliver_to, message.agent_id)
    tx.touch(f"agent:{question.agent_id}")
    tx.touch(f"done:{question.message_id}")
    return closed


def _too_late(question: Question) -> str:
    when = _clock_time(question.answered_at or question.asked_at)
    if question.state is QuestionState.ANSWERED:
        return f"this question was answered by {question.answered_by} at {when}: {question.answer}"
    if question.state is QuestionState.EXPIRED:
        return f"this question expired at {when}"
    return f"this question was withdrawn at {when}, because its work was stopped"


def _clock_time(at_ms: int) -> str:
    return datetime.fromtimestamp(at_ms / 1000, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")


def _tell(
    tx: Tx,
    event: EventType,
    question: Question,
    at: int,
    place: tuple[str, str] | None = None,
) -> None:
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
        },
    )
