"""Slots per lane: how many turns of an agent run at once.

A turn that waits for another message gives its slot back. Afterwards it gets a slot before any new
turn does: otherwise a stream of new work would starve the turns that already hold a session.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Callable, Collection, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager

from agentsup.model.message import LaneName

_LANES = tuple(LaneName)
"""A constant, because iterating the enum looks its members up again for each claim."""


class SharedSlots:
    """Slots that all agents of the daemon share, in addition to the slots of each agent.

    Agents that find no free slot are woken in order, one at a time. Each wakes the next when it has
    taken what it needs.
    """

    def __init__(self, limit: Callable[[], int]) -> None:
        """``limit`` is called each time, so that a changed limit takes effect at once."""
        self._limit = limit
        self._used = 0
        self._reserved = 0
        self._starved: dict[Callable[[], None], None] = {}

    def free(self) -> int:
        """Number of slots that are neither used nor reserved."""
        return max(0, self._limit() - self._used - self._reserved)

    def want(self, waker: Callable[[], None]) -> None:
        """Call ``waker`` when there may be a free slot, which may be now."""
        self._starved[waker] = None
        self._wake_next()

    def keep(self, count: int) -> None:
        """Reserve ``count`` free slots for the caller."""
        self._reserved += count

    def unreserve(self, count: int) -> None:
        """Give up ``count`` reserved slots that were not taken, and wake the next agent."""
        self._reserved -= count
        self._wake_next()

    def take(self, *, reserved: bool) -> None:
        """Take one slot; ``reserved``: one of the reserved ones."""
        self._used += 1
        self._reserved -= reserved

    def give(self) -> None:
        """Release one slot, and wake the next agent."""
        self._used -= 1
        self._wake_next()

    def may_pass_on(self, waker: Callable[[], None]) -> bool:
        """Whether the agent of ``waker`` may keep a slot for its next turn, because no other agent
        waits."""
        return self._used <= self._limit() and all(each == waker for each in self._starved)

    def remove_waker(self, waker: Callable[[], None]) -> None:
        """Remove a waker that needs no slot any more, and wake the next agent."""
        self._starved.pop(waker, None)
        self._wake_next()

    def resized(self) -> None:
        """Wake the next agent because the limit has changed."""
        self._wake_next()

    def _wake_next(self) -> None:
        if self._starved and self.free():
            waker = next(iter(self._starved))
            del self._starved[waker]
            waker()


class SlotPool:
    """An agent's slots per lane. ``on_free`` is called when a slot may be free for new work."""

    def __init__(
        self,
        limits: Mapping[LaneName, int],
        on_free: Callable[[], None],
        shared: Mapping[LaneName, SharedSlots] | None = None,
        *,
        on_shared: Callable[[], None] | None = None,
    ) -> None:
        """A turn in a lane of ``shared`` takes a slot of the agent and a shared one; ``on_shared``
        is called when there may be a shared one that was asked for."""
        self._shared = dict(shared or {})
        self._limits = dict(limits)
        self._used = dict.fromkeys(_LANES, 0)
        self._reserved = dict.fromkeys(_LANES, 0)
        self._returning: dict[LaneName, deque[asyncio.Future[None]]] = {
            lane: deque() for lane in _LANES
        }
        self._on_free = on_free
        self._on_shared = on_shared or on_free

    def resize(self, limits: Mapping[LaneName, int]) -> None:
        """Set new limits. Running turns above a lowered limit finish undisturbed."""
        self._limits = dict(limits)
        for lane in _LANES:
            self._hand_over(lane)
        self._on_free()

    def free(self) -> dict[LaneName, int]:
        """Slots that new work may take now."""
        return {lane: 0 if self._returning[lane] else self._room(lane) for lane in _LANES}

    def _room(self, lane: LaneName) -> int:
        own = max(0, self._limits[lane] - self._used[lane])
        shared = self._shared.get(lane)
        return min(own, shared.free()) if own and shared is not None else own

    def want(self, lanes: Collection[LaneName]) -> None:
        """Ask for shared slots in these lanes, for work that the agent has; ``on_free`` is called
        when there may be one."""
        for lane, shared in self._shared.items():
            if lane in lanes and self._used[lane] < self._limits[lane]:
                shared.want(self._on_shared)

    def keep(self) -> dict[LaneName, int]:
        """Reserve the free slots for new work until ``unreserve``, and return their numbers.

        While a claim is being committed, a turn that returns from a wait must not take a slot that
        the claim counts on.
        """
        self._reserved = self.free()
        for lane, shared in self._shared.items():
            shared.keep(self._reserved[lane])
        return dict(self._reserved)

    def take(self, lane: LaneName) -> TurnSlot:
        self._use(lane, reserved=self._reserved[lane] > 0)
        self._reserved[lane] = max(0, self._reserved[lane] - 1)
        return TurnSlot(self, lane)

    def _use(self, lane: LaneName, *, reserved: bool = False) -> None:
        self._used[lane] += 1
        if lane in self._shared:
            self._shared[lane].take(reserved=reserved)

    def unreserve(self) -> None:
        """Give reserved slots that were not taken to returning turns and to other agents.

        An agent that was woken always calls this in the end, because it wakes the next one.
        """
        reserved, self._reserved = self._reserved, dict.fromkeys(_LANES, 0)
        for lane, shared in self._shared.items():
            shared.unreserve(reserved[lane])
        handed = [self._hand_over(lane) for lane in _LANES]
        if any(handed):
            self._on_free()  # no new work was begun in that lane, and there may be room for more

    def close(self) -> None:
        """Stop waiting for shared slots: no turn takes a slot any more."""
        for shared in self._shared.values():
            shared.remove_waker(self._on_shared)

    def may_pass_on(self, lane: LaneName) -> bool:
        """Whether a turn that ends may leave its slot to the next one of its agent: nobody else
        waits for the slot, and it is within the limit."""
        shared, is_wanted = self._shared.get(lane), bool(self._returning[lane])
        is_within = self._used[lane] <= self._limits[lane]
        may_keep = shared is None or shared.may_pass_on(self._on_shared)
        return is_within and not is_wanted and may_keep

    def _give(self, lane: LaneName) -> None:
        self._used[lane] -= 1
        if lane in self._shared:
            self._shared[lane].give()
        self._hand_over(lane)
        self._on_free()

    def _hand_over(self, lane: LaneName) -> bool:
        """Give free slots to returning turns; whether one got a slot."""
        waiting, has_given = self._returning[lane], False
        while waiting and self._has_room(lane):
            future = waiting.popleft()
            if not future.done():
                self._use(lane)
                future.set_result(None)
                has_given = True
        if waiting and lane in self._shared and not self._shared[lane].free():
            self.want((lane,))
        return has_given

    def _has_room(self, lane: LaneName) -> bool:
        shared = self._shared.get(lane)
        return self._used[lane] + self._reserved[lane] < self._limits[lane] and (
            shared is None or shared.free() > 0
        )

    async def _retake(self, lane: LaneName) -> None:
        if self._has_room(lane) and not self._returning[lane]:
            self._use(lane)
            return
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._returning[lane].append(future)
        self._hand_over(lane)
        try:
            await future
        except asyncio.CancelledError:
            if future.done() and not future.cancelled():
                self._give(lane)
            elif future in self._returning[lane]:
                self._returning[lane].remove(future)
                self._on_free()  # while it waited, new work could not use the lane
            raise


