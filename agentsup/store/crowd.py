"""How many callers write at once, and a short wait for them to come back.

A flush costs as much as several functions. Callers that were told of one commit come back with
their next write a moment later, one by one; a batch that waits for them saves flushes. One caller,
or a few, never wait, and a wait that was in vain lowers what the next one hopes for. The idea is
PostgreSQL's `commit_delay` with `commit_siblings`, with the number of siblings learnt.
"""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass

__all__ = ["Crowd", "CrowdLimits"]


@dataclass(frozen=True, slots=True)
class CrowdLimits:
    """When and how long to wait."""

    wait_ms: int
    """How long at most; 0 never waits."""
    wait_from: int
    """Fewest callers at once for which waiting pays."""
    most: int
    """More than this are never waited for: a batch takes no more."""


class Crowd:
    """The crowd before one writer."""

    def __init__(self, limits: CrowdLimits) -> None:
        """Begin with nobody."""
        self._limits = limits
        self._size = 1
        self._enough: asyncio.Event | None = None

    def seen(self, size: int) -> None:
        """There were `size` callers at once: in a batch and waiting behind it."""
        self._size = min(max(self._size, size), self._limits.most)

    def arrived(self, waiting: int, *, urgent: bool) -> None:
        """Another write came; `waiting` are there now. An urgent one waits for nobody."""
        if self._enough is not None and (urgent or waiting >= self._size):
            self._enough.set()

    async def gather(self, waiting: Callable[[], int]) -> None:
        """Wait until as many are there as were seen at once, or for the limit."""
        if not 0 < waiting() < self._size:
            return
        if self._size >= self._limits.wait_from and self._limits.wait_ms > 0:
            self._enough = asyncio.Event()
            try:
                async with asyncio.timeout(self._limits.wait_ms / 1000):
                    await self._enough.wait()
            except TimeoutError:
                pass  # those who are there go now
            finally:
                self._enough = None
        self._size = max(1, waiting())
