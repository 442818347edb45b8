"""Events between the connection that hears them and the run that tells them; bounded."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Sequence

from agentsup.model.engine import EngineEvent

_SIZE = 256


class EventQueue:
    """Events on their way from the agent's messages to the run; a full one slows the agent."""

    def __init__(self) -> None:
        self.items: deque[EngineEvent] = deque()
        self._news = asyncio.Event()
        self._room = asyncio.Event()
        self._is_closed = False

    async def put(self, events: Sequence[EngineEvent]) -> None:
        while len(self.items) >= _SIZE and not self._is_closed:
            self._room.clear()
            await self._room.wait()
        self.items.extend(events)
        self._news.set()

    async def take(self) -> list[EngineEvent]:
        """What has come; nothing where the bell was rung."""
        if not self.items:
            await self._news.wait()
        self._news.clear()
        events = list(self.items)
        self.items.clear()
        self._room.set()
        return events

    def ring(self) -> None:
        """Wake the reader without an event."""
        self._news.set()

    def close(self) -> None:
        """Nobody reads any more; let who waits to put go on."""
        self._is_closed = True
        self._room.set()
