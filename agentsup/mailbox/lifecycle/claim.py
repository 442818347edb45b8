"""Claiming and renewing leases.

Messages of a session run in strict order. A session has the best level among its open messages; the
level gets better with age. Within a level, first come, first served. Lanes have their own slots.

The head of a session may start when no message holds the session, its ``not_before`` has come and
its lane has a free slot. A lease of an earlier boot is void because its boot id differs. No cleanup
is needed: the next claim takes it over with a higher fence (P1, P2).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from agentsup.mailbox.lifecycle import ending
from agentsup.mailbox.lifecycle.closing import end_moot_tx
from agentsup.mailbox.messages import current_rights, sessions
from agentsup.mailbox.messages.events import emit_task_event
from agentsup.mailbox.messages.rows import (
    HOLDS_SQL,
    OPEN_SQL,
    encode_value,
    message_of,
    need_message,
    principal_of,
)
from agentsup.mailbox.messages.values import BeginSegment, Claimed, MailboxContext
from agentsup.mailbox.queue.waits import end_waits_tx
from agentsup.model.agent import STARTED
from agentsup.model.errors import RightsLost
from agentsup.model.event import EventType
from agentsup.model.ids import InstanceId
from agentsup.model.message import (
    AGING_MS,
    LEASE_MS,
    RESUME_WITHIN_MS,
    LaneName,
    Lease,
    MessageKind,
    MessageState,
    check_transition,
)
from agentsup.store import Tx, append

LEVEL_SQL = "MAX(0, priority - MAX(0, :now - accepted_at) / :aging)"
"""The priority after waiting, with ``:aging`` = ``AGING_MS``: one level better per half hour, never
better than 0."""


@dataclass(frozen=True, slots=True)
class SessionHead:
    """The message that a session would run next."""

    seq: int
    session_id: str
    lane: LaneName
    level: int


def pick(heads: Iterable[SessionHead], free: Mapping[LaneName, int]) -> list[SessionHead]:
    """Those of ``heads`` that may start now, by level, then age; at most ``free`` per lane.

    ``heads`` has one message per session, in any order: of sessions that no message holds, and
    whose ``not_before`` has come.
    """
    left = {lane: count for lane, count in free.items() if count > 0}
    chosen = []
    for head in sorted(heads, key=lambda head: (head.level, head.seq)):
        if not left:
            break
        if head.lane in left:
            chosen.append(head)
            left[head.lane] -= 1
            if not left[head.lane]:
                del left[head.lane]
    return chosen


_HEADS = f"""
SELECT * FROM (
  SELECT m.seq, m.message_id, m.session_id, m.lane, m.state, m.kind, m.accepted_at,
         m.expires_at, m.attempts, m.lease_until, m.principal, m.person, m.root_id, h.level,
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
"""At most ``:most`` heads per lane, so that the cost of a claim does not grow with the number of
sessions. A head that proves unfit (expired, failed) ends in this transaction, and its end wakes the
next claim. A message of an earlier boot that is late by a clock which may still be set
(``mailbox.lifecycle.deadlines``) is neither started nor ended."""

_TAKE = """
UPDATE messages SET state = 'leased', fence = fence + 1, attempts = attempts + 1,
  lease_boot = ?, lease_instance = ?, lease_until = ?, started_at = COALESCE(started_at, ?)
WHERE seq = ? RETURNING *
"""


def claim_tx(
    ctx: MailboxContext,
    tx: Tx,
    agent_id: str,
    instance_id: str,
    free: Mapping[LaneName, int],
    *,
    own: Mapping[str, str] | None = None,
    begin: BeginSegment | None = None,
) -> Claimed:
    """Lease the messages that may start now, at most ``free`` per lane, and ``begin`` their segments.

    ``own`` maps the messages that this instance still works on to their sessions; if it is given,
    other expired leases of the instance are taken again. The session of a cancelled turn is not
    leased before that turn has really ended, because the turn may still act. A void lease is taken
    over if the turn was interrupted recently (``RESUME_WITHIN_MS``) and has attempts left;
    otherwise the message becomes a failed message, with a notice. A message whose turn was waiting
    for a person is parked again.
    """
    now = ctx.clock.now_ms()
    leases: list[Lease] = []
    begun: dict[str, int | None] = {}
    most = max(free.values(), default=0) + len(own or ())
    found = _heads(ctx, tx, agent_id, instance_id, now, own, most)
    chosen = pick(found.heads, free)
    for head in chosen:
        row = tx.one(_TAKE, (ctx.boot_id, instance_id, now + LEASE_MS, now, head.seq))
        assert row is not None, "the head was read in this transaction"
        message = message_of(row)
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
        emit_task_event(tx, message, now)
        leases.append(lease)
        if not lease.resumed:
            for observer in ctx.message_observers:
                observer.changed_tx(ctx, tx, message, STARTED, at=now)
            if begin is not None:
                begun[message.message_id] = begin(tx, lease)
    is_all = ctx.loads.are(agent_id, len(leases))
    return Claimed(
        tuple(leases),
        None if is_all else _next_due_at(tx, agent_id, ctx.steady.now_ms()),
        begun,
        frozenset(head.lane for head in found.heads if head not in chosen),
        found.at_work,
        {each.message.message_id: found.epochs[each.message.session_id] for each in leases},
    )


@dataclass(frozen=True, slots=True)
class _Heads:
    """The messages that may start, the stop epochs of their sessions, and the lanes of sessions
    at work."""

    heads: list[SessionHead] = field(default_factory=list)
    epochs: dict[str, tuple[int, ...]] = field(default_factory=dict)
    at_work: dict[str, LaneName] = field(default_factory=dict)


def _heads(
    ctx: MailboxContext,
    tx: Tx,
    agent_id: str,
    instance_id: str,
    now: int,
    own: Mapping[str, str] | None,
    most: int,
) -> _Heads:
    found = _Heads()
    own_ms = ctx.steady.now_ms()
    rows = tx.all(
        _HEADS,
        {
            "agent": agent_id,
            "now": now,
            "own": own_ms,
            "earlier": ctx.steady.earlier.messages,
            "aging": AGING_MS,
            "boot": ctx.boot_id,
            "instance": instance_id,
            "own_known": own is not None,
            "most": most,
        },
    )
    at_work = frozenset(own.values()) if own is not None else frozenset()
    for row in rows:
        if row["session_id"] in at_work:
            found.at_work[row["session_id"]] = LaneName(row["lane"])
            continue
        found.epochs[row["session_id"]] = ctx.epochs.seen(agent_id, row["session_id"])
        if ctx.epochs.stops(agent_id, row["session_id"], row["accepted_at"]):
            continue
        if row["kind"] == MessageKind.DIRECTIVE and end_moot_tx(
            ctx, tx, need_message(tx, row["message_id"]), at=now
        ):
            continue  # no other turn on a closed question
        if row["state"] == MessageState.LEASED:
            message = need_message(tx, row["message_id"])
            if ending.park_interrupted_tx(ctx, tx, message, now):
                continue
            if not _may_take_over(ctx, tx, row, now):
                continue
        elif row["expires_at"] is not None and row["expires_at"] <= own_ms:
            ending.expire_tx(ctx, tx, row["message_id"], at=now)
            continue
        if not _keeps_rights(ctx, tx, row, now):
            continue
        check_transition(row["message_id"], MessageState(row["state"]), MessageState.LEASED)
        found.heads.append(
            SessionHead(row["seq"], row["session_id"], LaneName(row["lane"]), row["level"])
        )
    return found


def _may_take_over(ctx: MailboxContext, tx: Tx, row: Any, now: int) -> bool:
    """Whether an interrupted turn is to run again; if not, it becomes a failed message here."""
    message_id = row["message_id"]
    end_waits_tx(tx, message_id, as_target=False)
    passed_ms = now - (row["lease_until"] or now) + LEASE_MS
    if row["attempts"] >= ctx.limits.max_attempts:
        text = f"the turn was interrupted {row['attempts']} times by a crash of the daemon"
    elif passed_ms > RESUME_WITHIN_MS:
        minutes = passed_ms // 60_000
        text = f"the turn was interrupted {minutes} minutes ago, too long to go on by itself"
    else:
        return True
    ending.dead_letter_tx(ctx, tx, message_id, code="interrupted", text=text, at=now)
    return False


def _keeps_rights(ctx: MailboxContext, tx: Tx, row: Any, now: int) -> bool:
    """Give the message the present rights of its person; without any, end it and return False."""
    message_id, person = row["message_id"], row["person"]
    stored = principal_of(row["principal"])
    try:
        acting_as, person_of_work = current_rights.acting_for_message(
            tx, stored, person, message_id, row["root_id"], ctx.role_now
        )
        if (acting_as, person_of_work) == (stored, person):
            return True
        if person_of_work != person:
            message, key = need_message(tx, message_id), sessions.key_of(tx, row["session_id"])
            current_rights.check_session(person_of_work, message, key)
    except RightsLost as lost:
        end_waits_tx(tx, message_id, as_target=False)
        ending.refuse_tx(ctx, tx, message_id, lost, at=now)
        return False
    tx.execute(
        "UPDATE messages SET principal = ?, person = ? WHERE seq = ?",
        (encode_value(acting_as), person_of_work, row["seq"]),
    )
    return True


def _next_due_at(tx: Tx, agent_id: str, own_ms: int) -> int | None:
    # With a bare parameter, SQLite would prepare the statement again each time, to compare the
    # parameter with the condition of the partial index.
    due: int | None = tx.scalar(
        "SELECT MIN(not_before) FROM messages WHERE agent_id = ? AND not_before > ? + 0"
        " AND state = 'queued' AND not_before > 0",
        (agent_id, own_ms),
    )
    return due
