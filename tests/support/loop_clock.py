"""A clock for tests in virtual time."""

from __future__ import annotations

import asyncio

_MS_PER_S = 1000


class LoopClock:
    """Wall time derived from the loop's time, for virtual time and simulation.

    The first reading fixes the origin, so a new loop starts at ``epoch_ms``. ``jump_ms`` moves only
    the wall time, as an NTP step or a suspended laptop would.
    """

    def __init__(self, epoch_ms: int = 1_800_000_000_000) -> None:
        """Start the wall time at ``epoch_ms`` (default: a round instant in January 2027)."""
        self._epoch_ms = epoch_ms
        self._origin_s: float | None = None
        self._last_s = 0.0
        self._skipped_s = 0.0

    def now_ms(self) -> int:
        """``epoch_ms`` plus the loop time that passed since the first reading."""
        now_s = self.monotonic()
        if self._origin_s is None:
            self._origin_s = now_s
        return self._epoch_ms + round((now_s - self._origin_s) * _MS_PER_S)

    def monotonic(self) -> float:
        """The running loop's time; outside a loop, the last one read."""
        try:
            self._last_s = asyncio.get_running_loop().time() + self._skipped_s
        except RuntimeError:
            return self._last_s
        return self._last_s

    def jump_ms(self, delta_ms: int) -> None:
        """Move wall time by ``delta_ms`` without moving durations."""
        self._epoch_ms += delta_ms

    def skip_ms(self, delta_ms: int) -> None:
        """Move both clocks by ``delta_ms`` without waiting: durations and wall time alike."""
        self._skipped_s += delta_ms / _MS_PER_S
        self._last_s += delta_ms / _MS_PER_S

    async def sleep(self, seconds: float) -> None:
        """Sleep on the running loop."""
        await asyncio.sleep(max(0.0, seconds))
