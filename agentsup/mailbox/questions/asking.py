"""Questions: a turn parks until a person or an agent answers, or the deadline passes.

A question is single use. Its row, the parked message and the part shown to the person are one
transaction; so are the answer and the message's return to the queue (P8).
"""

from __future__ import annotations

from functools import partial

from agentsup.kit import faults
from agentsup.mailbox.delivery.notices import conversation_of_message
from agentsup.mailbox.lifecycle import ending
from agentsup.mailbox.lifecycle.answering import answer_tx, close_question_tx, emit_question_event
from agentsup.mailbox.lifecycle.closing import end_question_message_tx, is_moot
from agentsup.mailbox.lifecycle.results import put_question_tx
from agentsup.mailbox.messages import answer_options
from agentsup.mailbox.messages.events import emit_task_event
from agentsup.mailbox.messages.rows import encode, find_question, need_message, question_of
from agentsup.mailbox.questions import plain_answer, rendering
from agentsup.mailbox.questions.plain_answer import PlainAnswer
from agentsup.mailbox.queue import waits
from agentsup.mailbox.service import Service, in_reader, in_writer
from agentsup.model.engine import Suspended
from agentsup.model.errors import Conflict, Forbidden
from agentsup.model.event import EventType
from agentsup.model.message import Lease, Message, MessageKind, MessageState, check_transition
from agentsup.model.principal import Principal
from agentsup.model.question import (
    ASK_PARENT,
    NOTHING_SEEN,
    UNCERTAIN,
    ClosedReason,
    Question,
    QuestionState,
    SeenCall,
)
from agentsup.store import Reader, Tx

OUTSIDE_TURN = "ask_parent"
"""The ``call_id`` of questions that were asked from outside the turn they belong to."""


class Questions(Service):
    """Asking, answering and reading questions."""

    def park_tx(self, tx: Tx, lease: Lease, suspended: Suspended) -> Question:
        """Ask and wait: the message is parked and gives its lease and slot back.

        It holds its session while it waits, unless it is exempt (``_exempt_from_session_tx``). The
        attempt is not counted. A message that puts a closed question ends instead, and the new
        question with it. Raises ``LeaseLost``.
        """
        message = ending.leased_tx(self.context, tx, lease)
        check_transition(message.message_id, message.state, MessageState.PARKED)
        tx.execute(
            "UPDATE messages SET state = 'parked', attempts = ?, lease_until = NULL WHERE seq = ?",
            (max(0, message.attempts - 1), message.seq),
        )
        _exempt_from_session_tx(tx, message, suspended)
        waits.end_waits_tx(tx, message.message_id, as_target=False)
        question = self.ask_tx(tx, message, suspended, parks=True)
        if is_moot(tx, message):
            parked, at = need_message(tx, message.message_id), self.context.clock.now_ms()
            end_question_message_tx(self.context, tx, parked, at=at)
            question = find_question(tx, question.question_id)
        tx.after_commit(partial(faults.point, "question.parked"))
        return question

    def ask_tx(
        self, tx: Tx, message: Message, suspended: Suspended, *, parks: bool = False
    ) -> Question:
        """Ask a question about a parked or running message; it goes to those who get its result.

        If the call that it is about was approved meanwhile, the question is returned answered.
        """
        ctx, at = self.context, self.context.clock.now_ms()
        deadline_at = None
        if suspended.timeout_s is not None:
            deadline_at = ctx.steady.now_ms() + round(suspended.timeout_s * 1000)
        question_id = ctx.entropy.new_id("q")
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
        conversation: tuple[str, str] | None = None
        if is_for_parent(message, suspended):
            put_question_tx(ctx, tx, message, question_id, suspended, at=at)
        else:
            whose, conversation = conversation_of_message(tx, message, ctx.role_now)
            rendering.show_tx(tx, question, (whose, *conversation), at=at)
        question = find_question(tx, question_id)
        if parks:
            emit_question_event(tx, EventType.MESSAGE_PARKED, question, at)
        emit_question_event(tx, EventType.QUESTION_ASKED, question, at, conversation)
        emit_task_event(tx, message, at)
        tx.touch(f"agent:{message.agent_id}")
        tx.touch(f"done:{message.message_id}")
        for observer in ctx.question_observers:
            giver = observer.asked_tx(ctx, tx, question)
            if giver is not None:
                return close_question_tx(
                    ctx, tx, question, ClosedReason.ANSWERED, giver.label, at, answer_options.ONCE
                )
        return question

    @in_writer("mailbox.answer")
    def answer(
        self,
        tx: Tx,
        question_id: str,
        answer: str,
        by: Principal,
        args: str = "",
        seen: SeenCall = NOTHING_SEEN,
    ) -> Question:
        """Answer a question, once. Raises what ``mailbox.lifecycle.answering.answer_tx`` raises."""
        return answer_tx(self.context, tx, question_id, answer, by, args, seen)

    async def answer_plain(self, said: PlainAnswer) -> Question | None:
        """Use a text of a private conversation as an answer; None if it is a message instead."""
        # Most texts are no answer, and to know that needs no write transaction.
        if not await self.database.read(plain_answer.is_answer, said, name="mailbox.plain_answer"):
            return None
        try:
            return await self.database.write(
                lambda tx: plain_answer.answer_tx(self.context, tx, said),
                name="mailbox.plain_answer",
            )
        except (Conflict, Forbidden):
            return None  # closed in this very moment, or somebody else's to answer

    @in_reader("mailbox.question")
    def get(self, reader: Reader, question_id: str) -> Question:
        """One question. Raises ``NotFound``."""
        return find_question(reader, question_id)

    @in_reader("mailbox.questions")
    def list(
        self,
        reader: Reader,
        state: QuestionState | None = QuestionState.OPEN,
        *,
        limit: int = 100,
    ) -> list[Question]:
        """Questions in that state (None: any): open ones oldest first, others newest first."""
        if state is QuestionState.OPEN:
            return reader.values(
                question_of,
                "SELECT * FROM questions INDEXED BY questions_open WHERE state = 'open'"
                " ORDER BY question_id LIMIT ?",
                (limit,),
            )
        return reader.values(
            question_of,
            "SELECT * FROM questions WHERE ? IS NULL OR state = ? ORDER BY question_id DESC LIMIT ?",
            (state, state, limit),
        )