class TurnSlot:
    """One turn's slot. Implements ``model.tool.ReleasableSlot``."""

    def __init__(self, slots: SlotPool, lane: LaneName) -> None:
        self._slots = slots
        self._lane = lane
        self._is_taken = True
        self._finished = False
        self._waits = 0
        self._retaking = asyncio.Lock()
        self.on_suspend: Callable[[], bool] = lambda: False
        self._watchers: list[tuple[Callable[[], object], Callable[[], object]]] = []

    @contextmanager
    def watched(self, rest: Callable[[], object], wake: Callable[[], object]) -> Iterator[None]:
        """Inside the block, call ``rest`` when the slot is released, ``wake`` when it is back."""
        watcher = (rest, wake)
        self._watchers.append(watcher)
        try:
            yield
        finally:
            self._watchers.remove(watcher)

    @asynccontextmanager
    async def released(self) -> AsyncIterator[None]:
        """Give the slot back inside the block. Parallel waits of one turn give it back once.

        It is taken again after the block, also after a wait that failed; a cancelled turn does not
        wait for it any more.
        """
        self._waits += 1
        if self._is_taken:
            self._is_taken = False
            for rest, _ in self._watchers:
                rest()
            self._slots._give(self._lane)  # noqa: SLF001 - the slot is part of its Slots
        try:
            yield
        except (asyncio.CancelledError, GeneratorExit):
            self._waits -= 1
            raise
        except BaseException:
            self._waits -= 1
            await self._take_again()
            raise
        self._waits -= 1
        await self._take_again()

    def suspend(self) -> bool:
        """End the turn for now if it only waits for a person. Whether it ends (see ``Pump``)."""
        return self.on_suspend()

    async def _take_again(self) -> None:
        # Two waits may end, or one end and another begin, while the lane is full.
        async with self._retaking:
            if not self._needs_slot():
                return
            await self._slots._retake(self._lane)  # noqa: SLF001 - as above
            if self._needs_slot():
                self._is_taken = True
                for _, wake in self._watchers:
                    wake()
            else:
                self._slots._give(self._lane)  # noqa: SLF001 - as above

    def _needs_slot(self) -> bool:
        return not (self._is_taken or self._waits or self._finished)

    @property
    def may_pass_on(self) -> bool:
        """Whether the agent's next turn may take the slot over."""
        return self._is_taken and self._slots.may_pass_on(self._lane)

    def pass_on(self) -> TurnSlot | None:
        """End the use of the slot and return it for the next turn; None if it is not taken."""
        self._finished = True
        if not self._is_taken:
            return None
        self._is_taken = False
        return TurnSlot(self._slots, self._lane)

    def finish(self) -> None:
        """Release the slot for good: the turn has ended or was abandoned. Idempotent."""
        self._finished = True
        if self._is_taken:
            self._is_taken = False
            self._slots._give(self._lane)  # noqa: SLF001 - as above
