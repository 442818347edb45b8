"""Long work on the loop that never waits, cut up so that others have their turns."""

import asyncio

from agentsup.kit.clock import SystemClock

__all__ = ["Turns"]

_CLOCK = SystemClock()


class Turns:
    """What has come already is taken without a wait, so that nobody else on the loop would run.

    ``await turns.rest()`` between two pieces lets others run once 5 ms have passed.
    """

    def __init__(self, turn_s: float = 0.005) -> None:
        self._turn_s = turn_s
        self._rested_at = asyncio.get_running_loop().time()

    async def rest(self, seconds: float = 0.0) -> None:
        """Let others run, if it is time; ``seconds`` are waited for in any case."""
        loop = asyncio.get_running_loop()
        if seconds > 0 or loop.time() - self._rested_at > self._turn_s:
            await _CLOCK.sleep(seconds)
            self._rested_at = loop.time()
