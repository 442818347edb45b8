"""A runner of the store without threads, for simulation."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

from agentsup.kit.clock import Clock
from agentsup.kit.entropy import Entropy
from agentsup.store import StoreFault
from agentsup.store.runner import Connect, RunnerDead, T, Work


class InlineRunner:
    """Everything in the loop's own thread, after a random delay: for simulation.

    The delay before the work lets other tasks run first; the one after it separates the commit from
    its confirmation, so that a kill between them is tested too. ``kill()`` is the end of the
    simulated process: connections close, open transactions roll back.
    """

    def __init__(
        self,
        path: Path,
        *,
        clock: Clock,
        entropy: Entropy,
        max_delay_s: float = 0.005,
        is_durable: bool = False,
    ) -> None:
        """``path`` is named in errors. Without ``is_durable`` commits are not flushed to the disk.

        A killed simulation loses no page cache, so flushing would only cost time. With
        ``max_delay_s`` of 0 work runs at once.
        """
        self._path = path
        self._clock = clock
        self._entropy = entropy
        self._max_delay_s = max_delay_s
        self._is_durable = is_durable
        self._is_dead = False
        self._writer: sqlite3.Connection | None = None
        self._reader: sqlite3.Connection | None = None

    @property
    def is_dead(self) -> bool:
        """Whether ``kill`` was called."""
        return self._is_dead

    async def open_writer(self, connect: Connect) -> None:
        """Connect in this thread."""
        self._check()
        self._writer = connect()
        if not self._is_durable:
            self._writer.execute("PRAGMA synchronous = OFF")

    async def open_readers(self, connect: Connect) -> None:
        """Connect in this thread; one connection is enough, since nothing runs in parallel."""
        self._check()
        self._reader = connect()

    async def write(self, work: Work[T]) -> T:
        """Wait a little, run, wait a little."""
        await self._delay()
        assert self._writer is not None, "the writer is not open"
        result = self._run(work, self._writer)
        await self._delay()
        return result

    async def read(self, work: Work[T]) -> T:
        """Wait a little, run."""
        await self._delay()
        assert self._reader is not None, "the readers are not open"
        return self._run(work, self._reader)

    async def aside(self, connect: Connect, work: Work[T]) -> T:
        """Wait a little, run on a connection of its own."""
        await self._delay()
        with closing(connect()) as connection:
            return work(connection)

    def kill(self) -> None:
        """Die: roll back what is open, and answer every later call with ``RunnerDead``."""
        self._is_dead = True
        self._disconnect()

    async def close(self) -> None:
        """Close cleanly; raises nothing on a dead runner."""
        self._disconnect()

    def _disconnect(self) -> None:
        for connection in (self._reader, self._writer):
            if connection is not None:
                connection.close()

    def _check(self) -> None:
        if self._is_dead:
            raise RunnerDead(
                f"the runner of {self._path} was killed", reason=StoreFault.STOPPED.value
            )

    async def _delay(self) -> None:
        self._check()
        if self._max_delay_s > 0:
            await self._clock.sleep(self._entropy.uniform(0.0, self._max_delay_s))
            self._check()

    def _run(self, work: Work[T], connection: sqlite3.Connection) -> T:
        try:
            return work(connection)
        finally:
            self._check()  # killed from inside the work: its result is dropped
