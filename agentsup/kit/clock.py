"""The one door to time.

Durations come from the running event loop (`monotonic`), stored timestamps from the wall clock
(`now_ms`). Because monotonic time *is* `loop.time()`, a loop with virtual time moves every
lease, back-off and deadline at once.
"""

import asyncio
import time
from typing import Protocol

__all__ = ["Clock", "LoopClock", "SystemClock"]

_MS_PER_S = 1000


class Clock(Protocol):
    """What the rest of the code may know about time."""

    def now_ms(self) -> int:
        """Wall time as whole milliseconds since the Unix epoch; may jump."""
        ...

    def monotonic(self) -> float:
        """Seconds on the running loop's clock; never jumps, has no meaning outside it."""
        ...

    async def sleep(self, seconds: float) -> None:
        """Return after `seconds` of loop time (at once, after one loop turn, if <= 0)."""
        ...


class SystemClock:
    """Wall time of the machine, durations of the running loop."""

    def now_ms(self) -> int:
        """Wall time of the machine in milliseconds."""
        return time.time_ns() // 1_000_000

    def monotonic(self) -> float:
        """The running loop's time; in a thread without a loop, the clock that loop reads."""
        loop = asyncio._get_running_loop()  # noqa: SLF001 - asks without raising: threads ask often
        return time.monotonic() if loop is None else loop.time()

    async def sleep(self, seconds: float) -> None:
        """Sleep on the running loop."""
        await asyncio.sleep(max(0.0, seconds))


class LoopClock:
    """Wall time derived from the loop's time, for virtual time and simulation.

    The first reading fixes the origin, so a fresh loop starts at `epoch_ms`. `jump_ms` moves the
    wall alone, as an NTP step or a suspended laptop would.
    """

    def __init__(self, epoch_ms: int = 1_800_000_000_000) -> None:
        """Start the wall at `epoch_ms` (default: a round instant in January 2027)."""
        self._epoch_ms = epoch_ms
        self._origin_s: float | None = None
        self._last_s = 0.0
        self._skipped_s = 0.0

    def now_ms(self) -> int:
        """`epoch_ms` plus the loop time that passed since the first reading."""
        now_s = self.monotonic()
        if self._origin_s is None:
            self._origin_s = now_s
        return self._epoch_ms + round((now_s - self._origin_s) * _MS_PER_S)

    def monotonic(self) -> float:
        """The running loop's time; outside a loop, the last one read (time stands still there)."""
        try:
            self._last_s = asyncio.get_running_loop().time() + self._skipped_s
        except RuntimeError:
            return self._last_s
        return self._last_s

    def jump_ms(self, delta_ms: int) -> None:
        """Move wall time by `delta_ms` without moving durations."""
        self._epoch_ms += delta_ms

    def skip_ms(self, delta_ms: int) -> None:
        """Let time pass on both clocks without waiting for it: durations and wall time alike."""
        self._skipped_s += delta_ms / _MS_PER_S
        self._last_s += delta_ms / _MS_PER_S

    async def sleep(self, seconds: float) -> None:
        """Sleep on the running loop."""
        await asyncio.sleep(max(0.0, seconds))
