"""The pump: claims the messages of one agent and runs the handler on each until it is settled.

Invariants: the lease is renewed here and never by agent code (P3). A lease whose fence has changed
cancels its turn. When the pump ends, leases that a handler did not settle are released to the
queue, so that stopping an agent loses nothing (P1). A stop cancels turns and releases nothing,
because its transaction has already cancelled their rows (P5). A drain does not wait for a turn that
only waits for a person: it ends the turn at once, and the message stays parked until the answer
(P8).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial

from agentsup.kit import faults
from agentsup.kit.tasks import TaskOwner, call_after, is_set_within
from agentsup.mailbox.mailbox import Mailbox
from agentsup.mailbox.messages.values import BeginSegment, Claimed
from agentsup.mailbox.work.claim_view import ClaimView
from agentsup.mailbox.work.handler import Handler, Work
from agentsup.mailbox.work.leases import CANCEL_S, STORE_PAUSE_S, Releases, Renewal
from agentsup.mailbox.work.slots import SharedSlots, SlotPool, TurnSlot
from agentsup.model.errors import (
    ExitRequested,
    LeaseLost,
    Overloaded,
    StoreCorrupt,
    StoreUnavailable,
)
from agentsup.model.ids import AgentId, InstanceId
from agentsup.model.message import LaneName, Lease, Message
from agentsup.store import Tx

NET_S = 60.0
"""The longest pause between claims, in case a wake was lost. Work found only by it is counted as a
fault (``lost_wakes``)."""
EXIT_DRAIN_S = 30.0
"""Seconds that other turns may go on after one of them asked the stack to end."""


@dataclass(slots=True)
class PumpStats:
    lost_wakes: int = 0
    abandoned: int = 0


class Pump:
    """Claims for one agent instance and runs the handler on each lease in a task of its own."""

    def __init__(
        self,
        *,
        mailbox: Mailbox,
        agent_id: AgentId,
        instance_id: InstanceId,
        slots: Mapping[LaneName, int],
        handler: Handler,
        exit_drain_s: float = EXIT_DRAIN_S,
        shared: Mapping[LaneName, SharedSlots] | None = None,
        begin: BeginSegment | None = None,
    ) -> None:
        """``shared`` are lanes in which a turn also needs a slot that all agents share. ``begin``
        begins segments in the transactions that claim messages."""
        self._mailbox = mailbox
        self._database = mailbox.database
        self._clock = mailbox.context.clock
        self._agent_id = agent_id
        self._instance_id = instance_id
        self._handler = handler
        self._begin = begin
        self._wake = asyncio.Event()
        self._touches = 0
        """Number of commits that have woken the pump."""
        self._seen = ClaimView()
        """The state of the queue at the last claim."""
        self.slots = SlotPool(slots, self._slot_came_free, shared, on_shared=self._wake.set)
        self._tasks = TaskOwner(f"pump:{agent_id}")
        self._working: dict[asyncio.Task[None], Work] = {}
        self._releases = Releases(mailbox, instance_id)
        self._renewal = Renewal(mailbox, self._tasks, self._working, self._abandon)
        self._exit_drain_s = exit_drain_s
        self._failure: BaseException | None = None
        self._culprits: list[str] = []
        self._exit: ExitRequested | None = None
        self._draining = False
        self.stats = PumpStats()

    @property
    def in_flight(self) -> tuple[Work, ...]:
        return tuple(self._working.values())

    async def run(self, ready: Callable[[], None], draining: asyncio.Event) -> None:
        """Work until ``draining`` is set and the turns in flight have ended, or one crashed.

        Raises what escaped from the handler. In any case all leases of this pump are released.
        """
        unlisten = self._database.listen(f"agent:{self._agent_id}", self._touched)
        self._tasks.spawn(self._renewal.run(), name=f"renew:{self._agent_id}")
        self._tasks.spawn(call_after(draining, self._begin_drain), name=f"drain:{self._agent_id}")
        ready()
        missed = False
        try:
            while self._failure is None and not (self._draining and not self._working):
                self._wake.clear()
                if self._draining:
                    self.slots.unreserve()
                elif not missed or await self._may_have_work():
                    found = await self._claim_round()
                    self.stats.lost_wakes += missed and found
                missed = await self._pause()
            if self._failure is not None:
                raise self._failure
            if self._exit is not None:
                raise self._exit
        finally:
            unlisten()
            try:
                await self._settle_rest()
            finally:
                self.slots.close()

    async def abort(
        self, wanted: Callable[[Message], bool], *, cancel_s: float
    ) -> tuple[int, list[str]]:
        """Cancel the turns whose message is ``wanted``.

        Returns how many there were, and the names of those that did not end within ``cancel_s``
        seconds; these are abandoned: detached, counted, their slot released.
        """
        hit = {task: work for task, work in self._working.items() if wanted(work.lease.message)}
        for task, work in hit.items():
            work.stopped = True
            task.cancel()
        if not hit:
            return 0, []
        _, pending = await asyncio.wait(hit, timeout=cancel_s)
        for task in pending:
            self._abandon(task)
        return len(hit), [task.get_name() for task in pending]

    def suspend(self, work: Work) -> bool:
        """End a turn for now if it does nothing but wait for a person; whether it ends."""
        if work.stopped or work.is_suspended or work.busy or not work.asks:
            return work.is_suspended
        task = next((task for task, each in self._working.items() if each is work), None)
        if task is None:
            return False
        work.is_suspended = True
        task.cancel()
        return True

    # -- claiming ----------------------------------------------------------------------------------

    async def _claim_round(self) -> bool:
        """Start what may start now; whether it found a new message."""
        free = self.slots.keep()
        if not any(free.values()):
            self.slots.unreserve()
            self.slots.want(tuple(LaneName))
            self._seen = self._seen.after_due(self._clock.monotonic())
            return False
        try:
            claimed = await self._mailbox.leases.claim(
                self._agent_id,
                self._instance_id,
                free,
                own=self._own(),
                begin=self._begin,
                committed=self._note,
            )
            for lease in claimed.leases:
                faults.point("mailbox.claimed")
                self._start(lease, self.slots.take(lease.message.lane), claimed)
            for message_id in claimed.begun:  # a stop has ended those that were not started
                self._releases.started(message_id)
        except StoreUnavailable:
            self.slots.unreserve()
            await self._clock.sleep(STORE_PAUSE_S)
            self._wake.set()
            return False
        finally:
            self.slots.unreserve()
        self._wake_for_left()
        return any(not lease.resumed for lease in claimed.leases)

    async def _may_have_work(self) -> bool:
        try:
            return await self._mailbox.leases.has_work(self._agent_id)
        except (StoreUnavailable, StoreCorrupt, Overloaded):
            return False  # the next look is in a minute

    def _own(self, but: Work | None = None) -> dict[str, str]:
        """The sessions of the messages that this pump works on, by message id.

        Without turns whose end is committed: they do nothing any more.
        """
        return {
            work.lease.message.message_id: work.lease.message.session_id
            for work in self._working.values()
            if work is not but and work.next is None
        }

    def _note(self, claimed: Claimed) -> None:
        """Note what the claim has seen; called for each claim, in the order of their commits."""
        self._seen = ClaimView.of(
            claimed,
            touches=self._touches,
            sessions=self._own().values(),
            steady_ms=self._mailbox.context.steady.now_ms(),
            now_s=self._clock.monotonic(),
        )
        self._releases.begun(claimed)

    def _wake_for_left(self) -> None:
        """Look again if a slot became free meanwhile for what a claim has left."""
        if not self._seen.left:
            return
        self.slots.want(self._seen.left)
        free = self.slots.free()
        if any(free[lane] for lane in self._seen.left):
            self._wake.set()

    def _slot_came_free(self) -> None:
        """Look again, unless the last claim has seen all and left nothing."""
        if self._seen.may_find_more(self._touches):
            self._wake.set()

    def _start(self, lease: Lease, slot: TurnSlot, claimed: Claimed) -> None:
        self._releases.started(lease.message.message_id)
        work = Work(lease, slot, segment_no=claimed.begun.get(lease.message.message_id))
        work.next_claim = partial(self._next_claim, work)
        work.slot.on_suspend = partial(self.suspend, work)
        work.began_to_ask = partial(self._suspend_if_draining, work)
        task = self._tasks.spawn(self._handle(work), name=f"turn:{lease.message.message_id}")
        self._working[task] = work
        self._renewal.wake()
        task.add_done_callback(self._ended)

    async def _handle(self, work: Work) -> None:
        try:
            await self._handler.handle(work)
        except asyncio.CancelledError:
            if work.is_suspended and not work.stopped:
                await self._releases.release(work.lease)
            raise
        except LeaseLost:
            return  # someone else has it, or it was stopped
        except StoreUnavailable as error:
            await self._releases.try_later(work.lease, error)
        except ExitRequested as request:
            self._end_with(request)
        except Exception as error:  # noqa: BLE001 - supervision boundary: the stack's crash
            self._fail(error, work.lease)

    # -- the next message, claimed with the end of a turn ------------------------------------------

    def _touched(self) -> None:
        self._touches += 1
        self._wake.set()

    def _next_claim(self, work: Work) -> Callable[[Tx], None] | None:
        """A step for the transaction that ends the turn: claim the next message for its slot."""
        lane, own = work.lease.message.lane, self._own(but=work)
        if (
            self._draining
            or self._failure is not None
            or self._database.stats.is_disk_low
            or not work.slot.may_pass_on
        ):
            return None

        def step(tx: Tx) -> None:
            claimed = self._mailbox.leases.claim_next_tx(
                tx, self._agent_id, self._instance_id, lane, own=own, begin=self._begin
            )
            if claimed is not None:
                tx.after_commit(partial(self._next_claimed, work, claimed))

        return step

    def _next_claimed(self, work: Work, claimed: Claimed) -> None:
        """Note what was claimed. The turn on it starts when the present one has ended."""
        before, work.next = self._seen, claimed
        self._note(claimed)
        if self._seen.is_due_before(before):
            self._wake.set()  # to sleep no longer than that
        self._wake_for_left()
        if work not in self._working.values():  # it was abandoned
            for lease in claimed.leases:
                self._release_unstarted(lease)

    def _pass_on(self, work: Work, claimed: Claimed) -> None:
        """After the end of a turn: start the next in its slot, or give its message back."""
        may_start = not (
            self._draining or self._failure is not None or self._database.stats.is_disk_low
        )
        for lease in claimed.leases:
            is_free = lease.message.session_id not in self._own().values()
            slot = work.slot.pass_on() if may_start and is_free else None
            if slot is not None and self._mailbox.leases.may_start(claimed, lease):
                faults.point("mailbox.claimed")
                self._start(lease, slot, claimed)
            else:
                if slot is not None:
                    slot.finish()
                self._release_unstarted(lease)

    def _release_unstarted(self, lease: Lease) -> None:
        """Release the lease of a turn that does not start."""
        release = self._releases.release(lease)
        self._tasks.spawn(release, name=f"release:{lease.message.message_id}")

    def _suspend_if_draining(self, work: Work) -> None:
        if self._draining:
            self.suspend(work)

    def _begin_drain(self) -> None:
        self._draining = True
        for work in list(self._working.values()):
            self.suspend(work)
        self._wake.set()

    def _end_with(self, request: ExitRequested) -> None:
        """Start nothing new, let other turns finish within the drain, then raise the request."""
        if self._exit is None:
            self._exit = request
            self._begin_drain()
            self._tasks.spawn(self._cut_drain(), name=f"exit:{self._agent_id}")
        self._wake.set()

    async def _cut_drain(self) -> None:
        await self._clock.sleep(self._exit_drain_s)
        if self._exit is not None:
            self._failure = self._failure or self._exit
        self._wake.set()

    def _fail(self, error: BaseException, culprit: Lease) -> None:
        if self._failure is None or self._failure is self._exit:
            self._failure = error
        self._culprits.append(culprit.message.message_id)
        self._wake.set()

    def _ended(self, task: asyncio.Task[None]) -> None:
        work = self._working.pop(task, None)
        if work is None:
            self._wake.set()
            return
        if work.next is not None:
            self._pass_on(work, work.next)
        work.slot.finish()
        if work.next is None or self._draining:
            self._wake.set()

    def _abandon(self, task: asyncio.Task[None]) -> None:
        work = self._working.pop(task, None)
        if work is not None:
            work.slot.finish()
            self.stats.abandoned += 1
        self._wake.set()

    async def _pause(self) -> bool:
        """Wait for a wake, a due message or ``NET_S``; whether it was ``NET_S`` that ended it."""
        if self._wake.is_set():
            return False
        timeout_s = NET_S
        if not self._draining:
            timeout_s = self._seen.pause_s(self._clock.monotonic(), NET_S)
        return not await is_set_within(self._wake, timeout_s) and timeout_s == NET_S

    # -- the end -----------------------------------------------------------------------------------

    async def _settle_rest(self) -> None:
        """Cancel what still runs and release every lease; count a crash on its culprits.

        A cancellation during this shortens the waits and skips no step. Nothing new starts.
        """
        self._draining = True
        try:
            await self._end_turns()
        finally:
            try:
                await self._tasks.close(timeout_s=0.5)
            finally:
                await self._releases.release_all(self._failure, self._culprits)

    async def _end_turns(self) -> None:
        rest = set(self._working)
        for task in rest:
            task.cancel()
        if not rest:
            return
        try:
            await asyncio.wait(rest, timeout=CANCEL_S)
        finally:
            for task in rest:
                if not task.done():
                    self._abandon(task)
