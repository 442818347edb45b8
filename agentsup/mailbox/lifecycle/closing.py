"""Finishing a message with all that depends on it, and withdrawing questions to agents.

A question to an agent is a message of its own. Once the question is closed, nobody needs an answer:
the message ends. If a turn works on it, that turn goes on, but no other turn follows.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

from agentsup.mailbox.delivery.notices import drop_pending_tx, touch_asked_tx
from agentsup.mailbox.messages.events import emit_message_event
from agentsup.mailbox.messages.rows import OPEN_SQL, message_of
from agentsup.mailbox.messages.values import MailboxContext, MessageEnd
from agentsup.mailbox.queue import waits
from agentsup.model.event import EventType
from agentsup.model.message import (
    Message,
    MessageKind,
    MessageOutcome,
    MessageState,
    check_transition,
)
from agentsup.store import Reader, Tx


def finish_tx(
    ctx: MailboxContext, tx: Tx, message: Message, end: MessageEnd, *, at: int, **facts: Any
) -> None:
    """Write the end of a message; end its waits, its questions and its hold on the session.

    Every message leaves by this function, or by ``cancel_queued_tx``. ``facts`` are for its event.
    """
    check_transition(message.message_id, message.state, end.state)
    tx.execute(
        "UPDATE messages SET state = ?, outcome = ?, result_text = ?, error_code = ?,"
        " error_text = ?, finished_at = ?, lease_until = NULL WHERE seq = ?",
        (end.state, end.outcome, end.answer, end.code, end.text, at, message.seq),
    )
    waits.end_waits_tx(tx, message.message_id)
    if message.state in (MessageState.PARKED, MessageState.LEASED):
        _close_questions_tx(ctx, tx, message, at=at)
    if message.kind is MessageKind.TASK and end.state is MessageState.CANCELLED:
        cancel_waiting_notes_tx(ctx, tx, message, end, at=at)
    _report_tx(ctx, tx, message, end, at, facts)


_EVENTS = {
    MessageState.DONE: EventType.MESSAGE_DONE,
    MessageState.DEAD: EventType.MESSAGE_DEAD,
    MessageState.CANCELLED: EventType.MESSAGE_CANCELLED,
}


def _report_tx(
    ctx: MailboxContext, tx: Tx, message: Message, end: MessageEnd, at: int, facts: dict[str, Any]
) -> None:
    """Count the end, write its event, and wake who waits for it."""
    if message.state is not MessageState.DEAD:  # one that is dropped was not open any more
        ctx.loads.change_tx(tx, message.agent_id, -1, at=at)
    facts = {"from": message.state.value, **facts}
    if end.outcome is not None:
        facts["outcome"] = end.outcome.value
    if end.code:
        facts |= {"code": end.code, "text": end.text}
    emit_message_event(tx, _EVENTS[end.state], message, at, facts)
    tx.touch(f"done:{message.message_id}", partial(end.of, message, at))
    tx.touch(f"agent:{message.agent_id}")


def queued_for(reader: Reader, turn: Message, kind: MessageKind, in_reply_to: str) -> list[Message]:
    """Queued messages of that kind, in the session of ``turn``, about the message ``in_reply_to``."""
    return reader.values(
        message_of,
        f"SELECT * FROM messages WHERE agent_id = ? AND session_id = ? AND {OPEN_SQL}"  # noqa: S608 - a constant
        " AND state = 'queued' AND kind = ? AND in_reply_to = ? ORDER BY seq",
        (turn.agent_id, turn.session_id, kind.value, in_reply_to),
    )


def collect_tx(
    ctx: MailboxContext, tx: Tx, messages: Sequence[Message], by: Message, *, at: int
) -> None:
    """Close queued messages whose text the turn on ``by`` has read."""
    text = f"read by the turn on {by.message_id}"
    end = MessageEnd(MessageState.DONE, "collected", text, MessageOutcome.OK)
    for message in messages:
        finish_tx(ctx, tx, message, end, at=at)


def cancel_queued_tx(
    ctx: MailboxContext, tx: Tx, messages: Sequence[Message], end: MessageEnd, *, at: int
) -> None:
    """``finish_tx`` for many queued messages at once: a stop must be quick over a full queue."""
    for message in messages:
        assert message.state is MessageState.QUEUED, (
            "only queued messages have nothing else to close"
        )
    check_transition("", MessageState.QUEUED, MessageState.CANCELLED)
    tx.executemany(
        "UPDATE messages SET state = 'cancelled', error_code = ?, error_text = ?, finished_at = ?"
        " WHERE seq = ?",
        [(end.code, end.text, at, message.seq) for message in messages],
    )
    tx.executemany(
        "DELETE FROM waits WHERE target_id = ?", [(message.message_id,) for message in messages]
    )
    for message in messages:
        _report_tx(ctx, tx, message, end, at, {})


def cancel_waiting_notes_tx(
    ctx: MailboxContext, tx: Tx, run: Message, end: MessageEnd, *, at: int
) -> None:
    """Cancel the notes that are queued for a run that is ended early: none begins its own turn."""
    queued = queued_for(tx, run, MessageKind.DIRECTIVE, run.message_id)
    notes = [message for message in queued if message.deliver_to.kind != "question"]
    cancel_queued_tx(ctx, tx, notes, end, at=at)


def _close_questions_tx(ctx: MailboxContext, tx: Tx, message: Message, *, at: int) -> None:
    """Cancel the open questions of a message that has ended, shown or not."""
    rows = tx.all(
        "UPDATE questions SET state = 'cancelled', closed_reason = 'withdrawn', answered_at = ?"
        " WHERE message_id = ? AND state = 'open' RETURNING question_id",
        (at, message.message_id),
    )
    for row in rows:
        emit_message_event(
            tx,
            EventType.QUESTION_CLOSED,
            message,
            at,
            {"question_id": row["question_id"], "state": "cancelled"},
        )
        touch_asked_tx(tx, message)
        withdraw_agent_question_tx(ctx, tx, row["question_id"], at=at)
    if rows:
        drop_pending_tx(tx, message.message_id, kind="question", detail="cancelled", at=at)


def withdraw_agent_question_tx(ctx: MailboxContext, tx: Tx, question_id: str, *, at: int) -> None:
    """Withdraw a closed question from the agent that was to answer it, unless its turn runs.

    If that turn is parked on a question of its own, that question is closed too.
    """
    message = tx.value(
        message_of,
        "SELECT m.* FROM questions q JOIN messages m ON m.message_id = q.put_as"
        " WHERE q.question_id = ? AND q.put_as <> '' AND m.state IN ('queued', 'parked')",
        (question_id,),
    )
    if message is not None:
        end_question_message_tx(ctx, tx, message, at=at)


def is_moot(reader: Reader, message: Message) -> bool:
    """Whether the message puts a closed question to an agent, so that a turn would be useless."""
    to = message.deliver_to
    return to.kind == "question" and not reader.scalar(
        "SELECT 1 FROM questions WHERE question_id = ? AND state = 'open'", (to.question_id,)
    )


def end_moot_tx(ctx: MailboxContext, tx: Tx, message: Message, *, at: int) -> bool:
    """Cancel the message if it puts a closed question to an agent; whether it did."""
    if not is_moot(tx, message):
        return False
    end_question_message_tx(ctx, tx, message, at=at)
    return True


def end_question_message_tx(ctx: MailboxContext, tx: Tx, message: Message, *, at: int) -> None:
    """Cancel a message that puts a closed question: the asker has the answer, or needs none."""
    end = MessageEnd(MessageState.CANCELLED, "taken_back", "the question has been closed")
    finish_tx(ctx, tx, message, end, at=at)
