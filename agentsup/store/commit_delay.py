"""A short wait before a commit, for callers that will write again in a moment.

A flush costs as much as several functions. Callers that got the result of one commit send their
next write a moment later, one by one; a batch that waits for them saves flushes. One caller, or a
few, never wait, and a wait in vain lowers the expected number. The idea is PostgreSQL's
``commit_delay`` with ``commit_siblings``, but the number of siblings is learnt.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from agentsup.kit.tasks import is_set_within
from agentsup.store.options import StoreOptions


class CommitDelay:
    """The number of concurrent callers of one writer, and the wait for them."""

    def __init__(self, options: StoreOptions) -> None:
        """Begin with one expected caller."""
        self._options = options
        self._size = 1
        self._enough: asyncio.Event | None = None

    def seen(self, size: int) -> None:
        """Note that ``size`` callers wrote concurrently: those in a batch and those queued behind
        it."""
        self._size = min(max(self._size, size), self._options.batch_max)

    def arrived(self, waiting: int, *, urgent: bool) -> None:
        """Note another write; ``waiting`` are queued now. An urgent write ends the wait."""
        if self._enough is not None and (urgent or waiting >= self._size):
            self._enough.set()

    async def gather(self, waiting: Callable[[], int]) -> None:
        """Wait until as many callers are queued as were seen at once, or until the limit."""
        if not 0 < waiting() < self._size:
            return
        if self._size >= self._options.gather_from and self._options.gather_ms > 0:
            self._enough = asyncio.Event()
            try:  # at the limit, the queued callers go
                await is_set_within(self._enough, self._options.gather_ms / 1000)
            finally:
                self._enough = None
        self._size = max(1, waiting())
