"""Where SQL runs: the port `Runner`, in threads for production, inline for simulation.

A thread hop costs as much as half a dozen tasks, so the unit of work is a function that uses a
connection, not a statement: one hop per batch, one hop per read.
"""

import asyncio
import sqlite3
from collections.abc import Callable
from contextlib import AsyncExitStack, closing
from pathlib import Path
from typing import Protocol, TypeVar

import aiosqlite

from agentsup.kit.clock import Clock
from agentsup.kit.entropy import Entropy
from agentsup.model.errors import StoreUnavailable
from agentsup.store.failures import Trouble

__all__ = ["Connect", "InlineRunner", "Runner", "RunnerDead", "ThreadRunner"]

T = TypeVar("T")
Connect = Callable[[], sqlite3.Connection]
Work = Callable[[sqlite3.Connection], T]


class Runner(Protocol):
    """Runs functions on connections it owns; one writer, a few readers."""

    async def open_writer(self, connect: Connect) -> None:
        """Open the connection that `write` uses. Raises what `connect` raises."""
        ...

    async def open_readers(self, connect: Connect) -> None:
        """Open the connections that `read` uses."""
        ...

    async def write(self, work: Work[T]) -> T:
        """Run `work` on the writer's connection, after whatever was given before it.

        Once it has begun it runs to its end, also if the caller is cancelled.
        """
        ...

    async def read(self, work: Work[T]) -> T:
        """Run `work` on a read-only connection when one is free."""
        ...

    async def aside(self, connect: Connect, work: Work[T]) -> T:
        """Run long `work` on a connection of its own, in nobody's way."""
        ...

    async def close(self) -> None:
        """Close every connection after the work given so far; harmless when repeated."""
        ...


class _Thread(aiosqlite.Connection):
    """aiosqlite's connection and thread, with a way to run a whole function in one hop."""

    def __init__(self, connect: Connect, name: str) -> None:
        super().__init__(connect, iter_chunk_size=64)
        # Never the reason that a process can't end: dying in a commit is what the store survives.
        self._thread.daemon = True
        self._thread.name = name

    async def begin(self) -> None:
        """Start the thread and connect in it; if that fails, the thread has ended."""
        try:
            await self
        except BaseException:
            self._thread.join(timeout=1.0)
            raise

    async def run(self, work: Work[T]) -> T:
        result: T = await self._execute(work, self._conn)  # type: ignore[no-untyped-call]  # aiosqlite has no public call for this; a contract test pins it
        return result

    async def end(self) -> None:
        """Close the connection and see the thread out."""
        await self.close()
        self._thread.join(timeout=1.0)


class ThreadRunner:
    """One thread for the writer and one for each reader."""

    def __init__(self, readers: int = 2) -> None:
        """`readers` is the number of reading connections."""
        self._reader_count = readers
        self._writer: _Thread | None = None
        self._readers: list[_Thread] = []
        self._free: asyncio.LifoQueue[_Thread] = asyncio.LifoQueue()

    async def open_writer(self, connect: Connect) -> None:
        """Start the writer's thread and connect in it."""
        writer = _Thread(connect, "store-writer")
        await writer.begin()
        self._writer = writer

    async def open_readers(self, connect: Connect) -> None:
        """Start the readers' threads and connect in them."""
        for number in range(self._reader_count):
            reader = _Thread(connect, f"store-reader-{number}")
            await reader.begin()
            self._readers.append(reader)
            self._free.put_nowait(reader)

    async def write(self, work: Work[T]) -> T:
        """One hop to the writer's thread and back."""
        assert self._writer is not None, "the writer is not open"
        return await self._writer.run(work)

    async def read(self, work: Work[T]) -> T:
        """One hop to a reader's thread and back.

        If the caller is cancelled, that thread may still be busy when it is handed out next; the
        next work then simply queues behind.
        """
        reader = await self._free.get()
        try:
            return await reader.run(work)
        finally:
            self._free.put_nowait(reader)

    async def aside(self, connect: Connect, work: Work[T]) -> T:
        """A connection and a thread for this one piece of work."""
        return await asyncio.to_thread(_with_connection, connect, work)

    async def close(self) -> None:
        """Readers first: the writer, last to close, then folds the log into the file."""
        threads = [*self._readers, *([self._writer] if self._writer is not None else [])]
        self._readers, self._writer = [], None
        async with AsyncExitStack() as stack:
            for thread in reversed(threads):
                stack.push_async_callback(thread.end)


class RunnerDead(StoreUnavailable):
    """A simulated process death: whatever is asked of the runner from now on is not done."""


class InlineRunner:
    """Everything in the loop's own thread, after a random delay: for simulation.

    The delay before the work lets other tasks run first; the one after it parts the commit from
    its confirmation, so that a kill between them is among the cases. `kill()` is the end of the
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
        """`path` is named in errors. Without `is_durable` commits are not flushed to the disk.

        A killed simulation loses no page cache, so flushing would only cost time. With
        `max_delay_s` of 0 work runs at once.
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
        """Whether `kill` was called."""
        return self._is_dead

    async def open_writer(self, connect: Connect) -> None:
        """Connect in this thread."""
        self._check()
        self._writer = connect()
        if not self._is_durable:
            self._writer.execute("PRAGMA synchronous = OFF")

    async def open_readers(self, connect: Connect) -> None:
        """Connect in this thread; one connection is enough where nothing runs in parallel."""
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
        return _with_connection(connect, work)

    def kill(self) -> None:
        """Die: roll back what is open, and answer every later call with `RunnerDead`."""
        self._is_dead = True
        self._disconnect()

    async def close(self) -> None:
        """Close in order; raises nothing on a dead runner."""
        self._disconnect()

    def _disconnect(self) -> None:
        for connection in (self._reader, self._writer):
            if connection is not None:
                connection.close()

    def _check(self) -> None:
        if self._is_dead:
            raise RunnerDead(f"the runner of {self._path} was killed", reason=Trouble.STOPPED.value)

    async def _delay(self) -> None:
        self._check()
        if self._max_delay_s > 0:
            await self._clock.sleep(self._entropy.uniform(0.0, self._max_delay_s))
            self._check()

    def _run(self, work: Work[T], connection: sqlite3.Connection) -> T:
        try:
            return work(connection)
        finally:
            self._check()  # killed from inside the work: nothing it says counts


def _with_connection(connect: Connect, work: Work[T]) -> T:
    with closing(connect()) as connection:
        return work(connection)
