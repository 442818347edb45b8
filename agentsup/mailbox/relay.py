"""The relay: takes parts from the outbox to the channels, in order within each conversation.

Every conversation with something to deliver has a lane, a task of its own, so a sick one holds up
nobody else; per channel a bounded number of lanes deliver at once, and a delivery that is slow
gives its place to others while it lasts (P3). Deliveries run outside transactions; how one ended
is a single commit, together with the beginning of the next (P1, P2).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial

from agentsup.kit.clock import Clock
from agentsup.kit.entropy import Entropy
from agentsup.kit.tasks import TaskOwner
from agentsup.mailbox import outbox
from agentsup.mailbox.delivery import Deliveries, RelayLimits, RelayStats
from agentsup.mailbox.outbox import Head, Settlement, Step
from agentsup.mailbox.steady import SteadyClock
from agentsup.model.channel import Channel, NotBegun, OutboxPart
from agentsup.model.errors import Overloaded, StoreUnavailable
from agentsup.store.database import Database, Reader, Tx
from agentsup.store.failures import Trouble

__all__ = ["Relay", "RelayLimits", "RelayStats"]

_log = logging.getLogger(__name__)
_OVER = frozenset({Trouble.CLOSED.value, Trouble.STOPPED.value})
_HEADS_MAX = 4_096
_CLOSE_S = 1.0


class Relay:
    """Delivers what the outbox holds. ``run`` is the body of a supervised child."""

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
        """``steady`` is the clock of the mailbox beside, by which pauses are kept. ``channels`` by name; it may change while the relay runs, parts of a channel that is
        missing wait. An ``idempotent`` channel may be given a part twice."""
        self._limits = limits or RelayLimits()
        self.stats = RelayStats()
        self._clock = clock
        self._entropy = entropy
        self._ground = _Ground(
            database,
            clock,
            steady or SteadyClock(clock),
            channels,
            boot_id,
            self._limits,
            self.stats,
        )

    async def run(self, ready: Callable[[], None], draining: asyncio.Event) -> None:
        """Deliver until ``draining`` is set, then let what is under way end and return.

        Cancelled in the midst of a delivery, it leaves the row as it is: the next run sends it
        again through an idempotent channel and calls it unknown on any other. Raises
        ``StoreUnavailable`` when the store was closed under it; other troubles of the store are
        waited out.
        """
        deliveries = Deliveries(self._clock, self._entropy, self._limits, self.stats)
        try:
            await _Run(self._ground, deliveries, draining).run(ready)
        finally:
            await deliveries.close()

    async def emptied(self, timeout_s: float) -> bool:
        """Wait, at most ``timeout_s``, until no part is due; False if some still are.

        For an orderly end: the answer of a turn that ended last should not wait for the next boot.
        """
        ground, changed = self._ground, asyncio.Event()

        def is_due(reader: Reader) -> bool:
            now = ground.steady.now_ms()
            heads = (h for name in ground.channels for h in outbox.heads(reader, name, _HEADS_MAX))
            return any(head.not_before <= now for head in heads)

        unlisten = ground.database.listen("events", changed.set)
        try:
            async with asyncio.timeout(timeout_s):
                while await ground.database.read(is_due, name="relay.emptied"):
                    await changed.wait()
                    changed.clear()
        except (TimeoutError, StoreUnavailable, Overloaded):
            return False
        finally:
            unlisten()
        return True


@dataclass(frozen=True, slots=True, eq=False)
class _Ground:
    """What every life of the relay stands on."""

    database: Database
    clock: Clock
    steady: SteadyClock
    channels: Mapping[str, Channel]
    boot_id: str
    limits: RelayLimits
    stats: RelayStats

    def monotonic_at(self, not_before: int) -> float:
        """When that time of the steady clock has come."""
        return self.clock.monotonic() + (not_before - self.steady.now_ms()) / 1000

    async def wait_for_store(self, error: StoreUnavailable | Overloaded) -> None:
        """Pause while the store can't be used; raises ``error`` if it never will be again."""
        if error.facts.get("reason") in _OVER:
            raise error
        _log.warning("the relay waits for the store: %s", error)
        await self.clock.sleep(self.limits.store_pause_s)


