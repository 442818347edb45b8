"""Leases: what a claim gives to a turn, and all ways in which the turn gives it back (P1, P2)."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from functools import partial

from agentsup.kit import backoff, faults
from agentsup.kit.log import get_logger
from agentsup.mailbox.lifecycle import claim, control, ending
from agentsup.mailbox.lifecycle.closing import end_moot_tx
from agentsup.mailbox.lifecycle.results import MessageResult
from agentsup.mailbox.messages import segments
from agentsup.mailbox.messages.events import emit_message_event
from agentsup.mailbox.messages.rows import OPEN_SQL, need_message
from agentsup.mailbox.messages.values import (
    BeginSegment,
    Claimed,
    Completion,
    MailboxContext,
    MessageEnd,
)
from agentsup.mailbox.queue import views
from agentsup.mailbox.service import Service, in_writer
from agentsup.model.event import EventType
from agentsup.model.message import (
    LEASE_MS,
    LaneName,
    Lease,
    Message,
    MessageOutcome,
    MessageState,
)
from agentsup.store import Tx, is_of_store

_RETRY_CAP_S = 300.0
_RETRY_MOST_S = 8 * 24 * 3600.0
"""The longest pause that a provider is granted: a plan's limit ends after a week at the latest."""
_log = get_logger(__name__)


