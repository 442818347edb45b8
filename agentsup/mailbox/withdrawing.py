"""The end of a message's row and of what hung on it; and questions to agents, taken back.

A question that was put to an agent is a message of its own. Once the question is closed, nobody needs
an answer: the message ends, unless a turn is at it, and then no other turn follows that one.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from agentsup.mailbox import waits
from agentsup.mailbox.notices import drop_pending_tx, touch_asked_tx
from agentsup.mailbox.rows import OPEN_SQL, message_of
from agentsup.mailbox.telling import tell
from agentsup.model.event import EventType
from agentsup.model.message import Kind, Message, Outcome, State, check_transition
from agentsup.store.database import Reader, Tx

__all__ = [
    "cancel_queued_tx",
    "close_tx",
    "is_moot",
    "put_away_tx",
    "take_back_tx",
    "take_notes_back_tx",
]


def close_tx(
    tx: Tx,
    message: Message,
    state: State,
    *,
    at: int,
    outcome: Outcome | None = None,
    result_text: str = "",
    code: str = "",
    text: str = "",
    data: dict[str, Any] | None = None,
) -> None:
    """Write the end of a message, and end what hung on it: waits, questions, the session's hold."""
    check_transition(message.message_id, message.state, state)
    tx.execute(
        "UPDATE messages SET state = ?, outcome = ?, result_text = ?, error_code = ?,"
        " error_text = ?, finished_at = ?, lease_until = NULL WHERE seq = ?",
        (
            state.value,
            None if outcome is None else outcome.value,
            result_text,
            code,
            text,
            at,
            message.seq,
        ),
    )
    waits.close_tx(tx, message.message_id)
    if message.state in (State.PARKED, State.LEASED):
        _close_questions_tx(tx, message, at=at)
    if message.kind is Kind.TASK and state is State.CANCELLED:
        take_notes_back_tx(tx, message, at=at, code=code, text=text)
    event = {
        State.DONE: EventType.MESSAGE_DONE,
        State.DEAD: EventType.MESSAGE_DEAD,
        State.CANCELLED: EventType.MESSAGE_CANCELLED,
    }[state]
    facts: dict[str, Any] = {"from": message.state.value, **(data or {})}
    if outcome is not None:
        facts["outcome"] = outcome.value
    if code:
        facts |= {"code": code, "text": text}
    tell(tx, event, message, at, facts)
    tx.touch(f"done:{message.message_id}")
    tx.touch(f"agent:{message.agent_id}")


def cancel_queued_tx(tx: Tx, messages: Sequence[Message], *, at: int, code: str, text: str) -> None:
    """``close_tx`` for many queued messages at once: a stop must be quick over a full queue."""
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


def take_notes_back_tx(tx: Tx, run: Message, *, at: int, code: str, text: str) -> None:
    """The run is ended before its time: what it was to be told besides begins no turn of its own."""
    rows = tx.all(
        f"SELECT * FROM messages WHERE agent_id = ? AND session_id = ? AND {OPEN_SQL}"  # noqa: S608 - a constant
        " AND state = 'queued' AND kind = 'directive' AND in_reply_to = ?"
        " AND deliver_to ->> '$.kind' <> 'question'",
        (run.agent_id, run.session_id, run.message_id),
    )
    notes = [message_of(row) for row in rows]  # type: ignore[arg-type]  # Row is a mapping in all but name
    cancel_queued_tx(tx, notes, at=at, code=code, text=text)


def _close_questions_tx(tx: Tx, message: Message, *, at: int) -> None:
    """The message ended without an answer: its open questions are void, shown or not."""
    rows = tx.all(
        "UPDATE questions SET state = 'cancelled', answered_at = ?"
        " WHERE message_id = ? AND state = 'open' RETURNING question_id",
        (at, message.message_id),
    )
    for row in rows:
        tell(
            tx,
            EventType.QUESTION_CLOSED,
            message,
            at,
            {"question_id": row["question_id"], "state": "cancelled"},
        )
        touch_asked_tx(tx, message)
        take_back_tx(tx, row["question_id"], at=at)
    if rows:
        drop_pending_tx(tx, message.message_id, kind="question", detail="cancelled", at=at)


def take_back_tx(tx: Tx, question_id: str, *, at: int) -> None:
    """The question is closed: an agent that was to be asked it need not answer, unless it is at it.
    Where it waits itself for what it has asked, nobody need answer that either."""
    row = tx.one(
        "SELECT m.* FROM questions q JOIN messages m ON m.message_id = q.put_as"
        " WHERE q.question_id = ? AND q.put_as <> '' AND m.state IN ('queued', 'parked')",
        (question_id,),
    )
    if row is not None:
        put_away_tx(tx, message_of(row), at=at)  # type: ignore[arg-type]  # Row is a mapping in all but name


def is_moot(reader: Reader, message: Message) -> bool:
    """Whether it puts a question to an agent that is closed: another turn would be for nothing."""
    to = message.deliver_to
    return to.kind == "question" and not reader.scalar(
        "SELECT 1 FROM questions WHERE question_id = ? AND state = 'open'", (to.question_id,)
    )


def put_away_tx(tx: Tx, message: Message, *, at: int) -> None:
    """End a message that puts a closed question. Whoever asked has the answer, or needs none."""
    text = "the question has been closed"
    close_tx(tx, message, State.CANCELLED, at=at, code="taken_back", text=text)