@dataclass(slots=True, eq=False)
class _Route:
    """One channel in one life of the relay."""

    name: str
    places: asyncio.Semaphore
    unlisten: Callable[[], None] = lambda: None
    dirty: bool = True
    """Parts may have come since the heads were last looked at."""
    due_s: float | None = None
    """When the earliest postponed part is due (monotonic)."""
    lanes: dict[tuple[str, str], _Lane] = field(default_factory=dict)

    def postpone(self, until_s: float) -> None:
        """Look again at ``until_s`` (monotonic) or earlier."""
        self.due_s = until_s if self.due_s is None else min(self.due_s, until_s)


class _Run:
    """One life of the relay: finds work and starts a lane for each conversation that has some."""

    def __init__(self, ground: _Ground, deliveries: Deliveries, draining: asyncio.Event) -> None:
        self._ground = ground
        self._deliveries = deliveries
        self._draining = draining
        self._wake = asyncio.Event()
        self._routes: dict[str, _Route] = {}
        self._tasks = TaskOwner("relay", on_error=_lane_failed)
        self._net_at = 0.0

    async def run(self, ready: Callable[[], None]) -> None:
        self._net_at = self._ground.clock.monotonic() + self._ground.limits.net_s
        try:
            self._match_channels()
            self._tasks.spawn(self._watch_drain(), name="drain:relay")
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

    async def _watch_drain(self) -> None:
        await self._draining.wait()
        self._wake.set()

    def _match_channels(self) -> None:
        """Follow the mapping of channels, which may have grown."""
        for name in self._ground.channels:
            if name not in self._routes:
                route = _Route(name, asyncio.Semaphore(self._ground.limits.places))
                route.unlisten = self._ground.database.listen(
                    outbox.topic_of(name), partial(self._touched, route)
                )
                self._routes[name] = route

    def _touched(self, route: _Route) -> None:
        route.dirty = True
        for lane in route.lanes.values():
            lane.by_net = False  # as in a look: the wake was not lost
        self._wake.set()

    async def _round(self) -> None:
        """Look at the channels that have news, or at all of them when the net's time has come."""
        monotonic = self._ground.clock.monotonic()
        by_net = monotonic >= self._net_at
        if by_net:
            self._net_at = monotonic + self._ground.limits.net_s
            self._match_channels()
        for route in tuple(self._routes.values()):
            is_due = route.due_s is not None and route.due_s <= monotonic
            if route.dirty or is_due:
                await self._look(route, by_net=False)
            elif by_net:
                await self._look(route, by_net=True)

    async def _look(self, route: _Route, *, by_net: bool) -> None:
        was_dirty, route.dirty, route.due_s = route.dirty, False, None
        channel = self._ground.channels.get(route.name)
        if channel is None:
            route.dirty = was_dirty  # for when it is back
            return
        try:
            heads = await self._ground.database.read(
                lambda reader: outbox.heads(reader, route.name, _HEADS_MAX), name="relay.heads"
            )
        except (StoreUnavailable, Overloaded) as error:
            route.dirty = True
            await self._ground.wait_for_store(error)
            return
        now = self._ground.steady.now_ms()
        by_net &= not route.dirty  # told meanwhile: the net came first, by a moment
        for head in heads:
            lane = route.lanes.get((head.agent_id, head.conversation))
            if lane is not None:
                lane.looked_at = True
                lane.by_net &= by_net
            elif head.not_before > now:
                route.postpone(self._ground.monotonic_at(head.not_before))
            elif len(route.lanes) < self._ground.limits.lanes:
                self._start(route, channel, head, by_net=by_net and not head.not_before)

    def _start(self, route: _Route, channel: Channel, head: Head, *, by_net: bool) -> None:
        lane = _Lane(
            ground=self._ground,
            deliveries=self._deliveries,
            route=route,
            channel=channel,
            head=head,
            by_net=by_net,
        )
        route.lanes[lane.key] = lane
        self._ground.stats.lanes += 1
        self._tasks.spawn(self._serve(lane), name=f"relay:{route.name}/{'/'.join(lane.key)}")

    async def _serve(self, lane: _Lane) -> None:
        route = lane.route
        try:
            await lane.serve(self._draining)
        finally:
            lane.give_place()
            del route.lanes[lane.key]
            if len(route.lanes) == self._ground.limits.lanes - 1:
                route.dirty = True  # others may have waited for a lane
            self._ground.stats.lanes -= 1
            self._wake.set()

    async def _pause(self) -> None:
        """Wait for news, for the next postponed part or for the net, whichever comes first."""
        clock = self._ground.clock
        wait_s = self._net_at - clock.monotonic()
        dues = [route.due_s for route in self._routes.values() if route.due_s is not None]
        if dues:
            wait_s = min(wait_s, min(dues) - clock.monotonic())
        try:
            async with asyncio.timeout(max(0.0, wait_s)):
                await self._wake.wait()
        except TimeoutError:
            return


