"""The pump: lease → handler → settled, for one agent.

Invariants: the lease is renewed here and never by agent code (P3); a lease whose fence moved
cancels its turn; what a handler leaves unsettled when the pump ends is released to the queue, so
that stopping an agent loses nothing (P1); a stop cancels turns and releases nothing, because the
stop's transaction has already cancelled their rows (P5). A turn that only waits for a person keeps
nobody waiting: a drain ends it at once, and its message stays parked until the answer (P8).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from typing import Protocol

from agentsup.kit import faults
from agentsup.kit.clock import Clock
from agentsup.kit.tasks import TaskOwner
from agentsup.mailbox.mailbox import Mailbox
from agentsup.mailbox.slots import SharedLane, Slots, TurnSlot
from agentsup.model.errors import ExitRequested, LeaseLost, StoreUnavailable
from agentsup.model.ids import AgentId, InstanceId
from agentsup.model.message import LEASE_RENEW_S, Lane, Lease, Message
from agentsup.store.database import Database

NET_S = 60.0
"""A lost wake would be noticed after this long; finding work that way is counted as a fault."""
STORE_PAUSE_S = 1.0
CANCEL_S = 4.0
"""How long cancelled turns may take at the end of a pump; below a stack's own cancel grace of 5 s,
so that leases are given back before the stack itself is given up."""
EXIT_DRAIN_S = 30.0
"""How long other turns may go on after one of them asked the stack to end."""


@dataclass(slots=True, eq=False)
class Work:
    """One lease in progress, as the handler sees it."""

    lease: Lease
    slot: TurnSlot
    stopped: bool = False
    """A stop, an interrupt or a lost lease ended this turn; its row is settled already."""
    note: str = ""
    """What the turn does now, for people."""
    busy: int = 0
    """Calls that are being carried out."""
    asks: int = 0
    """Questions that it waits for in place, while its program lives."""
    is_left: bool = False
    """It was ended for now, because it only waited; its message waits on without it."""
    began_to_ask: Callable[[], None] = lambda: None

    @contextmanager
    def asking(self) -> Iterator[None]:
        """A person is waited for inside the block."""
        self.asks, note, self.note = self.asks + 1, self.note, "waits for leave"
        self.began_to_ask()
        try:
            yield
        finally:
            self.asks, self.note = self.asks - 1, note


class Handler(Protocol):
    """What works on messages. The agent stack is the default; a host may plug in its own.

    It settles the lease (complete, retry, park) before it returns. ``ExitRequested`` after that
    asks the stack to end, once the other turns have ended; any other exception is a crash of the
    stack.
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
        exit_drain_s: float = EXIT_DRAIN_S,
        shared: Mapping[Lane, SharedLane] | None = None,
    ) -> None:
        """``shared`` are lanes whose slots all agents have together, beside their own."""
        self._mailbox = mailbox
        self._database = database
        self._clock = clock
        self._agent_id = agent_id
        self._instance_id = instance_id
        self._handler = handler
        self._wake = asyncio.Event()
        self._has_work = asyncio.Event()
        self._due_s: float | None = None
        """When the next delayed message may start (monotonic)."""
        self.slots = Slots(slots, self._wake.set, shared)
        self._tasks = TaskOwner(f"pump:{agent_id}")
        self._working: dict[asyncio.Task[None], Work] = {}
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

        Raises what escaped from the handler. However it ends, no lease of this pump stays held.
        """
        unlisten = self._database.listen(f"agent:{self._agent_id}", self._wake.set)
        self._tasks.spawn(self._renew(), name=f"renew:{self._agent_id}")
        self._tasks.spawn(self._watch_drain(draining), name=f"drain:{self._agent_id}")
        ready()
        missed = False
        try:
            while self._failure is None and not (self._draining and not self._working):
                self._wake.clear()
                if self._draining:
                    self.slots.let_go()
                else:
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

    async def _claim_round(self) -> bool:
        """Start what may start now; whether there was anything."""
        free = self.slots.keep()
        if not any(free.values()):
            self.slots.let_go()
            return False
        try:
            claimed = await self._mailbox.claim(
                self._agent_id,
                self._instance_id,
                free,
                held={
                    work.lease.message.message_id: work.lease.message.session_id
                    for work in self._working.values()
                },
            )
            self._due_s = None
            if claimed.due_at is not None:
                pause_ms = claimed.due_at - self._mailbox.desk.steady.now_ms()
                self._due_s = self._clock.monotonic() + pause_ms / 1000
            for lease in claimed.leases:
                faults.point("mailbox.claimed")
                self._start(lease)
        except StoreUnavailable:
            self.slots.let_go()
            await self._clock.sleep(STORE_PAUSE_S)
            self._wake.set()
            return False
        finally:
            self.slots.let_go()
        return any(not lease.resumed for lease in claimed.leases)

    def _start(self, lease: Lease) -> None:
        work = Work(lease, self.slots.take(lease.message.lane))
        work.slot.on_let_go = partial(self._leave, work)
        work.began_to_ask = partial(self._leave_if_draining, work)
        task = self._tasks.spawn(self._handle(work), name=f"turn:{lease.message.message_id}")
        self._working[task] = work
        self._has_work.set()
        task.add_done_callback(self._ended)

    async def _handle(self, work: Work) -> None:
        try:
            await self._handler.handle(work)
        except asyncio.CancelledError:
            if work.is_left and not work.stopped:
                await self._put_down(work.lease)
            raise
        except LeaseLost:
            return  # someone else has it, or it was stopped
        except StoreUnavailable as error:
            await self._try_later(work.lease, error)
        except ExitRequested as request:
            self._end_with(request)
        except Exception as error:  # noqa: BLE001 - supervision boundary: the stack's crash
            self._fail(error, work.lease)

    def _leave(self, work: Work) -> bool:
        """End a turn that does nothing but wait for a person."""
        if work.stopped or work.is_left or work.busy or not work.asks:
            return work.is_left
        task = next((task for task, each in self._working.items() if each is work), None)
        if task is None:
            return False
        work.is_left = True
        task.cancel()
        return True

    def _leave_if_draining(self, work: Work) -> None:
        if self._draining:
            self._leave(work)

    def _begin_drain(self) -> None:
        self._draining = True
        for work in list(self._working.values()):
            self._leave(work)
        self._wake.set()

    async def _put_down(self, lease: Lease) -> None:
        """Its message is parked as long as nobody has answered, and queued again otherwise."""
        with suppress(LeaseLost, StoreUnavailable):  # then the next claim finds it
            await self._mailbox.release(lease)

    async def _try_later(self, lease: Lease, error: StoreUnavailable) -> None:
        """The turn could not be settled: it counts as an attempt once the store can write it."""
        while True:
            await self._clock.sleep(STORE_PAUSE_S)
            try:
                await self._mailbox.retry(lease, code=error.code, text=error.message)
            except StoreUnavailable:
                continue
            except LeaseLost:
                return
            return

    def _end_with(self, request: ExitRequested) -> None:
        """Nothing new is begun; the other turns may finish within the drain, then it is raised."""
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

    async def _pause(self) -> bool:
        """Until woken, until a delayed message is due, or the net; whether it was the net."""
        if self._wake.is_set():
            return False
        timeout_s = NET_S
        if not self._draining and self._due_s is not None:
            timeout_s = min(NET_S, max(0.0, self._due_s - self._clock.monotonic()))
        try:
            async with asyncio.timeout(timeout_s):
                await self._wake.wait()
        except TimeoutError:
            return timeout_s == NET_S
        return False

    async def _watch_drain(self, draining: asyncio.Event) -> None:
        await draining.wait()
        self._begin_drain()

    # -- leases ------------------------------------------------------------------------------------

    async def _renew(self) -> None:
        while True:
            if not self._working:  # an idle agent costs no timer
                self._has_work.clear()
                await self._has_work.wait()
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
                    self._tasks.spawn(self._end_lost(task), name=f"lost:{task.get_name()}")

    async def _end_lost(self, task: asyncio.Task[None]) -> None:
        """Another owner works on it now; its slot must not wait for one that won't go."""
        task.cancel()
        await asyncio.wait({task}, timeout=CANCEL_S)
        if not task.done():
            self._abandon(task)

    async def _settle_rest(self) -> None:
        """Cancel what still runs and give every lease back; blame the culprits of a crash.

        A cancellation that comes in the midst of it cuts the waits short and skips no step.
        """
        try:
            await self._end_turns()
        finally:
            try:
                await self._tasks.close(timeout_s=0.5)
            finally:
                await self._let_go()

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

    async def _let_go(self) -> None:
        text = f"{type(self._failure).__name__}: {self._failure}" if self._culprits else ""
        try:
            await self._mailbox.let_go(self._instance_id, culprits=self._culprits, text=text)
        except StoreUnavailable:
            return  # void by the next instance's or boot's claim, once the lease has run out
