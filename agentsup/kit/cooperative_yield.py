"""Long work on the loop that never waits: pauses, so that other tasks run."""

from __future__ import annotations

import asyncio

from agentsup.kit.clock import SystemClock

_CLOCK = SystemClock()


class CooperativeYield:
    """Pauses for a loop over data that is already there, which would not let other tasks run.

    ``await turns.rest()`` between two pieces lets others run once 5 ms have passed.
    """

    def __init__(self, turn_s: float = 0.005) -> None:
        self._turn_s = turn_s
        self._rested_at = asyncio.get_running_loop().time()

    async def rest(self, seconds: float = 0.0) -> None:
        """Let others run if ``turn_s`` is over; ``seconds`` are always waited for."""
        loop = asyncio.get_running_loop()
        if seconds > 0 or loop.time() - self._rested_at > self._turn_s:
            await _CLOCK.sleep(seconds)
            self._rested_at = loop.time()
