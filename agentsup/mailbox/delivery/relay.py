"""The relay: takes parts from the outbox to the channels, in order within each conversation.

Each conversation with due parts has a lane, which is a task of its own, so a failing conversation
delays no other. Per channel a bounded number of lanes deliver at once, and a slow delivery gives
its slot to another lane while it lasts (P3). Deliveries run outside transactions; the end of one
and the beginning of the next are a single commit (P1, P2).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial

from agentsup.kit.clock import Clock
from agentsup.kit.entropy import Entropy
from agentsup.kit.log import get_logger
from agentsup.kit.tasks import TaskOwner, call_after, is_set_within
from agentsup.mailbox.delivery import outbox, steps
from agentsup.mailbox.delivery.attempt import DeliveryAttempts, RelayLimits, RelayStats
from agentsup.mailbox.delivery.steps import (
    ConversationHead,
    DeliveryLane,
    DeliveryStep,
    Settlement,
)
from agentsup.mailbox.messages.steady_clock import SteadyClock
from agentsup.model.channel import Channel, NotBegun, OutboxPart
from agentsup.model.errors import Overloaded, StoreUnavailable
from agentsup.store import Database, Reader, Tx, is_over

_log = get_logger(__name__)
_HEADS_MAX = 4_096
_CLOSE_S = 1.0


class Relay:
    """Delivers the parts of the outbox. ``run`` is the body of a supervised child."""

    def __init__(
        self,
        database: Database,
        clock: Clock,
        entropy: Entropy,
        channels: Mapping[str, Channel],
        *,
        boot_id: str,
        steady: SteadyClock | None = None,
        limits: RelayLimits | None = None,
    ) -> None:
        """``channels`` maps names to channels and may change while the relay runs.

        Parts of a missing channel wait. An ``idempotent`` channel may be given a part twice.
        ``steady`` is the mailbox's clock, by which pauses are measured.
        """
        self.stats = RelayStats()
        self._entropy = entropy
        self._context = _RelayContext(
            database,
            clock,
            steady or SteadyClock(clock),
            channels,
            boot_id,
            limits or RelayLimits(),
            self.stats,
        )

    async def run(self, ready: Callable[[], None], draining: asyncio.Event) -> None:
        """Deliver until ``draining`` is set, then finish the current deliveries and return.

        If it is cancelled during a delivery, the row stays as it is: the next run sends the part
        again through an idempotent channel and marks it unknown on any other. Raises
        ``StoreUnavailable`` if the store was closed or stopped; other faults of the store are
        waited out.
        """
        context = self._context
        deliveries = DeliveryAttempts(context.clock, self._entropy, context.limits, self.stats)
        try:
            await _RelayRun(context, deliveries, draining).run(ready)
        finally:
            await deliveries.close()

    async def emptied(self, timeout_s: float) -> bool:
        """Wait, at most ``timeout_s``, until no part is due; False if some still are.

        For an orderly shutdown: the answer of the last turn should not wait for the next boot.
        """
        context, changed = self._context, asyncio.Event()

        def is_due(reader: Reader) -> bool:
            now = context.steady.now_ms()
            heads = (h for name in context.channels for h in steps.heads(reader, name, _HEADS_MAX))
            return any(head.not_before <= now for head in heads)

        unlisten = context.database.listen("events", changed.set)
        try:
            async with asyncio.timeout(timeout_s):
                while await context.database.read(is_due, name="relay.emptied"):
                    await changed.wait()
                    changed.clear()
        except (TimeoutError, StoreUnavailable, Overloaded):
            return False
        finally:
            unlisten()
        return True


@dataclass(frozen=True, slots=True, eq=False)
class _RelayContext:
    """The dependencies that all runs of the relay share."""

    database: Database
    clock: Clock
    steady: SteadyClock
    channels: Mapping[str, Channel]
    boot_id: str
    limits: RelayLimits
    stats: RelayStats

    def monotonic_at(self, not_before: int) -> float:
        """The monotonic time (s) of ``not_before`` (ms, by the steady clock)."""
        return self.clock.monotonic() + (not_before - self.steady.now_ms()) / 1000

    async def wait_for_store(self, error: StoreUnavailable | Overloaded) -> None:
        """Pause while the store can't be used; raise ``error`` if it was closed or stopped."""
        if is_over(error):
            raise error
        _log.warning(f"the relay waits for the store: {error}")
        await self.clock.sleep(self.limits.store_pause_s)


