"""Claiming and keeping leases: who may work on what, fenced.

A session's head may start when nothing holds the session, its time has come and its lane has a
free slot. A lease of an earlier boot is void by comparison: no sweep touches it, the next claim
takes it over with a higher fence (P1, P2).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from agentsup.mailbox import ending
from agentsup.mailbox.lanes import LEVEL_SQL, Head, pick
from agentsup.mailbox.rows import HOLDS_SQL, OPEN_SQL, message_of, need_message
from agentsup.mailbox.telling import tell_task
from agentsup.mailbox.values import Claimed, Desk
from agentsup.mailbox.waits import close_tx
from agentsup.mailbox.withdrawing import is_moot, put_away_tx
from agentsup.model.event import EventType
from agentsup.model.ids import InstanceId
from agentsup.model.message import (
    AGING_MS,
    LEASE_MS,
    RESUME_WITHIN_MS,
    Kind,
    Lane,
    Lease,
    State,
    check_transition,
)
from agentsup.model.watch import STARTED
from agentsup.store.database import Tx
from agentsup.store.events import append

__all__ = ["claim_tx", "renew_tx"]

_HEADS = f"""
SELECT * FROM (
  SELECT m.seq, m.message_id, m.session_id, m.lane, m.state, m.kind, m.accepted_at,
         m.expires_at, m.attempts, m.lease_until, h.level,
         ROW_NUMBER() OVER (PARTITION BY m.lane ORDER BY h.level, m.seq) AS rank
  FROM (
    SELECT session_id,
           MIN({LEVEL_SQL}) AS level,
           COALESCE(MAX(CASE WHEN {HOLDS_SQL} THEN seq END),
                    MIN(CASE WHEN state = 'queued' THEN seq END)) AS head
    FROM messages WHERE agent_id = :agent AND {OPEN_SQL} GROUP BY session_id
  ) h JOIN messages m ON m.seq = h.head
  WHERE (m.state = 'queued' AND m.not_before <= :own
         AND (m.seq > :earlier OR m.expires_at IS NULL OR m.expires_at > :own))
     OR (m.state = 'leased' AND (m.lease_boot <> :boot
         OR (m.lease_until < :now AND (m.lease_instance <> :instance OR :own_known))))
) WHERE rank <= :most
"""  # noqa: S608 - constants; parameters are bound
"""No more heads per lane than can be used: a flood of sessions must not cost each claim. Those that
turn out unfit (expired, buried) end in this transaction, and their end wakes the next claim. What is late
by a clock that may still be set (`deadlines`) is neither begun nor ended."""

_TAKE = """
UPDATE messages SET state = 'leased', fence = fence + 1, attempts = attempts + 1,
  lease_boot = ?, lease_instance = ?, lease_until = ?, started_at = COALESCE(started_at, ?)
