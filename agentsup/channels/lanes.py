"""What comes is worked on in order within a chat, while chats go side by side, a bounded number.

A chat with nothing to do costs nothing: its lane is a task that ends when it is empty.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Coroutine, Hashable
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

from agentsup.kit.tasks import TaskOwner

__all__ = ["Lane", "Lanes"]

T = TypeVar("T")
"""What is worked on, such as a kept update as it was read."""


@dataclass(slots=True, eq=False)
class Lane(Generic[T]):
    """What waits in one chat."""

    items: deque[T] = field(default_factory=deque)
    is_slow: bool = False
    """Something lengthy is under way: what must not wait may pass."""
    more: asyncio.Event = field(default_factory=asyncio.Event)
    taken: list[T] = field(default_factory=list)
    """What the item in hand took along."""

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
        if not self.items or not fits(self.items[0]):
            return None
        self.taken.append(self.items.popleft())
        return self.taken[-1]


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
        self._places = asyncio.Semaphore(at_once)
        self._lanes: dict[Hashable, Lane[T]] = {}
        self._owner = TaskOwner(f"lanes of {name}")
        self._room = asyncio.Event()
        self._is_closing = False

    @property
    def waiting(self) -> int:
        """Items that nobody works on yet."""
        return sum(len(lane.items) for lane in self._lanes.values())

    async def put(self, chat_id: Hashable, item: T, *, may_pass: bool = False) -> None:
        """Queue an item for its chat; ``may_pass`` lets it by what is slow there."""
        while self.waiting >= self._backlog:
            self._room.clear()
            await self._room.wait()
        if self._is_closing:
            return  # its row waits for the next life
        lane = self._lanes.get(chat_id)
        if lane is not None and lane.is_slow and may_pass:
            self._owner.spawn(self._handle(item, Lane()), name=f"{self._name}/{chat_id}!")
            return
        if lane is None:
            lane = self._lanes[chat_id] = Lane()
            self._owner.spawn(self._serve(chat_id, lane), name=f"{self._name}/{chat_id}")
        lane.items.append(item)
        lane.more.set()

    async def _serve(self, chat_id: Hashable, lane: Lane[T]) -> None:
        try:
            while lane.items and not self._is_closing:
                async with self._places:
                    lane.taken.clear()
                    item = lane.items.popleft()
                    await self._handle(item, lane)
                self._room.set()
        finally:
            del self._lanes[chat_id]
            self._room.set()

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