class Leases(Service):
    """Claiming messages, and ending the turns on them."""

    async def claim(
        self,
        agent_id: str,
        instance_id: str,
        free: Mapping[LaneName, int],
        *,
        own: Mapping[str, str] | None = None,
        begin: BeginSegment | None = None,
        committed: Callable[[Claimed], None] = lambda claimed: None,
    ) -> Claimed:
        """Lease the messages that may start now (see ``claim_tx``), and write stops that are due.

        ``committed`` is called with what was claimed, in the order of commits.
        """

        def step(tx: Tx) -> Claimed:
            if self.context.epochs.unwritten:
                control.stop_unwritten_tx(self.context, tx)
            claimed = claim.claim_tx(
                self.context, tx, agent_id, instance_id, free, own=own, begin=begin
            )
            tx.after_commit(partial(committed, claimed))
            return claimed

        claimed = await self.database.write(step, name="mailbox.claim")
        startable = tuple(filter(partial(self.may_start, claimed), claimed.leases))
        return replace(claimed, leases=startable) if startable != claimed.leases else claimed

    async def has_work(self, agent_id: str) -> bool:
        """Whether a claim may find something: a message of the agent, or a stop to be written."""
        return bool(self.context.epochs.unwritten) or await self.database.read(
            views.has_open, agent_id, name="mailbox.has_work"
        )

    def claim_next_tx(
        self,
        tx: Tx,
        agent_id: str,
        instance_id: str,
        lane: LaneName,
        *,
        own: Mapping[str, str],
        begin: BeginSegment | None = None,
    ) -> Claimed | None:
        """In the transaction that ends a turn, lease the agent's next message for its slot.

        The agent is not woken for the end then. None if the next claim has to look: a stop is to be
        written, or a row can't be read.
        """
        if self.context.epochs.unwritten:
            return None
        tx.untouch(f"agent:{agent_id}")
        if self.context.loads.are(agent_id, 0):
            return Claimed(())

        def step(part: Tx) -> Claimed:
            free = {lane: 1}
            return claim.claim_tx(
                self.context, part, agent_id, instance_id, free, own=own, begin=begin
            )

        try:
            return tx.attempt(step)
        except Exception as error:
            # supervision boundary: the turn has ended, whatever is the matter with the next one
            if is_of_store(error):
                raise
            _log.exception("the next message can't be claimed with the end of a turn")
            tx.touch(f"agent:{agent_id}")
            return None

    def may_start(self, claimed: Claimed, lease: Lease) -> bool:
        """Whether the turn of a claimed lease may begin: not if a stop was ordered while the claim
        was being committed, because the stop cancels the row."""
        message = lease.message
        now = self.context.epochs.seen(message.agent_id, message.session_id)
        return claimed.epochs[message.message_id] == now

    @in_writer("mailbox.renew", closing=True)
    def renew(self, tx: Tx, leases: Sequence[Lease]) -> set[str]:
        """Extend ``leases``, expired ones too; return the ids of those that are lost.

        Lost means taken over or stopped. A lease whose own turn has settled the message meanwhile is
        not lost: that turn must end by itself, because it may still ask for a restart.
        """
        ctx = self.context
        until = ctx.clock.now_ms() + LEASE_MS
        lost = set()
        for lease in leases:
            cursor = tx.execute(
                "UPDATE messages SET lease_until = ?"
                " WHERE message_id = ? AND state = 'leased' AND fence = ? AND lease_boot = ?",
                (until, lease.message.message_id, lease.fence, ctx.boot_id),
            )
            if cursor.rowcount == 0 and not _ended_by_itself(ctx, tx, lease):
                lost.add(str(lease.message.message_id))
        return lost

    def complete_tx(self, tx: Tx, lease: Lease, completion: Completion) -> None:
        """End the turn: state, session, delivery, waits and events together.

        Raises ``LeaseLost`` if the turn was taken over or stopped; nothing is changed then.
        """
        ctx, message = self.context, ending.leased_tx(self.context, tx, lease)
        at = ctx.clock.now_ms()
        result = MessageResult("ok", completion.text, completion.parts, completion.error_code)
        if completion.outcome is not MessageOutcome.OK:
            why = completion.error_text or completion.text
            if completion.notice and message.deliver_to.kind == "chat":
                why = completion.notice
            result = MessageResult("failed", why, code=completion.error_code)
        if completion.engine_state is None:
            tx.execute(
                "UPDATE sessions SET updated_at = ? WHERE session_id = ?", (at, message.session_id)
            )
        else:
            tx.execute(
                "UPDATE sessions SET updated_at = ?, engine = ?, engine_state = ? WHERE session_id = ?",
                (at, completion.engine, completion.engine_state, message.session_id),
            )
        end = MessageEnd(
            MessageState.DONE,
            completion.error_code,
            completion.error_text,
            completion.outcome,
            completion.text,
        )
        ending.end_tx(ctx, tx, message, result, end, at=at)
        if message.attempts == 1 and message.started_at is not None:
            seconds = (at - message.started_at) / 1000
            tx.after_commit(partial(ctx.durations.sample, message.agent_id, seconds))
        tx.after_commit(partial(faults.point, "turn.completed"))
        faults.point("turn.complete.before_commit")

    complete = in_writer("mailbox.complete", closing=True)(complete_tx)

    def retry_tx(
        self,
        tx: Tx,
        lease: Lease,
        *,
        code: str,
        text: str,
        unit: float,
        least_s: float = 0.0,
        is_last: bool = False,
        notice: str = "",
    ) -> MessageState:
        """Queue the message again after a transient failure, or let it fail after the last attempt.

        ``unit`` in [0, 1] selects the delay within its jitter; the delay is at least ``least_s``
        seconds. ``is_last``: no other attempt is made. ``notice`` is shown to the asker of a failed
        message instead of ``text``. A message that puts a closed question is cancelled instead. Returns
        the new state. Raises ``LeaseLost``.
        """
        ctx, message = self.context, ending.leased_tx(self.context, tx, lease)
        at = ctx.clock.now_ms()
        if end_moot_tx(ctx, tx, message, at=at):
            return MessageState.CANCELLED
        if is_last or message.attempts >= ctx.limits.max_attempts:
            sentence = f"{message.attempts} attempts failed, the last one: {text}"
            ending.dead_letter_tx(
                ctx, tx, message.message_id, code=code, text=sentence, at=at, notice=notice
            )
            return MessageState.DEAD
        delay_s = backoff.delay_s(message.attempts, base_s=1.0, cap_s=_RETRY_CAP_S, unit=unit)
        delay_s = max(delay_s, min(least_s, _RETRY_MOST_S))
        not_before = ctx.steady.now_ms() + round(delay_s * 1000)
        return _postpone_tx(tx, message, message.attempts, at, not_before, code, text)

    async def retry(self, lease: Lease, *, code: str, text: str) -> MessageState:
        """Queue a message again after a transient failure, as ``retry_tx``, and return its state."""
        unit = self.context.entropy.uniform(0.0, 1.0)
        return await self.database.write(
            lambda tx: self.retry_tx(tx, lease, code=code, text=text, unit=unit),
            name="mailbox.retry",
            closing=True,
        )

    def postpone_tx(
        self, tx: Tx, lease: Lease, *, code: str, text: str, wait_s: float, unit: float
    ) -> None:
        """Queue the message again, to start in ``wait_s`` seconds, without counting an attempt.

        ``unit`` in [0, 1] adds up to one second. Raises ``LeaseLost``.
        """
        ctx, message = self.context, ending.leased_tx(self.context, tx, lease)
        at = ctx.clock.now_ms()
        if not end_moot_tx(ctx, tx, message, at=at):
            not_before = ctx.steady.now_ms() + round((wait_s + unit) * 1000)
            _postpone_tx(tx, message, message.attempts - 1, at, not_before, code, text)

    def release_tx(self, tx: Tx, lease: Lease) -> None:
        """Queue the message again in its old order; no attempt is counted. Raises ``LeaseLost``."""
        message = ending.leased_tx(self.context, tx, lease)
        ending.release_message_tx(self.context, tx, message, self.context.clock.now_ms())

    @in_writer("mailbox.release", closing=True)
    def release(self, tx: Tx, lease: Lease, *, begun: int | None = None) -> None:
        """Give the lease back without counting an attempt. Raises ``LeaseLost``.

        ``begun`` is the segment that was begun with its claim, if the turn did not start.
        """
        self.release_tx(tx, lease)
        if begun is not None:
            segments.withdraw_tx(tx, lease.message.message_id, begun)

    @in_writer("mailbox.let_go", closing=True)
    def release_all(
        self,
        tx: Tx,
        instance_id: str,
        *,
        culprits: Collection[str] | None = (),
        text: str = "",
        begun: Mapping[str, int] | None = None,
    ) -> list[str]:
        """Release all leases of an agent stack that has ended. Returns the ids of the culprits.

        ``culprits`` are the messages on which it crashed (None: all of them): each counts a crash
        and is queued again, or becomes a failed message. The others go back to the queue without
        counting an attempt, also if the stack had not received their leases yet. ``begun`` has the
        segments of turns that did not start, by message id.
        """
        for message_id, number in (begun or {}).items():
            segments.withdraw_tx(tx, message_id, number)
        ctx, at = self.context, self.context.clock.now_ms()
        rows = tx.all(
            f"SELECT message_id FROM messages INDEXED BY messages_open WHERE {OPEN_SQL} AND state = 'leased'"  # noqa: S608 - a constant
            " AND lease_instance = ? AND lease_boot = ? ORDER BY seq",
            (instance_id, ctx.boot_id),
        )
        blamed = []
        for row in rows:
            message = need_message(tx, row["message_id"])
            if ctx.epochs.stops(message.agent_id, message.session_id, message.accepted_at):
                continue  # the stop in progress cancels it
            if culprits is None or message.message_id in culprits:
                blamed.append(str(message.message_id))
                _crash_tx(ctx, tx, message, text, at)
            else:
                ending.release_message_tx(ctx, tx, message, at)
        return blamed


