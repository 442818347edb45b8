"""Messages that nobody is to work on any more, and that no turn has begun: taken out of the queue."""

from __future__ import annotations

from collections.abc import Sequence

from agentsup.mailbox.rows import message_of
from agentsup.mailbox.telling import tell
from agentsup.model.event import EventType
from agentsup.model.message import Message, State, check_transition
from agentsup.store.database import Tx

__all__ = ["cancel_queued_tx", "take_back_tx"]


def cancel_queued_tx(tx: Tx, messages: Sequence[Message], *, at: int, code: str, text: str) -> None:
    """``ending.close_tx`` for many queued messages at once: a stop must be quick over a full queue."""
    for message in messages:
        assert message.state is State.QUEUED, "only queued messages have nothing else to close"
    check_transition("", State.QUEUED, State.CANCELLED)
    tx.executemany(
        "UPDATE messages SET state = 'cancelled', error_code = ?, error_text = ?, finished_at = ?"
        " WHERE seq = ?",
        [(code, text, at, message.seq) for message in messages],
    )
    tx.executemany(
        "DELETE FROM waits WHERE target_id = ?", [(message.message_id,) for message in messages]
    )
    for message in messages:
        facts = {"from": State.QUEUED.value, "code": code, "text": text}
        tell(tx, EventType.MESSAGE_CANCELLED, message, at, facts)
        tx.touch(f"done:{message.message_id}")
        tx.touch(f"agent:{message.agent_id}")


def take_back_tx(tx: Tx, question_id: str, *, at: int) -> None:
    """The question is closed: an agent that was to be asked it need not answer, unless it is at it."""
    row = tx.one(
        "SELECT m.* FROM questions q JOIN messages m ON m.message_id = q.put_as"
        " WHERE q.question_id = ? AND q.put_as <> '' AND m.state = 'queued'",
        (question_id,),
    )
    if row is not None:
        message = message_of(row)  # type: ignore[arg-type]  # Row is a mapping in all but name
        text = "the question has been closed"
        cancel_queued_tx(tx, [message], at=at, code="taken_back", text=text)
