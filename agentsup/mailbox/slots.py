"""Slots per lane: how many turns of an agent run at once.

A turn that waits for another message gives its slot back and takes it again afterwards, before any
new turn may have it: otherwise a stream of new work would starve the ones that already hold a
session.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager

from agentsup.model.message import Lane

_LANES = tuple(Lane)
"""An enum that is iterated makes its members out anew, which each claim would pay."""


class SharedLane:
    """Slots that all agents of the daemon have together, beside those each has for itself.

    Who finds none is woken in turn: one at a time, and each passes on what it has no use for.
    """

    def __init__(self, limit: Callable[[], int]) -> None:
        """``limit`` is asked anew each time, so that an edit of it holds at once."""
        self._limit = limit
        self._used = 0
        self._kept = 0
        self._starved: dict[Callable[[], None], None] = {}

    @property
    def used(self) -> int:
        """How many are in use now."""
        return self._used

    def room(self, waker: Callable[[], None]) -> int:
        """How many are free; where there are none, ``waker`` is called when there may be one."""
        free = self._free()
        if not free:
            self._starved[waker] = None
        return free

    def keep(self, count: int) -> None:
        """Keep so many for whoever asks for them now."""
        self._kept += count

    def let_go(self, count: int) -> None:
        """What was kept and not taken is the next one's."""
        self._kept -= count
        self._wake_next()

    def take(self, *, kept: bool) -> None:
        """One is in use, of the kept ones or not."""
        self._used += 1
        self._kept -= kept

    def give(self) -> None:
        """One is free again."""
        self._used -= 1
        self._wake_next()

    def leave(self, waker: Callable[[], None]) -> None:
        """Whoever was to be woken wants nothing any more."""
        self._starved.pop(waker, None)
        self._wake_next()

    def resized(self) -> None:
        """The limit is another one now."""
        self._wake_next()

    def _free(self) -> int:
        return max(0, self._limit() - self._used - self._kept)

    def _wake_next(self) -> None:
        if self._starved and self._free():
            waker = next(iter(self._starved))
            del self._starved[waker]
            waker()