def _postpone_tx(
    tx: Tx, message: Message, attempts: int, at: int, not_before: int, code: str, text: str
) -> MessageState:
    state = ending.requeue_tx(
        tx, message, attempts=attempts, not_before=not_before, code=code, text=text
    )
    facts = {"code": code, "text": text, "attempt": max(0, attempts), "not_before": not_before}
    emit_message_event(tx, EventType.MESSAGE_RETRY, message, at, facts)
    return state


def _crash_tx(ctx: MailboxContext, tx: Tx, message: Message, text: str, at: int) -> None:
    if end_moot_tx(ctx, tx, message, at=at):
        return
    crashes = message.crashes + 1
    tx.execute("UPDATE messages SET crashes = ? WHERE seq = ?", (crashes, message.seq))
    if crashes >= ctx.limits.max_crashes or message.attempts >= ctx.limits.max_attempts:
        sentence = f"the agent crashed on it {crashes} times, the last time: {text}"
        ending.dead_letter_tx(ctx, tx, message.message_id, code="crashed", text=sentence, at=at)
        return
    ending.requeue_tx(tx, message, attempts=message.attempts, code="crashed", text=text)
    facts = {"code": "crashed", "text": text, "attempt": message.attempts}
    emit_message_event(tx, EventType.MESSAGE_RETRY, message, at, facts)


def _ended_by_itself(ctx: MailboxContext, tx: Tx, lease: Lease) -> bool:
    """Whether the turn of this very lease has settled the message."""
    return bool(
        tx.scalar(
            "SELECT 1 FROM messages WHERE message_id = ? AND fence = ? AND lease_boot = ?"
            " AND state NOT IN ('leased', 'cancelled')",
            (lease.message.message_id, lease.fence, ctx.boot_id),
        )
    )
