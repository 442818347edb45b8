"""What comes is worked on in order within a chat, while chats go side by side, a bounded number.

What must not wait, such as a stop, passes everything that waits in its chat or for a place; what
comes after it waits for it. A chat with nothing to do costs nothing: its lane is a task that ends
when it is empty.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Callable, Coroutine, Hashable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

from agentsup.kit.tasks import TaskOwner

__all__ = ["Lane", "Lanes"]

T = TypeVar("T")
"""What is worked on, such as a kept update as it was read."""

_PASSING_MAX = 64
"""As many pass in one chat and queue; those beyond wait like everything else."""


@dataclass(slots=True, eq=False)
class Lane(Generic[T]):
    """What waits in one chat."""

    items: deque[T] = field(default_factory=deque)
    more: asyncio.Event = field(default_factory=asyncio.Event)
    taken: list[T] = field(default_factory=list)
    """What the item in hand took along."""
    places: asyncio.Semaphore | None = None
    """Of all chats, or of all that passes; None for what needs none."""
    _behind: dict[int, tuple[asyncio.Event, ...]] = field(default_factory=dict)
    """By the id of a waiting item: what passed the lane before it came."""
    _has_place: bool = False

    def give_back(self) -> None:
        """What was taken along waits again, at its place: the item in hand was not handled."""
        self.items.extendleft(reversed(self.taken))
        self.taken.clear()

    async def next_like(self, fits: Callable[[T], bool], wait_s: float) -> T | None:
        """Take the next one if it fits; wait up to ``wait_s`` for one to come."""
        if not self.items and wait_s > 0:
            self.more.clear()
            try:
                async with asyncio.timeout(wait_s):
                    await self.more.wait()
            except TimeoutError:
                return None
        if not self.items or not self._is_next_free() or not fits(self.items[0]):
            return None
        self.taken.append(self.pop())
        return self.taken[-1]

    @asynccontextmanager
    async def away(self) -> AsyncIterator[None]:
        """Around something lengthy: another chat has the place meanwhile."""
        if self.places is None or not self._has_place:
            yield
            return
        self.leave()
        yield
        await self.enter()

    # -- for Lanes ---------------------------------------------------------------------------------

    def append(self, item: T, behind: tuple[asyncio.Event, ...]) -> None:
        """One more waits, for its turn and for those events."""
        self.items.append(item)
        if behind:
            self._behind[id(item)] = behind
        self.more.set()

    def pop(self) -> T:
        """The next one is taken in hand."""
        item = self.items.popleft()
        self._behind.pop(id(item), None)
        return item

    def _is_next_free(self) -> bool:
        return all(each.is_set() for each in self._behind.get(id(self.items[0]), ()))

    async def turn(self) -> None:
        """Wait for what passed before the next item came, and for a place."""
        for each in self._behind.get(id(self.items[0]), ()):
            await each.wait()
        await self.enter()

    async def enter(self) -> None:
        """Wait for a place."""
        if self.places is not None and not self._has_place:
            await self.places.acquire()
            self._has_place = True

    def leave(self) -> None:
        """The place is for another chat."""
        if self.places is not None and self._has_place:
            self._has_place = False
            self.places.release()


class Lanes(Generic[T]):
    """All chats of one bot."""

    def __init__(
        self,
        handle: Callable[[T, Lane[T]], Coroutine[Any, Any, None]],
        *,
        name: str,
        at_once: int,
        backlog: int,
    ) -> None:
        """``handle`` works on one item and may take more from its lane; it never raises but for
        bugs. ``backlog`` is how many items wait in memory before ``put`` waits. ``name`` is the
        bot's, for its tasks."""
        self._handle = handle
        self._name = name
        self._backlog = backlog
        self._at_once = at_once
        self._places = asyncio.Semaphore(at_once)
        self._lanes: dict[Hashable, Lane[T]] = {}
        self._passing: dict[Hashable, dict[str, deque[tuple[T, asyncio.Event]]]] = {}
        self._passing_places: dict[str, asyncio.Semaphore] = {}
        self._owner = TaskOwner(f"lanes of {name}")
        self._room = asyncio.Event()
        self._is_closing = False

    @property
    def waiting(self) -> int:
        """Items that nobody works on yet, but for those that pass."""
        return sum(len(lane.items) for lane in self._lanes.values())

    @property
    def is_full(self) -> bool:
        """Whether ``put`` would wait."""
        return self.waiting >= self._backlog

    async def put(
        self, chat_id: Hashable, item: T, *, may_pass: bool = False, queue: str = ""
    ) -> None:
        """Queue an item for its chat; ``may_pass``: see ``pass_by``."""
        if may_pass and self.pass_by(chat_id, item, queue):
            return
        while self.is_full and not self._is_closing:
            self._room.clear()
            await self._room.wait()
        if self._is_closing:
            return  # its row waits for the next life
        lane = self._lanes.get(chat_id)
        if lane is None:
            lane = self._lanes[chat_id] = Lane(places=self._places)
            self._owner.spawn(self._serve(chat_id, lane), name=f"{self._name}/{chat_id}")
        passing = self._passing.get(chat_id, {}).values()
        lane.append(item, tuple(waiting[-1][1] for waiting in passing))

    def pass_by(self, chat_id: Hashable, item: T, queue: str = "") -> bool:
        """Let an item by everything that waits in its chat, or for a place, or for memory.

        Items of the same ``queue`` (a few names) of a chat keep their order, and what is put into
        the chat later waits for them. False if too many pass there already.
        """
        if self._is_closing:
            return True  # its row waits for the next life
        queues = self._passing.setdefault(chat_id, {})
        waiting = queues.get(queue)
        if waiting is None:
            waiting = queues[queue] = deque()
            name = f"{self._name}/{chat_id}!{queue}"
            self._owner.spawn(self._serve_passing(chat_id, queue, waiting), name=name)
        elif len(waiting) >= _PASSING_MAX:
            return False
        waiting.append((item, asyncio.Event()))
        return True

    async def _serve(self, chat_id: Hashable, lane: Lane[T]) -> None:
        try:
            while lane.items and not self._is_closing:
                try:
                    await lane.turn()
                    if not lane.items:
                        return  # closing
                    lane.taken.clear()
                    await self._handle(lane.pop(), lane)
                finally:
                    lane.leave()
                self._room.set()
        finally:
            del self._lanes[chat_id]
            self._room.set()

    async def _serve_passing(
        self, chat_id: Hashable, queue: str, waiting: deque[tuple[T, asyncio.Event]]
    ) -> None:
        places = self._passing_places.setdefault(queue, asyncio.Semaphore(self._at_once))
        try:
            while waiting and not self._is_closing:
                item, ended = waiting[0]
                lane: Lane[T] = Lane(places=places)
                try:
                    await lane.enter()
                    await self._handle(item, lane)
                finally:
                    lane.leave()
                    ended.set()
                    waiting.popleft()
        finally:
            for _, ended in waiting:
                ended.set()
            queues = self._passing[chat_id]
            del queues[queue]
            if not queues:
                del self._passing[chat_id]

    async def close(self, drain_s: float) -> list[str]:
        """Let what is under way end within ``drain_s``; the names of tasks left behind."""
        self._is_closing = True
        for lane in self._lanes.values():
            lane.items.clear()
            lane.more.set()
        self._room.set()
        tasks = self._owner.tasks
        if tasks:
            await asyncio.wait(tasks, timeout=drain_s)
        return await self._owner.close(1.0)
