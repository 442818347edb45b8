"""Deadlines and pauses in the store: closing what is past them, and following steps of the clock.

All times are by the steady clock of this boot. Times of an earlier boot were measured by another
clock, which may have been wrong, as this one may be until it is set. So none of them passes or
moves before the clock has settled; then those that are too far ahead are reduced (P1, P8).
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from functools import partial
from typing import Final

from agentsup.kit.log import get_logger
from agentsup.mailbox.delivery.outbox import topic_of
from agentsup.mailbox.lifecycle import ending
from agentsup.mailbox.lifecycle.answering import close_question_tx
from agentsup.mailbox.lifecycle.closing import withdraw_agent_question_tx
from agentsup.mailbox.messages.rows import OPEN_SQL, question_of
from agentsup.mailbox.messages.steady_clock import Earlier
from agentsup.mailbox.messages.values import Expired, MailboxContext
from agentsup.mailbox.service import Service, in_reader, in_writer
from agentsup.model.question import ClosedReason
from agentsup.store import Reader, Tx

LONGEST_MS: Final = 366 * 86_400_000
"""The longest deadline."""
LONGEST_PAUSE_MS: Final = 8 * 86_400_000 + 3_600_000
"""The longest pause before another attempt, as in ``ending``, and an hour for clocks that differ."""
_EXPIRE_AT_ONCE = 200
_log = get_logger(__name__)


class Deadlines(Service):
    """Deadlines of questions and of queued messages."""

    def expire_tx(self, tx: Tx) -> Expired:
        """Close questions and queued messages that are past their deadline, at most 200 of each.

        The turn of a question resumes without an answer; a message fails with a notice. Before that,
        stored times follow a step of the wall clock, and times of earlier boots are checked once the
        clock has settled after a start.
        """
        ctx = self.context
        _follow_tx(ctx, tx)
        _settle_tx(ctx, tx)
        now, earlier = ctx.steady.now_ms(), ctx.steady.earlier
        questions = tx.all(
            "SELECT * FROM questions INDEXED BY questions_open"
            " WHERE state = 'open' AND deadline_at <= ? AND rowid > ? ORDER BY deadline_at LIMIT ?",
            (now, earlier.questions, _EXPIRE_AT_ONCE),
        )
        for row in questions:
            close_question_tx(ctx, tx, question_of(row), ClosedReason.DEADLINE, "", now)
            withdraw_agent_question_tx(ctx, tx, row["question_id"], at=now)
        messages = tx.all(
            "SELECT message_id FROM messages INDEXED BY messages_expiry"
            " WHERE state = 'queued' AND expires_at IS NOT NULL AND expires_at <= ? AND seq > ?"
            " ORDER BY expires_at LIMIT ?",
            (now, earlier.messages, _EXPIRE_AT_ONCE),
        )
        for row in messages:
            ending.expire_tx(ctx, tx, row["message_id"], at=now)
        return Expired(
            tuple(row["question_id"] for row in questions),
            tuple(row["message_id"] for row in messages),
        )

    expire = in_writer("mailbox.expire")(expire_tx)

    @in_reader("mailbox.next_deadline")
    def next(self, reader: Reader) -> int | None:
        """The next time (ms, by the steady clock) at which ``expire`` closes something, or None."""
        times = [
            reader.scalar(
                "SELECT MIN(deadline_at) FROM questions WHERE state = 'open' AND deadline_at > 0"
            ),
            reader.scalar(
                "SELECT MIN(expires_at) FROM messages WHERE state = 'queued' AND expires_at IS NOT NULL"
            ),
        ]
        return min((time for time in times if time is not None), default=None)


def _follow_tx(ctx: MailboxContext, tx: Tx) -> None:
    """Move the stored times of this boot and the steady clock by a step of the wall clock.

    The clock moves at once, so that times written in the same commit agree with it.
    """
    by, earlier = ctx.steady.step_ms(), ctx.steady.earlier
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
    # The boot that has leased the message last has set its pause.
    moved = tx.all(
        "UPDATE messages INDEXED BY messages_open SET not_before = max(1, not_before + :by)"  # noqa: S608 - a constant
        f" WHERE {OPEN_SQL} AND not_before > 0"
        " AND (seq > :earlier OR lease_boot = :boot) RETURNING agent_id",
        {"by": by, "earlier": earlier.messages, "boot": ctx.boot_id},
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
    ctx.steady.follow(by)
    tx.after_rollback(partial(ctx.steady.follow, -by))
    tx.after_commit(
        partial(
            _log.warning,
            f"the clock was stepped by {by / 1000:+.0f} s; deadlines and pauses went with it",
        )
    )


def _settle_tx(ctx: MailboxContext, tx: Tx) -> None:
    """Check the times of earlier boots, once the wall clock has had time to be set.

    A deadline is reduced to the one that the question or message would get now. A pause that is
    longer than any pause can be is ended. From then on all times count as times of this boot.
    """
    if not ctx.steady.can_settle:
        return
    now, earlier = ctx.steady.now_ms(), ctx.steady.earlier
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
    ctx.steady.settle()
    tx.after_rollback(partial(ctx.steady.settle, earlier))


def _wake_late_tx(tx: Tx, earlier: Earlier) -> None:
    """Wake agents whose messages seemed late and may be in time by the corrected clock."""
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
    """The rows with times that are in the store when a boot begins."""
    parts = reader.all(
        "SELECT outbox_id, not_before FROM outbox WHERE state = 'pending' AND not_before > 0"
    )
    return Earlier(
        int(reader.scalar("SELECT coalesce(max(rowid), 0) FROM questions")),
        int(reader.scalar("SELECT coalesce(max(seq), 0) FROM messages")),
        tuple((row["outbox_id"], row["not_before"]) for row in parts),
    )
