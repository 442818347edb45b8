"""The pump: lease → handler → settled, for one agent.

Invariants: the lease is renewed here and never by agent code (P3); a lease whose fence moved
cancels its turn; what a handler leaves unsettled when the pump ends is released to the queue, so
that stopping an agent loses nothing (P1); a stop cancels turns and releases nothing, because the
stop's transaction has already cancelled their rows (P5).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Protocol

from agentsup.kit import faults
from agentsup.kit.clock import Clock
from agentsup.kit.tasks import TaskOwner
from agentsup.mailbox.mailbox import Mailbox
from agentsup.mailbox.slots import Slots, TurnSlot
from agentsup.model.errors import AgentsupError, ExitRequested, LeaseLost, StoreUnavailable
from agentsup.model.ids import AgentId, InstanceId
from agentsup.model.message import LEASE_RENEW_S, Lane, Lease, Message
from agentsup.store.database import Database

NET_S = 30.0
"""A lost wake would be noticed after this long; finding work that way is counted as a fault."""
STORE_PAUSE_S = 1.0


@dataclass(slots=True, eq=False)
class Work:
    """One lease in progress, as the handler sees it."""

    lease: Lease
    slot: TurnSlot
    stopped: bool = False
    """A stop or interrupt ended this turn; its row is settled already."""
    note: str = ""
    """What the turn does now, for people."""


class Handler(Protocol):
    """What works on messages. The agent stack is the default; a host may plug in its own.

    It settles the lease (complete, retry, park) before it returns. ``ExitRequested`` after that
    asks the stack to end; any other exception is a crash of the stack.
    """

    async def handle(self, work: Work) -> None: ...


@dataclass(slots=True)
class PumpStats:
    lost_wakes: int = 0
    abandoned: int = 0
    finished: int = 0
    names_abandoned: list[str] = field(default_factory=list)


class Pump:
    """Claims for one agent instance and runs the handler on each lease in a task of its own."""

    def __init__(
        self,
        *,
        mailbox: Mailbox,
        database: Database,
        clock: Clock,
        agent_id: AgentId,
        instance_id: InstanceId,
        slots: Mapping[Lane, int],
        handler: Handler,
    ) -> None:
        self._mailbox = mailbox
        self._database = database
        self._clock = clock
        self._agent_id = agent_id
        self._instance_id = instance_id
        self._handler = handler
        self._wake = asyncio.Event()
        self.slots = Slots(slots, self._wake.set)
        self._tasks = TaskOwner(f"pump:{agent_id}")
        self._working: dict[asyncio.Task[None], Work] = {}
        self._failure: BaseException | None = None
        self._culprit: Lease | None = None
        self._paused = False
        self._draining = False
        self.stats = PumpStats()

    @property
    def in_flight(self) -> tuple[Work, ...]:
        return tuple(self._working.values())

    def wake(self) -> None:
        self._wake.set()

    async def run(self, ready: Callable[[], None], draining: asyncio.Event) -> None:
        """Work until ``draining`` is set and the turns in flight have ended, or one crashed.

        Raises what escaped from the handler. However it ends, no lease of this pump stays held.
        """
        unlisten = self._database.listen(f"agent:{self._agent_id}", self._wake.set)
        self._tasks.spawn(self._renew(), name=f"renew:{self._agent_id}")
        self._tasks.spawn(self._watch_drain(draining), name=f"drain:{self._agent_id}")
        ready()
        try:
            while self._failure is None and not (self._draining and not self._working):
                self._wake.clear()
                if not self._draining:
                    await self._claim_round()
                await self._pause()
            if self._failure is not None:
                raise self._failure
        finally:
            unlisten()
            await self._settle_rest()

    async def abort(
        self, wanted: Callable[[Message], bool], *, cancel_s: float
    ) -> tuple[int, list[str]]:
        """Cancel the turns whose message is ``wanted``: how many, and the names of those that
        did not end within ``cancel_s`` (they are abandoned: detached, counted, their slot freed).
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

    # -- claiming ----------------------------------------------------------------------------------

    async def _claim_round(self) -> None:
        free = self.slots.free()
        if not any(free.values()):
            return
        try:
            leases = await self._mailbox.claim(
                self._agent_id,
                self._instance_id,
                free,
                held={w.lease.message.message_id for w in self._working.values()},
            )
        except StoreUnavailable:
            await self._clock.sleep(STORE_PAUSE_S)
            self._wake.set()
            return
        for lease in leases:
            faults.point("mailbox.claimed")
            self._start(lease)

    def _start(self, lease: Lease) -> None:
        work = Work(lease, self.slots.take(lease.message.lane))
        task = self._tasks.spawn(self._handle(work), name=f"turn:{lease.message.message_id}")
        self._working[task] = work
        task.add_done_callback(self._ended)

    async def _handle(self, work: Work) -> None:
        try:
            await self._handler.handle(work)
        except (LeaseLost, StoreUnavailable):
            # Lost: someone else has it. Unavailable: the lease runs out and is taken again.
            return
        except ExitRequested as request:
            self._fail(request, None)
        except AgentsupError as error:
            self._fail(error, work.lease)
        except Exception as error:  # noqa: BLE001 - supervision boundary: the stack's crash
            self._fail(error, work.lease)

    def _fail(self, error: BaseException, culprit: Lease | None) -> None:
        if self._failure is None:
            self._failure, self._culprit = error, culprit
        self._wake.set()

    def _ended(self, task: asyncio.Task[None]) -> None:
        work = self._working.pop(task, None)
        if work is not None:
            work.slot.finish()
            self.stats.finished += 1
        self._wake.set()

    def _abandon(self, task: asyncio.Task[None]) -> None:
        work = self._working.pop(task, None)
        if work is not None:
            work.slot.finish()
            self.stats.abandoned += 1
            self.stats.names_abandoned = [*self.stats.names_abandoned[-9:], task.get_name()]
        self._wake.set()

    async def _pause(self) -> None:
        """Until woken, until a delayed message is due, or the net."""
        if self._wake.is_set():
            return
        timeout_s = NET_S
        if not self._draining:
            due_at = await self._mailbox.next_due_at(self._agent_id)
            if due_at is not None:
                timeout_s = min(NET_S, max(0.0, (due_at - self._clock.now_ms()) / 1000))
        try:
            async with asyncio.timeout(timeout_s):
                await self._wake.wait()
        except TimeoutError:
            return

    async def _watch_drain(self, draining: asyncio.Event) -> None:
        await draining.wait()
        self._draining = True
        self._wake.set()

    # -- leases ------------------------------------------------------------------------------------

    async def _renew(self) -> None:
        while True:
            await self._clock.sleep(LEASE_RENEW_S)
            held = list(self._working.items())
            if not held:
                continue
            try:
                lost = await self._mailbox.renew([work.lease for _, work in held])
            except StoreUnavailable:
                continue
            for task, work in held:
                if work.lease.message.message_id in lost and not task.done():
                    work.stopped = True
                    task.cancel()

    async def _settle_rest(self) -> None:
        """Cancel what still runs and give its leases back; name the culprit of a crash."""
        rest = dict(self._working)
        for task in rest:
            task.cancel()
        if rest:
            _, pending = await asyncio.wait(rest, timeout=1.0)
            for task in pending:
                self._abandon(task)
        await self._tasks.close(timeout_s=0.5)
        try:
            for work in rest.values():
                if not work.stopped and work.lease is not self._culprit:
                    await self._release(work.lease)
            if self._culprit is not None:
                text = f"{type(self._failure).__name__}: {self._failure}"
                await self._mailbox.crashed(self._instance_id, text)
        except StoreUnavailable:
            return  # void by the next instance's or boot's claim, once the lease has run out

    async def _release(self, lease: Lease) -> None:
        try:
            await self._mailbox.release(lease)
        except LeaseLost:
            return