WHERE seq = ? RETURNING *
"""


def claim_tx(
    desk: Desk,
    tx: Tx,
    agent_id: str,
    instance_id: str,
    free: Mapping[Lane, int],
    *,
    held: Mapping[str, str] | None = None,
) -> Claimed:
    """Lease what may start now, at most ``free`` per lane.

    ``held`` has the messages that this instance still works on, with their sessions; with it, the
    instance's own expired leases that it does not name are taken again. A session whose turn was
    cancelled stays closed until that turn has really ended, for it may still act. A void lease is taken over if the turn
    is young and has attempts left; otherwise the message ends as a dead letter with a notice. One
    whose turn was waiting for a person waits on, parked.
    """
    now = desk.clock.now_ms()
    leases = []
    most = max(free.values(), default=0) + len(held or ())
    for head in pick(_heads(desk, tx, agent_id, instance_id, now, held, most), free):
        row = tx.one(_TAKE, (desk.boot_id, instance_id, now + LEASE_MS, now, head.seq))
        assert row is not None, "the head was read in this transaction"
        message = message_of(row)  # type: ignore[arg-type]  # Row is a mapping in all but name
        lease = Lease(message, message.fence, InstanceId(instance_id), resumed=message.fence > 1)
        append(
            tx,
            EventType.MESSAGE_STARTED,
            at=now,
            agent_id=agent_id,
            session_id=message.session_id,
            message_id=message.message_id,
            data={"attempt": message.attempts, "fence": message.fence, "resumed": lease.resumed},
        )
        tell_task(tx, message, now)
        leases.append(lease)
        if not lease.resumed:
            for follower in desk.followers:
                follower.changed_tx(tx, message, STARTED, at=now)
    return Claimed(tuple(leases), _next_due_at(tx, agent_id, desk.steady.now_ms()))


def _heads(
    desk: Desk,
    tx: Tx,
    agent_id: str,
    instance_id: str,
    now: int,
    held: Mapping[str, str] | None,
    most: int,
) -> Iterator[Head]:
    own_ms = desk.steady.now_ms()
    rows = tx.all(
        _HEADS,
        {
            "agent": agent_id,
            "now": now,
            "own": own_ms,
            "earlier": desk.steady.earlier.messages,
            "aging": AGING_MS,
            "boot": desk.boot_id,
            "instance": instance_id,
            "own_known": held is not None,
            "most": most,
        },
    )
    at_work = frozenset(held.values()) if held is not None else frozenset()
    for row in rows:
        if row["session_id"] in at_work:
            continue
        if desk.epochs.stops(agent_id, row["session_id"], row["accepted_at"]):
            continue
        if row["kind"] == Kind.DIRECTIVE and _is_put_away(tx, row["message_id"], now):
            continue
        if row["state"] == State.LEASED:
            message = need_message(tx, row["message_id"])
            if ending.put_down_tx(tx, message, now):
                continue
            if not _may_take_over(desk, tx, row, now):
                continue
        elif row["expires_at"] is not None and row["expires_at"] <= own_ms:
            ending.expire_tx(desk, tx, row["message_id"], at=now)
            continue
        check_transition(row["message_id"], State(row["state"]), State.LEASED)
        yield Head(row["seq"], row["session_id"], Lane(row["lane"]), row["level"])


def _is_put_away(tx: Tx, message_id: str, now: int) -> bool:
    """A question whose turn was cut off, and that was closed before another could begin."""
    message = need_message(tx, message_id)
    if not is_moot(tx, message):
        return False
    put_away_tx(tx, message, at=now)
    return True


def _may_take_over(desk: Desk, tx: Tx, row: Any, now: int) -> bool:
    """Whether an interrupted turn is to run again; if not, it ends here as a dead letter."""
    message_id = row["message_id"]
    close_tx(tx, message_id, as_target=False)
    if row["attempts"] >= desk.limits.max_attempts:
        ending.bury_tx(
            desk,
            tx,
            message_id,
            code="interrupted",
            text=f"the turn was interrupted {row['attempts']} times by a crash of the daemon",
            at=now,
        )
        return False
    interrupted_at = (row["lease_until"] or now) - LEASE_MS
    if now - interrupted_at > RESUME_WITHIN_MS:
        minutes = (now - interrupted_at) // 60_000
        ending.bury_tx(
            desk,
            tx,
            message_id,
            code="interrupted",
            text=f"the turn was interrupted {minutes} minutes ago, too long to go on by itself",
            at=now,
        )
        return False
    return True


def _next_due_at(tx: Tx, agent_id: str, own_ms: int) -> int | None:
    # A bare parameter, held against the condition of the partial index, would have SQLite prepare
    # the statement anew each time.
    due: int | None = tx.scalar(
        "SELECT MIN(not_before) FROM messages WHERE agent_id = ? AND not_before > ? + 0"
        " AND state = 'queued' AND not_before > 0",
        (agent_id, own_ms),
    )
    return due


def renew_tx(desk: Desk, tx: Tx, leases: Sequence[Lease]) -> set[str]:
    """Prolong ``leases``, expired ones too; returns the ids of those that are lost.

    Lost means taken over or stopped. A turn that its own commit has ended meanwhile is not: it
    must come to its own end, which may ask for a restart.
    """
    until = desk.clock.now_ms() + LEASE_MS
    lost = set()
    for lease in leases:
        cursor = tx.execute(
            "UPDATE messages SET lease_until = ?"
            " WHERE message_id = ? AND state = 'leased' AND fence = ? AND lease_boot = ?",
            (until, lease.message.message_id, lease.fence, desk.boot_id),
        )
        if cursor.rowcount == 0 and not _ended_by_itself(desk, tx, lease):
            lost.add(str(lease.message.message_id))
    return lost


def _ended_by_itself(desk: Desk, tx: Tx, lease: Lease) -> bool:
    """Whether the turn of this very lease has settled the message."""
    return bool(
        tx.scalar(
            "SELECT 1 FROM messages WHERE message_id = ? AND fence = ? AND lease_boot = ?"
            " AND state NOT IN ('leased', 'cancelled')",
            (lease.message.message_id, lease.fence, desk.boot_id),
        )
    )