def _exempt_from_session_tx(tx: Tx, message: Message, suspended: Suspended) -> None:
    """Let the session go on while a message waits that nobody in a chat waits for.

    This is only for a question about an interrupted call (0048). Any other parked message holds its
    session.
    """
    if suspended.kind == UNCERTAIN and not message.is_said_in_chat:
        tx.execute("INSERT OR IGNORE INTO set_aside (seq) VALUES (?)", (message.seq,))
    else:
        tx.execute("DELETE FROM set_aside WHERE seq = ?", (message.seq,))


def is_for_parent(message: Message, suspended: Suspended) -> bool:
    """Whether the agent whose turn delegated the work is asked.

    It is not asked while that turn waits for this very work, nor if ``deliver_to`` has no session
    of it.
    """
    to = message.deliver_to
    return (
        message.kind is MessageKind.TASK
        and suspended.kind == ASK_PARENT
        and to.kind == "mailbox"
        and bool(to.session_id)
        and not to.waited
    )


def list_for(
    reader: Reader,
    state: QuestionState | None,
    by: Principal,
    *,
    channel: str,
    conversation: str,
    limit: int = 100,
) -> list[Question]:
    """As ``list_of``, for one principal in a conversation.

    Listed are only questions about messages of ``by``, and those that were asked in the
    conversation or in one named after it (``<conversation>.<anything>``).
    """
    order = "ASC" if state is QuestionState.OPEN else "DESC"
    return reader.values(
        question_of,
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


def open_of(reader: Reader, message_id: str) -> list[Question]:
    """The open questions of a message, oldest first."""
    return reader.values(
        question_of,
        "SELECT * FROM questions WHERE message_id = ? AND state = 'open' ORDER BY question_id",
        (message_id,),
    )


def open_approvals(
    reader: Reader, agent_id: str, permission: str, message_id: str = ""
) -> list[Question]:
    """Open questions about calls of the agent that need ``permission``; of one message, if given."""
    return reader.values(
        question_of,
        "SELECT * FROM questions WHERE state = 'open' AND kind = 'approval'"
        " AND agent_id = ?1 AND tool = ?2 AND (?3 = '' OR message_id = ?3)",
        (agent_id, permission, message_id),
    )


def of_call(reader: Reader, message_id: str, call_id: str) -> list[Question]:
    """The questions that one call of a message has asked, oldest first."""
    return reader.values(
        question_of,
        "SELECT * FROM questions WHERE message_id = ? AND call_id = ? ORDER BY question_id",
        (message_id, call_id),
    )


def questions_outside_turn(reader: Reader, message_id: str) -> list[Question]:
    """The questions about a message that were asked from outside its turn, oldest first."""
    return of_call(reader, message_id, OUTSIDE_TURN)
