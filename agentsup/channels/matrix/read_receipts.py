"""Read markers: they show that a person's message was handled. They have the lowest priority."""

from __future__ import annotations

from contextlib import suppress

from agentsup.channels.core.errors import PlatformError, RateLimited
from agentsup.channels.matrix.address import RoomAddress
from agentsup.channels.matrix.client import MatrixClient
from agentsup.kit.clock import Clock
from agentsup.kit.tasks import OwnerClosed, TaskOwner

_WAITING_MAX = 500
_PAUSE_MAX_S = 60.0


class ReadReceipts:
    """The read markers of one bot: the newest event of each address, one call at a time."""

    def __init__(self, client: MatrixClient, clock: Clock, name: str) -> None:
        self._client = client
        self._clock = clock
        self._name = name
        self._waiting: dict[RoomAddress, str] = {}
        self._owner = TaskOwner("matrix read markers")
        self._is_serving = False

    def read(self, address: RoomAddress, event_id: str) -> None:
        """Mark everything at this address up to this event as read. Never blocks."""
        self._waiting.pop(address, None)
        while len(self._waiting) >= _WAITING_MAX:
            self._waiting.pop(next(iter(self._waiting)))
        self._waiting[address] = event_id
        if not self._is_serving:
            with suppress(OwnerClosed):
                self._owner.spawn(self._serve(), name=f"matrix-read:{self._name}")
                self._is_serving = True

    async def _serve(self) -> None:
        try:
            while self._waiting:
                address = next(iter(self._waiting))
                event_id = self._waiting.pop(address)
                try:
                    await self._client.read_marker(address.room_id, event_id, address.thread_id)
                except RateLimited as error:
                    await self._clock.sleep(min(error.retry_after_s, _PAUSE_MAX_S))
                except PlatformError:
                    continue  # the next message marks this one too
        finally:
            self._is_serving = False

    async def close(self) -> None:
        """Set no more markers."""
        await self._owner.close(1.0)
