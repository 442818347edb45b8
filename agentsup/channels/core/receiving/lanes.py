"""Ordered work per chat: one item at a time in a chat, and a bounded number of chats in parallel.

An urgent item, such as a stop, passes all items that wait in its chat or for a slot; items that
come after it wait for it. An idle chat costs nothing: its lane is a task that ends when the lane
is empty.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Callable, Coroutine, Hashable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

from agentsup.kit.tasks import TaskOwner, is_set_within

T = TypeVar("T")
"""The type of an item, such as a received update that was parsed."""

_PASSING_MAX = 64
"""Most urgent items in one queue of a chat; further ones wait in the lane like other items."""


@dataclass(slots=True, eq=False)
class ChatLane(Generic[T]):
    """The items that wait in one chat."""

    items: deque[T] = field(default_factory=deque)
    more: asyncio.Event = field(default_factory=asyncio.Event)
    taken: list[T] = field(default_factory=list)
    """Further items that the current item took from the lane to be handled with it."""
    slots: asyncio.Semaphore | None = None
    """The slots of all chats, or of all urgent items of a queue; None if no slot is needed."""
    _behind: dict[int, tuple[asyncio.Event, ...]] = field(default_factory=dict)
    """By the ``id()`` of a waiting item: set when the urgent items before it have ended."""
    _has_slot: bool = False

    def give_back(self) -> None:
        """Put the items of ``taken`` back to the front: the current item was not handled."""
        self.items.extendleft(reversed(self.taken))
        self.taken.clear()

    async def next_like(self, fits: Callable[[T], bool], wait_s: float) -> T | None:
        """Take the next item if it fits; wait up to ``wait_s`` seconds for an item to come."""
        if not self.items and wait_s > 0:
            self.more.clear()
            if not await is_set_within(self.more, wait_s):
                return None
        if not self.items or not self._is_next_free() or not fits(self.items[0]):
            return None
        self.taken.append(self.pop())
        return self.taken[-1]

    @asynccontextmanager
    async def away(self) -> AsyncIterator[None]:
        """Release the slot to other chats during a long operation, and take one again after it."""
        if self.slots is None or not self._has_slot:
            yield
            return
        self.release_slot()
        try:
            yield
        except Exception:
            await self.enter()  # whoever handles the error goes on in this lane
            raise
        await self.enter()

    # -- for ChatLanes -----------------------------------------------------------------------------

    def append(self, item: T, behind: tuple[asyncio.Event, ...]) -> None:
        """Append an item, which is not handled before all events of ``behind`` are set."""
        self.items.append(item)
        if behind:
            self._behind[id(item)] = behind
        self.more.set()

    def pop(self) -> T:
        """Remove the next item and return it."""
        item = self.items.popleft()
        self._behind.pop(id(item), None)
        return item

    def _is_next_free(self) -> bool:
        return all(each.is_set() for each in self._behind.get(id(self.items[0]), ()))

    async def turn(self) -> None:
        """Wait for the urgent items that came before the next item, and for a slot."""
        for each in self._behind.get(id(self.items[0]), ()):
            await each.wait()
        await self.enter()

    async def enter(self) -> None:
        """Wait for a slot."""
        if self.slots is not None and not self._has_slot:
            await self.slots.acquire()
            self._has_slot = True

    def release_slot(self) -> None:
        """Release the slot. A second call does nothing."""
        if self.slots is not None and self._has_slot:
            self._has_slot = False
            self.slots.release()


class ChatLanes(Generic[T]):
    """The lanes of all chats of one bot."""

    def __init__(
        self,
        handle: Callable[[T, ChatLane[T]], Coroutine[Any, Any, None]],
        *,
        name: str,
        at_once: int,
        backlog: int,
    ) -> None:
        """``handle`` works on one item and may take more from its lane; it raises only for bugs.

        ``at_once`` is the number of chats that are worked on in parallel; urgent items have as
        many slots per queue. ``backlog`` is how many items wait in memory before ``put`` waits.
        ``name`` is the bot's, for the names of its tasks.
        """
        self._handle = handle
        self._name = name
        self._backlog = backlog
        self._at_once = at_once
        self._slots = asyncio.Semaphore(at_once)
        self._lanes: dict[Hashable, ChatLane[T]] = {}
        self._passing: dict[Hashable, dict[str, deque[tuple[T, asyncio.Event]]]] = {}
        self._passing_slots: dict[str, asyncio.Semaphore] = {}
        self._owner = TaskOwner(f"lanes of {name}")
        self._room = asyncio.Event()
        self._is_closing = False

    @property
    def waiting(self) -> int:
        """The number of waiting items, without urgent ones."""
        return sum(len(lane.items) for lane in self._lanes.values())

    @property
    def is_full(self) -> bool:
        """Whether ``put`` would wait."""
        return self.waiting >= self._backlog

    async def put(self, chat_id: Hashable, item: T) -> None:
        """Queue an item for its chat; wait while the backlog is full."""
        while self.is_full and not self._is_closing:
            self._room.clear()
            await self._room.wait()
        if self._is_closing:
            return  # the next life of the bot handles its row
        lane = self._lanes.get(chat_id)
        if lane is None:
            lane = self._lanes[chat_id] = ChatLane(slots=self._slots)
            self._owner.spawn(self._serve(chat_id, lane), name=f"{self._name}/{chat_id}")
        passing = self._passing.get(chat_id, {}).values()
        lane.append(item, tuple(waiting[-1][1] for waiting in passing))

    def pass_by(self, chat_id: Hashable, item: T, queue: str = "") -> bool:
        """Handle an urgent item before all that waits in its chat, for a slot or for the backlog.

        Items of the same ``queue`` (a few names) of a chat keep their order, and items that are
        put into the chat later wait for them. False if too many of them wait there already.
        """
        if self._is_closing:
            return True  # the next life of the bot handles its row
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

    async def _serve(self, chat_id: Hashable, lane: ChatLane[T]) -> None:
        try:
            while lane.items and not self._is_closing:
                try:
                    await lane.turn()
                    if not lane.items:
                        return  # closing
                    lane.taken.clear()
                    await self._handle(lane.pop(), lane)
                finally:
                    lane.release_slot()
                self._room.set()
        finally:
            del self._lanes[chat_id]
            self._room.set()

    async def _serve_passing(
        self, chat_id: Hashable, queue: str, waiting: deque[tuple[T, asyncio.Event]]
    ) -> None:
        slots = self._passing_slots.setdefault(queue, asyncio.Semaphore(self._at_once))
        try:
            while waiting and not self._is_closing:
                item, ended = waiting[0]
                lane: ChatLane[T] = ChatLane(slots=slots)
                try:
                    await lane.enter()
                    await self._handle(item, lane)
                finally:
                    lane.release_slot()
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
        """Drop waiting items and give running ones ``drain_s`` seconds to end.

        Returns the names of tasks that did not end even when they were cancelled.
        """
        self._is_closing = True
        for lane in self._lanes.values():
            lane.items.clear()
            lane.more.set()
        self._room.set()
        tasks = self._owner.tasks
        if tasks:
            await asyncio.wait(tasks, timeout=drain_s)
        return await self._owner.close(1.0)
