"""Sends everything that one bot writes to rooms, and obeys the server's rate limits for each room.

Answers have priority: typing, reactions and the edits of a stream are dropped as soon as there is
any pressure. After a rate limit these low-priority calls pause for longer than the server asked, so
that an answer gets through (P3).
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Any, Final

from agentsup.channels.core.errors import LowPriorityDropped, NotSent, RateLimited
from agentsup.channels.matrix.client import MatrixClient
from agentsup.kit.clock import Clock

LOW_PRIORITY_MAX: Final = 6
"""Most parallel low-priority calls: most calls of an account must be left to answers."""
LOW_PRIORITY_PAUSE = 3.0
"""Low-priority calls pause this many times as long as the homeserver asked. It limits each account
as a whole, so two thirds of the calls that it allows again are for answers."""
_PAUSED_MAX = 1_000
_MESSAGE = "m.room.message"


class Sender:
    """Sends for one bot. Everything carries a transaction id, so all of it may be sent again."""

    def __init__(
        self,
        client: MatrixClient,
        clock: Clock,
        check: Callable[[str], Awaitable[None]] | None = None,
    ) -> None:
        """``check`` raises for a room that may get no message; see ``EncryptionGuard``."""
        self._client = client
        self._clock = clock
        self._check = check
        self._paused: dict[str, float] = {}
        """Until when nothing is sent into a room, by the loop's clock."""
        self._low_priority_at = 0.0
        """No low-priority call before this time."""
        self._low_priority = 0
        self._is_closed = False

    async def send(
        self,
        room_id: str,
        event_type: str,
        content: Mapping[str, Any],
        *,
        txn_id: str,
        droppable: bool = False,
        timeout_s: float = 20.0,
        in_clear: bool = False,
    ) -> str:
        """Send an event and return its id. ``in_clear``: into an encrypted room as well.

        Raises ``LowPriorityDropped`` for what is droppable under pressure, ``RateLimited`` while
        the room is paused, ``NotSent`` when closed: nothing was sent then. Else what the client
        raises.
        """
        async with self._allowed(room_id, droppable=droppable):
            if event_type == _MESSAGE and not in_clear:
                await self.check(room_id)
            return await self._client.send(
                room_id, event_type, content, txn_id=txn_id, timeout_s=timeout_s
            )

    async def check(self, room_id: str) -> None:
        """Return if a message may go to that room; raises as ``send`` does."""
        if self._check is not None:
            await self._check(room_id)

    async def redact(
        self, room_id: str, event_id: str, *, txn_id: str, droppable: bool = False
    ) -> None:
        """Redact an event. Raises as ``send`` does."""
        async with self._allowed(room_id, droppable=droppable):
            await self._client.redact(room_id, event_id, txn_id=txn_id)

    async def typing(self, room_id: str, is_on: bool, timeout_ms: int) -> None:
        """Show the bot as typing, or no longer; low priority. Raises as ``send`` does."""
        async with self._allowed(room_id, droppable=True):
            await self._client.typing(room_id, is_on, timeout_ms)

    def pause_s(self, room_id: str) -> float:
        """Return the seconds for which low-priority calls have to wait there, or 0."""
        now = self._clock.monotonic()
        return max(0.0, self._low_priority_at - now, self._paused.get(room_id, 0.0) - now)

    async def close(self) -> None:
        """Send nothing from now on; further calls raise ``NotSent``."""
        self._is_closed = True

    @asynccontextmanager
    async def _allowed(self, room_id: str, *, droppable: bool) -> AsyncIterator[None]:
        if self._is_closed:
            raise NotSent("this bot's sender is closed")
        pause_s = self._paused.get(room_id, 0.0) - self._clock.monotonic()
        if droppable and (self.pause_s(room_id) > 0 or self._low_priority >= LOW_PRIORITY_MAX):
            raise LowPriorityDropped("no room for it now")
        if pause_s > 0:
            raise RateLimited(pause_s, "this room still has a pause")
        self._low_priority += droppable
        try:
            yield
        except RateLimited as error:
            self._refused(room_id, error.retry_after_s, droppable=droppable)
            raise
        finally:
            self._low_priority -= droppable

    def _refused(self, room_id: str, wait_s: float, *, droppable: bool) -> None:
        now = self._clock.monotonic()
        self._low_priority_at = max(self._low_priority_at, now + LOW_PRIORITY_PAUSE * wait_s)
        if droppable:
            return  # an answer may still try
        if len(self._paused) >= _PAUSED_MAX:
            self._paused = {room: until for room, until in self._paused.items() if until > now}
        self._paused[room_id] = max(self._paused.get(room_id, 0.0), now + wait_s)
