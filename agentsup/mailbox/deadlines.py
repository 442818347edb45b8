"""Deadlines and pauses in the store: what is past them ends, and they go with a step of the clock.

All of it is by the steady clock of this life. What an earlier life has stored was told by another
clock, which may have been wrong, as this one may be until it is set: nothing of it ends or moves before
the clock has settled, and then nothing of it lies further ahead than it ever can (P1, P8).
"""

from __future__ import annotations

import json
import logging
from collections.abc import Iterable
from functools import partial
from typing import Final

from agentsup.mailbox import ending
from agentsup.mailbox.answering import close_tx
from agentsup.mailbox.outbox import topic_of
from agentsup.mailbox.rows import OPEN_SQL, question_of
from agentsup.mailbox.steady import Earlier
from agentsup.mailbox.values import Desk, Expired
from agentsup.mailbox.withdrawing import take_back_tx
from agentsup.model.question import QuestionState
from agentsup.store.database import Reader, Tx

__all__ = ["LONGEST_MS", "LONGEST_PAUSE_MS", "expire_tx", "left_by_earlier", "next_deadline"]

LONGEST_MS: Final = 366 * 86_400_000
"""No deadline is set further ahead."""
LONGEST_PAUSE_MS: Final = 25 * 3_600_000
"""No pause before another attempt is longer: a provider is asked again after a day."""
_EXPIRE_AT_ONCE = 200
_log = logging.getLogger(__name__)


def expire_tx(desk: Desk, tx: Tx) -> Expired:
    """Close what is past its deadline: questions resume their turn without an answer, queued
    messages fail with a notice. At most 200 of each at once.

    Where the wall was stepped, the stored times go with it first; where it has settled after a
    start, it decides about those of before.
    """
    _follow_tx(desk, tx)
    _settle_tx(desk, tx)
    now, earlier = desk.steady.now_ms(), desk.steady.earlier
    questions = tx.all(
        "SELECT * FROM questions INDEXED BY questions_open"
        " WHERE state = 'open' AND deadline_at <= ? AND rowid > ? ORDER BY deadline_at LIMIT ?",
        (now, earlier.questions, _EXPIRE_AT_ONCE),
    )
    for row in questions:
        close_tx(tx, question_of(row), QuestionState.EXPIRED, "", "", now)  # type: ignore[arg-type]  # Row is a mapping in all but name
        take_back_tx(tx, row["question_id"], at=now)
    messages = tx.all(
        "SELECT message_id FROM messages INDEXED BY messages_expiry"
        " WHERE state = 'queued' AND expires_at IS NOT NULL AND expires_at <= ? AND seq > ?"
        " ORDER BY expires_at LIMIT ?",
        (now, earlier.messages, _EXPIRE_AT_ONCE),
    )
    for row in messages:
        ending.expire_tx(desk, tx, row["message_id"], at=now)
    return Expired(
        tuple(row["question_id"] for row in questions),
        tuple(row["message_id"] for row in messages),
    )


def _follow_tx(desk: Desk, tx: Tx) -> None:
    """Let the stored times of this life follow a step of the wall, and its clock with them: what
    else is written in the same commit starts from there."""
    by, earlier = desk.steady.step_ms(), desk.steady.earlier
    if not by:
        return
    tx.execute(
        "UPDATE questions INDEXED BY questions_open SET deadline_at = deadline_at + ?"
        " WHERE state = 'open' AND deadline_at IS NOT NULL AND rowid > ?",
        (by, earlier.questions),
    )
    tx.execute(
        "UPDATE messages INDEXED BY messages_open SET expires_at = expires_at + ?"  # noqa: S608 - a constant
        f" WHERE {OPEN_SQL} AND expires_at IS NOT NULL AND seq > ?",
        (by, earlier.messages),
    )
    # A pause is set by the life that has leased the message last.
    moved = tx.all(
        "UPDATE messages INDEXED BY messages_open SET not_before = max(1, not_before + :by)"  # noqa: S608 - a constant
        f" WHERE {OPEN_SQL} AND not_before > 0"
        " AND (seq > :earlier OR lease_boot = :boot) RETURNING agent_id",
        {"by": by, "earlier": earlier.messages, "boot": desk.boot_id},
    )
    _wake_agents_tx(tx, (row["agent_id"] for row in moved))
    _wake_late_tx(tx, earlier)
    parts = tx.all(
        "UPDATE outbox SET not_before = max(1, not_before + ?)"
        " WHERE state = 'pending' AND not_before > 0 AND (outbox_id, not_before) NOT IN"
        " (SELECT value ->> 0, value ->> 1 FROM json_each(?)) RETURNING channel",
        (by, json.dumps(earlier.parts)),
    )
    _wake_channels_tx(tx, (row["channel"] for row in parts))
    desk.steady.follow(by)
    tx.after_rollback(partial(desk.steady.follow, -by))
    tx.after_commit(
        partial(
            _log.warning,
            "the clock was stepped by %+.0f s; deadlines and pauses went with it",
            by / 1000,
        )
    )