@dataclass(slots=True, eq=False)
class _Route:
    """One channel in one run of the relay."""

    name: str
    slots: asyncio.Semaphore
    unlisten: Callable[[], None] = lambda: None
    dirty: bool = True
    """Parts may have been added since the heads were last read."""
    due_s: float | None = None
    """When the earliest postponed part is due (monotonic)."""
    lanes: dict[tuple[str, str], _Lane] = field(default_factory=dict)

    def postpone(self, until_s: float) -> None:
        """Read the heads again at ``until_s`` (monotonic) or earlier."""
        self.due_s = until_s if self.due_s is None else min(self.due_s, until_s)


class _RelayRun:
    """One run of the relay: finds due parts and starts a lane for each of their conversations."""

    def __init__(
        self, context: _RelayContext, deliveries: DeliveryAttempts, draining: asyncio.Event
    ) -> None:
        self._context = context
        self._deliveries = deliveries
        self._draining = draining
        self._wake = asyncio.Event()
        self._routes: dict[str, _Route] = {}
        self._tasks = TaskOwner("relay", on_error=_lane_failed)
        self._net_at = 0.0

    async def run(self, ready: Callable[[], None]) -> None:
        self._net_at = self._context.clock.monotonic() + self._context.limits.net_s
        try:
            self._match_channels()
            self._tasks.spawn(call_after(self._draining, self._wake.set), name="drain:relay")
            ready()
            while not self._draining.is_set():
                self._wake.clear()
                await self._round()
                await self._pause()
            while any(route.lanes for route in self._routes.values()):
                self._wake.clear()
                await self._wake.wait()
        finally:
            for route in self._routes.values():
                route.unlisten()
            await self._tasks.close(_CLOSE_S)

    def _match_channels(self) -> None:
        """Add routes for new channels."""
        for name in self._context.channels:
            if name not in self._routes:
                route = _Route(name, asyncio.Semaphore(self._context.limits.slots))
                route.unlisten = self._context.database.listen(
                    outbox.topic_of(name), partial(self._touched, route)
                )
                self._routes[name] = route

    def _touched(self, route: _Route) -> None:
        route.dirty = True
        for lane in route.lanes.values():
            lane.by_net = False  # as in _look: the wake was not lost
        self._wake.set()

    async def _round(self) -> None:
        """Read the channels with new or due parts; every ``net_s`` seconds all of them."""
        monotonic = self._context.clock.monotonic()
        by_net = monotonic >= self._net_at
        if by_net:
            self._net_at = monotonic + self._context.limits.net_s
            self._match_channels()
        for route in tuple(self._routes.values()):
            is_due = route.due_s is not None and route.due_s <= monotonic
            if route.dirty or is_due:
                await self._look(route, by_net=False)
            elif by_net:
                await self._look(route, by_net=True)

    async def _look(self, route: _Route, *, by_net: bool) -> None:
        was_dirty, route.dirty, route.due_s = route.dirty, False, None
        channel = self._context.channels.get(route.name)
        if channel is None:
            route.dirty = was_dirty  # to be read when the channel is back
            return
        try:
            heads = await self._context.database.read(
                steps.heads, route.name, _HEADS_MAX, name="relay.heads"
            )
        except (StoreUnavailable, Overloaded) as error:
            route.dirty = True
            await self._context.wait_for_store(error)
            return
        now = self._context.steady.now_ms()
        by_net &= not route.dirty  # a wake came during the read, so none was lost
        for head in heads:
            lane = route.lanes.get((head.agent_id, head.conversation))
            if lane is not None:
                lane.looked_at = True
                lane.by_net &= by_net
            elif head.not_before > now:
                route.postpone(self._context.monotonic_at(head.not_before))
            elif len(route.lanes) < self._context.limits.lanes:
                self._start(route, channel, head, by_net=by_net and not head.not_before)

    def _start(
        self, route: _Route, channel: Channel, head: ConversationHead, *, by_net: bool
    ) -> None:
        key = (head.agent_id, head.conversation)
        lane = _Lane(self._context, self._deliveries, route, channel, key, by_net)
        route.lanes[lane.key] = lane
        self._context.stats.lanes += 1
        self._tasks.spawn(self._serve(lane), name=f"relay:{route.name}/{'/'.join(lane.key)}")

    async def _serve(self, lane: _Lane) -> None:
        route = lane.route
        try:
            await lane.serve(self._draining)
        finally:
            lane.release_slot()
            del route.lanes[lane.key]
            if len(route.lanes) == self._context.limits.lanes - 1:
                route.dirty = True  # others may have waited for a lane
            self._context.stats.lanes -= 1
            self._wake.set()

    async def _pause(self) -> None:
        """Wait for a wake, the next postponed part or the next ``net_s`` check."""
        clock = self._context.clock
        wait_s = self._net_at - clock.monotonic()
        dues = [route.due_s for route in self._routes.values() if route.due_s is not None]
        if dues:
            wait_s = min(wait_s, min(dues) - clock.monotonic())
        await is_set_within(self._wake, max(0.0, wait_s))


