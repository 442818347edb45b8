"""A bounded queue of events from an engine to the reader of its run."""

from __future__ import annotations

import asyncio
from collections import deque
from typing import Generic, TypeVar

T = TypeVar("T")


class EventQueue(Generic[T]):
    """A queue for a single reader; a full one makes its writer wait."""

    def __init__(self, size: int) -> None:
        self.items: deque[T] = deque()
        self._size = size
        self._news = asyncio.Event()
        self._room = asyncio.Event()
        self._is_closed = False

    async def put(self, item: T) -> None:
        """Add an item, as soon as there is room."""
        while len(self.items) >= self._size and not self._is_closed:
            self._room.clear()
            await self._room.wait()
        self.items.append(item)
        self._news.set()

    def take(self) -> T:
        """Remove the first item and return it."""
        self._room.set()
        return self.items.popleft()

    def ring(self) -> None:
        """Wake the reader without an item."""
        self._news.set()

    async def news(self) -> None:
        """Wait until an item is put or ``ring`` is called, or was since the last return."""
        await self._news.wait()
        self._news.clear()

    def close(self) -> None:
        """Let waiting calls of ``put`` return: nobody reads any more."""
        self._is_closed = True
        self._room.set()