def _settle_tx(desk: Desk, tx: Tx) -> None:
    """The wall has had time to be set: it decides about what earlier lives have left.

    A deadline comes no later than if the question or the message had come now, and a pause that no
    clock of before can have meant is over. From then on all of it is this life's.
    """
    if not desk.steady.can_settle:
        return
    now, earlier = desk.steady.now_ms(), desk.steady.earlier
    about = {"now": now, "longest": LONGEST_MS}
    tx.execute(
        "UPDATE questions INDEXED BY questions_open SET deadline_at = :now + min(:longest,"
        "  iif(deadline_at > asked_at, deadline_at - asked_at, :longest))"
        " WHERE state = 'open' AND rowid <= :earlier AND deadline_at - :now > min(:longest,"
        "  iif(deadline_at > asked_at, deadline_at - asked_at, :longest))",
        {**about, "earlier": earlier.questions},
    )
    tx.execute(
        "UPDATE messages INDEXED BY messages_open SET expires_at = :now + min(:longest,"  # noqa: S608 - a constant
        "  iif(expires_at > accepted_at, expires_at - accepted_at, :longest))"
        f" WHERE {OPEN_SQL} AND seq <= :earlier AND expires_at - :now > min(:longest,"
        "  iif(expires_at > accepted_at, expires_at - accepted_at, :longest))",
        {**about, "earlier": earlier.messages},
    )
    over = {"now": now, "beyond": now + LONGEST_PAUSE_MS}
    messages = tx.all(
        "UPDATE messages INDEXED BY messages_open SET not_before = :now"  # noqa: S608 - a constant
        f" WHERE {OPEN_SQL} AND not_before > :beyond AND fence > 0 RETURNING agent_id",
        over,
    )
    _wake_agents_tx(tx, (row["agent_id"] for row in messages))
    _wake_late_tx(tx, earlier)
    parts = tx.all(
        "UPDATE outbox SET not_before = :now WHERE state = 'pending' AND not_before > :beyond"
        " RETURNING channel",
        over,
    )
    _wake_channels_tx(tx, (row["channel"] for row in parts))
    desk.steady.settle()
    tx.after_rollback(partial(desk.steady.settle, earlier))


def _wake_late_tx(tx: Tx, earlier: Earlier) -> None:
    """Messages that were late by the clock, and were not begun for it, may be in time by this one."""
    late = tx.all(
        "SELECT agent_id FROM messages INDEXED BY messages_expiry"
        " WHERE state = 'queued' AND expires_at IS NOT NULL AND seq <= ?",
        (earlier.messages,),
    )
    _wake_agents_tx(tx, (row["agent_id"] for row in late))


def _wake_agents_tx(tx: Tx, agent_ids: Iterable[str]) -> None:
    for agent_id in agent_ids:
        tx.touch(f"agent:{agent_id}")


def _wake_channels_tx(tx: Tx, channels: Iterable[str]) -> None:
    for channel in channels:
        tx.touch(topic_of(channel))


def left_by_earlier(reader: Reader) -> Earlier:
    """What is in the store when a life begins."""
    parts = reader.all(
        "SELECT outbox_id, not_before FROM outbox WHERE state = 'pending' AND not_before > 0"
    )
    return Earlier(
        int(reader.scalar("SELECT coalesce(max(rowid), 0) FROM questions")),
        int(reader.scalar("SELECT coalesce(max(seq), 0) FROM messages")),
        tuple((row["outbox_id"], row["not_before"]) for row in parts),
    )


def next_deadline(reader: Reader) -> int | None:
    """The earliest time (ms, by the steady clock) at which ``expire_tx`` closes something, or None."""
    times = [
        reader.scalar(
            "SELECT MIN(deadline_at) FROM questions WHERE state = 'open' AND deadline_at > 0"
        ),
        reader.scalar(
            "SELECT MIN(expires_at) FROM messages WHERE state = 'queued' AND expires_at IS NOT NULL"
        ),
    ]
    return min((time for time in times if time is not None), default=None)