class _Lane:
    """One conversation being worked on."""

    def __init__(
        self,
        *,
        ground: _Ground,
        deliveries: Deliveries,
        route: _Route,
        channel: Channel,
        head: Head,
        by_net: bool,
    ) -> None:
        self._ground = ground
        self._deliveries = deliveries
        self._channel = channel
        self.route = route
        self.key = (head.agent_id, head.conversation)
        self.by_net = by_net
        """Found by the net, without a wake."""
        self.looked_at = False
        """Its head was seen again since it last looked: look once more before ending."""
        self._holds_place = False
        self._pending: Settlement | None = None

    def give_place(self) -> None:
        """Let another lane of the channel deliver; harmless when repeated."""
        if self._holds_place:
            self._holds_place = False
            self.route.places.release()

    async def serve(self, draining: asyncio.Event) -> None:
        """Deliver until nothing is due, or until what is under way has ended if ``draining``."""
        is_done = False
        while not draining.is_set() and (not is_done or self.looked_at):
            self.looked_at = False
            await self.route.places.acquire()
            self._holds_place = True
            is_done = await self._burst(draining)
            self.give_place()

    async def _burst(self, draining: asyncio.Event) -> bool:
        """Deliver a few parts; True if none is left that is due."""
        for _ in range(self._ground.limits.burst):
            if not self._holds_place or draining.is_set():
                break
            step = await self._step(fetch=True)
            if step.part is None:
                if step.not_before is not None:
                    self.route.postpone(self._ground.monotonic_at(step.not_before))
                return True
            self._note_wake()
            self._pending = await self._deliveries.deliver(
                self._channel, step.part, self.give_place, partial(self._mark, step.part)
            )
        if self._pending is not None:
            await self._step(fetch=False)
        return False

    def _note_wake(self) -> None:
        if self.by_net:
            self._ground.stats.lost_wakes += 1
            _log.warning("%s/%s had lost its wake", self.route.name, "/".join(self.key))
        self.by_net = False

    async def _mark(self, part: OutboxPart, is_begun: bool) -> None:
        """Commit that the next piece of ``part`` leaves now, or that it was refused. Raises
        ``NotBegun``."""
        boot_id = self._ground.boot_id if is_begun else ""
        begin_tx = partial(outbox.begin_tx, outbox_id=part.outbox_id, boot_id=boot_id)
        try:
            is_open = await self._ground.database.write(begin_tx, name="relay.begin", closing=True)
        except (StoreUnavailable, Overloaded) as error:
            raise NotBegun(f"the store can't note that it is sent: {error.message}") from error
        if not is_open:
            raise NotBegun("it was settled before it was sent")

    async def _step(self, *, fetch: bool) -> Step:
        """Commit how the last delivery ended and begin the next; waits while the store can't."""
        step_tx = partial(self._step_tx, settlement=self._pending, fetch=fetch)
        while True:
            try:
                step = await self._ground.database.write(step_tx, name="relay.step", closing=True)
            except (StoreUnavailable, Overloaded) as error:
                await self._ground.wait_for_store(error)
            else:
                self._pending = None
                self._ground.stats.unknown += step.given_up
                return step

    def _step_tx(self, tx: Tx, *, settlement: Settlement | None, fetch: bool) -> Step:
        agent_id, conversation = self.key
        return outbox.step_tx(
            tx,
            settlement=settlement,
            channel=self.route.name,
            agent_id=agent_id,
            conversation=conversation,
            idempotent=self._channel.idempotent,
            in_pieces=self._channel.in_pieces,
            fetch=fetch,
            now=self._ground.clock.now_ms(),
            own_ms=self._ground.steady.now_ms(),
        )


def _lane_failed(task: asyncio.Task[object], error: BaseException) -> None:
    _log.error("%s ended with an error", task.get_name(), exc_info=error)
