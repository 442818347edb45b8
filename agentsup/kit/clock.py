"""The only module that reads time.

Durations come from the running event loop (``monotonic``), stored timestamps from the wall clock
(``now_ms``). Because monotonic time *is* ``loop.time()``, a loop with virtual time moves every
lease, back-off and deadline at once.
"""

from __future__ import annotations

import asyncio
import time
from typing import Protocol


class Clock(Protocol):
    """The time functions for all other code."""

    def now_ms(self) -> int:
        """Wall time as whole milliseconds since the Unix epoch; may jump."""

    def monotonic(self) -> float:
        """Seconds on the running loop's clock; never jumps, has no meaning outside it."""

    async def sleep(self, seconds: float) -> None:
        """Return after ``seconds`` of loop time (if <= 0, after one iteration of the loop)."""


class SystemClock:
    """Wall time of the machine, durations of the running loop."""

    def now_ms(self) -> int:
        """Wall time of the machine in milliseconds."""
        return time.time_ns() // 1_000_000

    def monotonic(self) -> float:
        """The running loop's time; in a thread without a loop, the clock that the loop uses."""
        loop = asyncio._get_running_loop()  # noqa: SLF001 - asks without raising: threads ask often
        return time.monotonic() if loop is None else loop.time()

    async def sleep(self, seconds: float) -> None:
        """Sleep on the running loop."""
        await asyncio.sleep(max(0.0, seconds))
