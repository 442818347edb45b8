"""Questions: a turn parks until a person or an agent answers, or the deadline passes.

A question is single use. Its row, the parked message and the part shown to the person are one
transaction; so are the answer and the message's return to the queue (P8).
"""

from __future__ import annotations

from functools import partial

from agentsup.kit import faults
from agentsup.mailbox import choices, ending, showing, waits
from agentsup.mailbox.answering import close_tx, tell
from agentsup.mailbox.deliver import put_question_tx
from agentsup.mailbox.notices import place_of
from agentsup.mailbox.rows import encode, find_question, need_message, question_of
from agentsup.mailbox.showing import SEEN_SQL
from agentsup.mailbox.telling import tell_task
from agentsup.mailbox.values import Desk
from agentsup.mailbox.withdrawing import is_moot, put_away_tx
from agentsup.model.engine import Suspended
from agentsup.model.event import EventType
from agentsup.model.message import Kind, Lease, Message, State, check_transition
from agentsup.model.principal import Principal
from agentsup.model.question import ASK_PARENT, UNCERTAIN, Question, QuestionState
from agentsup.store.database import Reader, Tx

__all__ = ["ASIDE", "ask_tx", "list_of", "park_tx"]

ASIDE = "ask_parent"
"""The call of a question that was put from outside the turn it belongs to."""


def park_tx(desk: Desk, tx: Tx, lease: Lease, suspended: Suspended) -> Question:
    """Ask and wait: the message is parked and gives its lease and slot back. It keeps its session,
    unless it is set aside.

    The attempt is not counted. Nobody is asked for the sake of a question that is closed: the
    message ends, and so does the new question. Raises ``LeaseLost``.
    """
    message = ending.held_tx(desk, tx, lease)
    check_transition(message.message_id, message.state, State.PARKED)
    tx.execute(
        "UPDATE messages SET state = 'parked', attempts = ?, lease_until = NULL WHERE seq = ?",
        (max(0, message.attempts - 1), message.seq),
    )
    _set_aside_tx(tx, message, suspended)
    waits.close_tx(tx, message.message_id, as_target=False)
    question = ask_tx(desk, tx, message, suspended, parks=True)
    if is_moot(tx, message):
        put_away_tx(tx, need_message(tx, message.message_id), at=desk.clock.now_ms())
        question = find_question(tx, question.question_id)
    tx.after_commit(partial(faults.point, "question.parked"))
    return question


def _set_aside_tx(tx: Tx, message: Message, suspended: Suspended) -> None:
    """What no chat waits for must not hold up its caller's other work over a call that was interrupted
    (0048): the session goes on, and this message after it."""
    if suspended.kind == UNCERTAIN and message.deliver_to.kind != "chat":
        tx.execute("INSERT OR IGNORE INTO set_aside (seq) VALUES (?)", (message.seq,))
    else:
        tx.execute("DELETE FROM set_aside WHERE seq = ?", (message.seq,))


def ask_tx(
    desk: Desk, tx: Tx, message: Message, suspended: Suspended, *, parks: bool = False
) -> Question:
    """Put a question about a message, parked or at work, to whoever reads what becomes of it.

    Where the call it is about got leave meanwhile, it is answered already.
    """
    at = desk.clock.now_ms()
    deadline_at = None
    if suspended.timeout_s is not None:
        deadline_at = desk.steady.now_ms() + round(suspended.timeout_s * 1000)
    question_id = desk.entropy.new_id("q")
    tx.execute(
        "INSERT INTO questions (question_id, agent_id, session_id, message_id, kind, text,"
        " options, state, asked_at, deadline_at, who, call_id, tool, call, digest, whole)"
        " VALUES (?, ?, ?, ?, ?, ?, ?, 'open', ?, ?, ?, ?, ?, ?, ?, ?)",
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
            suspended.call.document,
            suspended.call.digest,
            suspended.call.whole,
        ),
    )
    question = find_question(tx, question_id)
    place: tuple[str, str] | None = None
    if is_for_parent(message, suspended):
        put_question_tx(desk, tx, message, question_id, suspended, at=at)
    else:
        whose, place = place_of(tx, message)
        showing.show_tx(tx, question, (whose, *place), at=at)
    question = find_question(tx, question_id)
    if parks:
        tell(tx, EventType.MESSAGE_PARKED, question, at)
    tell(tx, EventType.QUESTION_ASKED, question, at, place)
    tell_task(tx, message, at)
    tx.touch(f"agent:{message.agent_id}")
    tx.touch(f"done:{message.message_id}")
    for book in desk.approvals:
        giver = book.asked_tx(tx, question)
        if giver is not None:
            return close_tx(tx, question, QuestionState.ANSWERED, choices.ONCE, giver.label, at)
    return question


def is_for_parent(message: Message, suspended: Suspended) -> bool:
    """Whether the agent whose turn handed the work on is asked: not while that turn waits for this
    very work, and not where only its name was given to it."""
    to = message.deliver_to
    return (
        message.kind is Kind.TASK
        and suspended.kind == ASK_PARENT
        and to.kind == "mailbox"
        and bool(to.session_id)
        and not to.waited
    )


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
        "   AND substr(m.deliver_to ->> '$.conversation' || '.', 1, length(:place)) = :place)"
        "  OR EXISTS (SELECT 1 FROM outbox AS o WHERE o.message_id = q.message_id"
        "   AND o.kind = 'question' AND o.body ->> '$.question_id' = q.question_id"
        "   AND o.channel = :channel"
        "   AND substr(o.conversation || '.', 1, length(:place)) = :place))"
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


def aside(reader: Reader, message_id: str) -> list[Question]:
    """What was asked about a message from outside its turn, oldest first."""
    rows = reader.all(
        "SELECT * FROM questions WHERE message_id = ? AND call_id = ? ORDER BY question_id",
        (message_id, ASIDE),
    )
    return [question_of(row) for row in rows]  # type: ignore[arg-type]  # as above


_SHOWN = (
    "o.kind = 'question' AND o.agent_id = ? AND o.channel = ? AND o.conversation = ?"
    f" AND o.body ->> '$.question_id' = q.question_id AND {SEEN_SQL}"
)


def asked_in(reader: Reader, agent_id: str, channel: str, conversation: str) -> list[Question]:
    """The agent's open questions that people of this conversation may have seen, oldest first."""
    rows = reader.all(
        "SELECT DISTINCT q.* FROM questions AS q JOIN outbox AS o ON o.message_id = q.message_id"  # noqa: S608  # a constant
        f" WHERE q.state = 'open' AND {_SHOWN} ORDER BY q.question_id",
        (agent_id, channel, conversation),
    )
    return [question_of(row) for row in rows]  # type: ignore[arg-type]  # as above


def places_of(reader: Reader, question: Question) -> set[tuple[str, str]]:
    """The channels and conversations in which that question was put to people."""
    rows = reader.all(
        "SELECT channel, conversation FROM outbox WHERE message_id = ? AND kind = 'question'"
        " AND body ->> '$.question_id' = ?",
        (question.message_id, question.question_id),
    )
    return {(row["channel"], row["conversation"]) for row in rows}


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
