"""Read markers: that what a person wrote was taken in. A courtesy, and the first to give way."""

from __future__ import annotations

from typing import Protocol

from agentsup.channels.matrix.errors import MatrixError, RateLimited
from agentsup.channels.matrix.place import Place
from agentsup.kit.clock import Clock
from agentsup.kit.tasks import OwnerClosed, TaskOwner

__all__ = ["Marks"]

_WAITING_MAX = 500
_PAUSE_MAX_S = 60.0


class MarkClient(Protocol):
    """What is needed of a client."""

    async def read_marker(
        self, room_id: str, event_id: str, thread_id: str | None = None
    ) -> None: ...


class Marks:
    """The read markers of one bot: the newest event of each place, one call at a time."""

    def __init__(self, client: MarkClient, clock: Clock, name: str) -> None:
        self._client = client
        self._clock = clock
        self._name = name
        self._waiting: dict[Place, str] = {}
        self._owner = TaskOwner("matrix read markers")
        self._is_serving = False

    def read(self, place: Place, event_id: str) -> None:
        """Everything in the place up to this event was handled. Never blocks."""
        self._waiting.pop(place, None)
        while len(self._waiting) >= _WAITING_MAX:
            self._waiting.pop(next(iter(self._waiting)))
        self._waiting[place] = event_id
        if not self._is_serving:
            serving = self._serve()
            try:
                self._owner.spawn(serving, name=f"matrix-read:{self._name}")
            except OwnerClosed:
                serving.close()
            else:
                self._is_serving = True

    async def _serve(self) -> None:
        try:
            while self._waiting:
                place = next(iter(self._waiting))
                event_id = self._waiting.pop(place)
                try:
                    await self._client.read_marker(place.room_id, event_id, place.thread_id)
                except RateLimited as error:
                    await self._clock.sleep(min(error.retry_after_s, _PAUSE_MAX_S))
                except MatrixError:
                    continue  # the next message marks this one too
        finally:
            self._is_serving = False

    async def close(self) -> None:
        """No more markers."""
        await self._owner.close(1.0)