class Slots:
    """Counts per lane. ``on_free`` is called whenever a slot may be free for new work."""

    def __init__(
        self,
        limits: Mapping[Lane, int],
        on_free: Callable[[], None],
        shared: Mapping[Lane, SharedLane] | None = None,
    ) -> None:
        """A turn in a lane of ``shared`` takes a slot of its own and one of those."""
        self._shared = dict(shared or {})
        self._limits = dict(limits)
        self._used = dict.fromkeys(_LANES, 0)
        self._kept = dict.fromkeys(_LANES, 0)
        self._returning: dict[Lane, deque[asyncio.Future[None]]] = {
            lane: deque() for lane in _LANES
        }
        self._on_free = on_free

    def resize(self, limits: Mapping[Lane, int]) -> None:
        """New limits, live. Running turns above a lowered limit finish undisturbed."""
        self._limits = dict(limits)
        for lane in _LANES:
            self._hand_over(lane)
        self._on_free()

    def free(self) -> dict[Lane, int]:
        """Slots that new work may take now."""
        return {lane: 0 if self._returning[lane] else self._room(lane) for lane in _LANES}

    def _room(self, lane: Lane) -> int:
        own = max(0, self._limits[lane] - self._used[lane])
        shared = self._shared.get(lane)
        return min(own, shared.room(self._on_free)) if own and shared is not None else own

    def keep(self) -> dict[Lane, int]:
        """The free slots, kept for new work until ``let_go``: while a claim is on its way, a turn
        that comes back from a wait must not take the slot that the claim was promised."""
        self._kept = self.free()
        for lane, shared in self._shared.items():
            shared.keep(self._kept[lane])
        return dict(self._kept)

    def take(self, lane: Lane) -> TurnSlot:
        self._use(lane, kept=self._kept[lane] > 0)
        self._kept[lane] = max(0, self._kept[lane] - 1)
        return TurnSlot(self, lane)

    def _use(self, lane: Lane, *, kept: bool = False) -> None:
        self._used[lane] += 1
        if lane in self._shared:
            self._shared[lane].take(kept=kept)

    def let_go(self) -> None:
        """What was kept and not taken is for turns that come back, and for other agents. Whoever was
        woken does this in the end, whatever it took: the next one is woken by it."""
        kept, self._kept = self._kept, dict.fromkeys(_LANES, 0)
        for lane, shared in self._shared.items():
            shared.let_go(kept[lane])
        handed = [self._hand_over(lane) for lane in _LANES]
        if any(handed):
            self._on_free()  # no new work was begun in that lane, and there may be room for more

    def close(self) -> None:
        """No turn takes a slot any more."""
        for shared in self._shared.values():
            shared.leave(self._on_free)

    def total(self) -> int:
        return sum(self._limits.values())

    def limit(self, lane: Lane) -> int:
        return self._limits[lane]

    def _give(self, lane: Lane) -> None:
        self._used[lane] -= 1
        if lane in self._shared:
            self._shared[lane].give()
        self._hand_over(lane)
        self._on_free()

    def _hand_over(self, lane: Lane) -> bool:
        """Whether a turn that comes back got a slot."""
        waiting, has_given = self._returning[lane], False
        while waiting and self._has_room(lane):
            future = waiting.popleft()
            if not future.done():
                self._use(lane)
                future.set_result(None)
                has_given = True
        return has_given

    def _has_room(self, lane: Lane) -> bool:
        shared = self._shared.get(lane)
        return self._used[lane] + self._kept[lane] < self._limits[lane] and (
            shared is None or shared.room(self._on_free) > 0
        )

    async def _retake(self, lane: Lane) -> None:
        if self._has_room(lane) and not self._returning[lane]:
            self._use(lane)
            return
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._returning[lane].append(future)
        try:
            await future
        except asyncio.CancelledError:
            if future.done() and not future.cancelled():
                self._give(lane)
            elif future in self._returning[lane]:
                self._returning[lane].remove(future)
                self._on_free()  # it kept new work out of the lane
            raise


class TurnSlot:
    """One turn's slot. Implements ``model.tool.TurnPlace``."""

    def __init__(self, slots: Slots, lane: Lane) -> None:
        self._slots = slots
        self._lane = lane
        self._held = True
        self._finished = False
        self._waits = 0
        self._retaking = asyncio.Lock()
        self.on_let_go: Callable[[], bool] = lambda: False
        self._watchers: list[tuple[Callable[[], object], Callable[[], object]]] = []

    @contextmanager
    def watched(self, rest: Callable[[], object], wake: Callable[[], object]) -> Iterator[None]:
        """Inside the block ``rest`` is called when the slot is given back, ``wake`` when it is had
        again."""
        watcher = (rest, wake)
        self._watchers.append(watcher)
        try:
            yield
        finally:
            self._watchers.remove(watcher)

    @asynccontextmanager
    async def released(self) -> AsyncIterator[None]:
        """The slot is free for others inside the block. Parallel waits of one turn share it.

        It is held again after the block, also after a wait that failed; a turn that was cancelled
        doesn't queue for it any more.
        """
        self._waits += 1
        if self._held:
            self._held = False
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
            await self._hold_again()
            raise
        self._waits -= 1
        await self._hold_again()

    def let_go(self) -> bool:
        """Whether the turn ends for now: the pump that gave the slot decides."""
        return self.on_let_go()

    async def _hold_again(self) -> None:
        # Two waits may end, or one end and another begin, while the lane is full.
        async with self._retaking:
            if not self._needs_slot():
                return
            await self._slots._retake(self._lane)  # noqa: SLF001 - as above
            if self._needs_slot():
                self._held = True
                for _, wake in self._watchers:
                    wake()
            else:
                self._slots._give(self._lane)  # noqa: SLF001 - as above

    def _needs_slot(self) -> bool:
        return not (self._held or self._waits or self._finished)

    def finish(self) -> None:
        """The turn is over, or left behind; idempotent."""
        self._finished = True
        if self._held:
            self._held = False
            self._slots._give(self._lane)  # noqa: SLF001 - as above
