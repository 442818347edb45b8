"""The segments of a turn: each run of its engine, from which a later one resumes.

The first is begun with the claim of its message, and undone with the claim.
"""

from __future__ import annotations

from typing import Any

from agentsup.model.engine import Resume
from agentsup.model.errors import LeaseLost
from agentsup.model.question import Decision, QuestionState, joined_answer
from agentsup.store import Reader, Tx


def begin_first_tx(tx: Tx, message_id: str, fence: int, at: int) -> int:
    """Begin the first segment of a message, in the transaction of its first lease; its number."""
    tx.execute(
        "INSERT INTO segments (message_id, segment_no, fence, state, started_at)"
        " VALUES (?, 1, ?, 'running', ?)",
        (message_id, fence, at),
    )
    return 1


def withdraw_tx(tx: Tx, message_id: str, segment_no: int) -> None:
    """Undo the beginning of a segment whose engine was not started after all.

    Else the next turn on the message would be taken for one that was interrupted.
    """
    tx.execute(
        "DELETE FROM segments WHERE message_id = ? AND segment_no = ? AND state = 'running'",
        (message_id, segment_no),
    )


def begin_tx(tx: Tx, message_id: str, fence: int, at: int) -> int:
    """Begin a segment. A running one becomes lost, a suspended one resumed."""
    check_lease(tx, message_id, fence)
    tx.execute(
        "UPDATE segments SET ended_at = CASE state WHEN 'running' THEN ? ELSE ended_at END,"
        " state = CASE state WHEN 'running' THEN 'lost' ELSE 'resumed' END"
        " WHERE message_id = ? AND state IN ('running', 'suspended')",
        (at, message_id),
    )
    number = 1 + int(
        tx.scalar(
            "SELECT coalesce(max(segment_no), 0) FROM segments WHERE message_id = ?",
            (message_id,),
        )
    )
    tx.execute(
        "INSERT INTO segments (message_id, segment_no, fence, state, started_at)"
        " VALUES (?, ?, ?, 'running', ?)",
        (message_id, number, fence, at),
    )
    return number


def end_tx(
    tx: Tx,
    message_id: str,
    segment_no: int,
    at: int,
    *,
    engine: str = "",
    model: str = "",
) -> None:
    """End the segment, which ran with ``engine`` and ``model``, because its turn has ended.
    Raises ``LeaseLost`` if it no longer runs."""
    changed = tx.execute(
        "UPDATE segments SET state = 'ended', ended_at = ?, engine = ?, model = ?"
        " WHERE message_id = ? AND segment_no = ? AND state = 'running'",
        (at, engine, model, message_id, segment_no),
    ).rowcount
    if not changed:
        raise _segment_gone(message_id, segment_no)


def suspend_tx(
    tx: Tx,
    message_id: str,
    segment_no: int,
    checkpoint: bytes | None,
    question_id: str,
    at: int,
    *,
    engine: str = "",
    model: str = "",
) -> None:
    """Suspend the segment, as ``end_tx``, until an answer."""
    changed = tx.execute(
        "UPDATE segments SET state = 'suspended', checkpoint = ?, question_id = ?,"
        " ended_at = ?, engine = ?, model = ?"
        " WHERE message_id = ? AND segment_no = ? AND state = 'running'",
        (checkpoint, question_id, at, engine, model, message_id, segment_no),
    ).rowcount
    if not changed:
        raise _segment_gone(message_id, segment_no)


def resume_of(reader: Reader, message_id: str) -> Resume | None:
    """The state from which a message's next segment resumes, or None if it had no segment yet.

    It has the newest checkpoint, with the answer to the question that it waited for, also if later
    segments were lost in a crash. Without a checkpoint the turn starts again from the beginning, and
    finished calls are taken from the journal.
    """
    row = reader.one(
        "SELECT s.checkpoint, q.state AS question_state, q.decision, q.answer"
        " FROM segments s LEFT JOIN questions q ON q.question_id = s.question_id"
        " WHERE s.message_id = ?"
        " ORDER BY s.checkpoint IS NULL, s.segment_no DESC LIMIT 1",
        (message_id,),
    )
    if row is None:
        return None
    if row["checkpoint"] is None:
        return Resume()
    return Resume(row["checkpoint"], answer_of(row))


def check_lease(tx: Tx, message_id: str, fence: int) -> None:
    """Raise ``LeaseLost`` unless the message is leased under ``fence``."""
    row = tx.one("SELECT state, fence FROM messages WHERE message_id = ?", (message_id,))
    if row is None or row["state"] != "leased" or row["fence"] != fence:
        found = "gone" if row is None else f"{row['state']} with fence {row['fence']}"
        raise LeaseLost(
            f"message {message_id} is {found}; the work under fence {fence} must stop",
            message_id=message_id,
            fence=fence,
        )


def answer_of(row: Any) -> str | None:
    """The answer to the row's question: "" if it was closed without, None if there is none."""
    state = row["question_state"]
    if state == QuestionState.ANSWERED:
        return joined_answer(Decision(row["decision"]), row["answer"])
    return "" if state in (QuestionState.EXPIRED, QuestionState.CANCELLED) else None


def _segment_gone(message_id: str, segment_no: int) -> LeaseLost:
    return LeaseLost(
        f"segment {segment_no} of message {message_id} no longer runs; its end is not recorded",
        message_id=message_id,
        segment_no=segment_no,
    )