@dataclass(slots=True, eq=False)
class _Lane:
    """Delivers the due parts of one conversation."""

    context: _RelayContext
    deliveries: DeliveryAttempts
    route: _Route
    channel: Channel
    key: tuple[str, str]
    """The agent's id and the conversation."""
    by_net: bool
    """Found by the ``net_s`` check, without a wake."""
    looked_at: bool = False
    """The head was read again since the lane's last check: check once more before ending."""
    holds_slot: bool = False
    pending: Settlement | None = None

    def release_slot(self) -> None:
        """Release the slot to another lane of the channel. A second call does nothing."""
        if self.holds_slot:
            self.holds_slot = False
            self.route.slots.release()

    async def serve(self, draining: asyncio.Event) -> None:
        """Deliver until nothing is due; if ``draining`` is set, finish the current delivery."""
        is_done = False
        while not draining.is_set() and (not is_done or self.looked_at):
            self.looked_at = False
            await self.route.slots.acquire()
            self.holds_slot = True
            is_done = await self._burst(draining)
            self.release_slot()

    async def _burst(self, draining: asyncio.Event) -> bool:
        """Deliver a few parts; True if none is left that is due."""
        for _ in range(self.context.limits.burst):
            if not self.holds_slot or draining.is_set():
                break
            step = await self._step(fetch=True)
            if step.delivered:
                self._note_wake()
            if step.part is None:
                if step.not_before is not None:
                    self.route.postpone(self.context.monotonic_at(step.not_before))
                return True
            self._note_wake()
            self.pending = await self.deliveries.deliver(
                self.channel, step.part, self.release_slot, partial(self._mark, step.part)
            )
        if self.pending is not None:
            await self._step(fetch=False)
        return False

    def _note_wake(self) -> None:
        if self.by_net:
            self.context.stats.lost_wakes += 1
            _log.warning(f"{self.route.name}/{'/'.join(self.key)} had lost its wake")
        self.by_net = False

    async def _mark(self, part: OutboxPart, is_begun: bool) -> None:
        """Commit that the next piece is about to be sent, or was refused. Raises ``NotBegun``."""
        boot_id = self.context.boot_id if is_begun else ""
        begin_tx = partial(steps.begin_tx, outbox_id=part.outbox_id, boot_id=boot_id)
        try:
            is_open = await self.context.database.write(begin_tx, name="relay.begin", closing=True)
        except (StoreUnavailable, Overloaded) as error:
            raise NotBegun(f"the store can't note that it is sent: {error.message}") from error
        if not is_open:
            raise NotBegun("it was settled before it was sent")

    async def _step(self, *, fetch: bool) -> DeliveryStep:
        """Commit how the last delivery ended and begin the next; wait for the store if needed."""
        step_tx = partial(self._step_tx, settlement=self.pending, fetch=fetch)
        while True:
            try:
                step = await self.context.database.write(step_tx, name="relay.step", closing=True)
            except (StoreUnavailable, Overloaded) as error:
                await self.context.wait_for_store(error)
            else:
                self.pending = None
                self.context.stats.unknown += step.given_up
                self.context.stats.delivered += step.delivered
                return step

    def _step_tx(self, tx: Tx, *, settlement: Settlement | None, fetch: bool) -> DeliveryStep:
        channel = self.channel
        lane = DeliveryLane(
            self.route.name, *self.key, channel.idempotent, channel.in_pieces, channel.is_event
        )
        return steps.step_tx(
            tx,
            lane,
            settlement,
            fetch=fetch,
            now=self.context.clock.now_ms(),
            own_ms=self.context.steady.now_ms(),
        )


def _lane_failed(task: asyncio.Task[object], error: BaseException) -> None:
    _log.error(f"{task.get_name()} ended with an error", exc_info=error)
