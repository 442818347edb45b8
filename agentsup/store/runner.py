"""The runner, which executes SQL: a port, with threads in production and inline for simulation.

A thread hop costs as much as half a dozen tasks, so the unit of work is a function that uses a
connection, not a statement: one hop per batch, one hop per read.
"""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Callable
from contextlib import AsyncExitStack, closing
from typing import Protocol, TypeVar

import aiosqlite

from agentsup.model.errors import StoreUnavailable

T = TypeVar("T")
Connect = Callable[[], sqlite3.Connection]
Work = Callable[[sqlite3.Connection], T]


class Runner(Protocol):
    """Runs functions on connections that it owns: one writer, a few readers."""

    async def open_writer(self, connect: Connect) -> None:
        """Open the connection that ``write`` uses. Raises what ``connect`` raises."""
        ...

    async def open_readers(self, connect: Connect) -> None:
        """Open the connections that ``read`` uses."""
        ...

    async def write(self, work: Work[T]) -> T:
        """Run ``work`` on the writer's connection, after all earlier work.

        Once begun it runs to its end, even if the caller is cancelled.
        """
        ...

    async def read(self, work: Work[T]) -> T:
        """Run ``work`` on a read-only connection when one is free."""
        ...

    async def aside(self, connect: Connect, work: Work[T]) -> T:
        """Run long ``work`` on a separate connection, so that nothing waits for it."""
        ...

    async def close(self) -> None:
        """Close every connection after the work given so far. A second call does nothing."""
        ...


class _Thread(aiosqlite.Connection):
    """aiosqlite's connection and thread, with a way to run a whole function in one hop."""

    def __init__(self, connect: Connect, name: str) -> None:
        super().__init__(connect, iter_chunk_size=64)
        # A daemon thread never keeps a process alive: the store survives a death within a commit.
        self._thread.daemon = True
        self._thread.name = name

    async def begin(self) -> None:
        """Start the thread and connect in it. If that fails, the thread has ended."""
        try:
            await self
        except BaseException:
            self._thread.join(timeout=1.0)
            raise

    async def run(self, work: Work[T]) -> T:
        result: T = await self._execute(work, self._conn)  # type: ignore[no-untyped-call]  # aiosqlite has no public call for this; a contract test pins it
        return result

    async def end(self) -> None:
        """Close the connection and wait for the end of the thread."""
        await self.close()
        self._thread.join(timeout=1.0)


class ThreadRunner:
    """One thread for the writer and one for each reader."""

    def __init__(self, readers: int = 2) -> None:
        """``readers`` is the number of reading connections."""
        self._reader_count = readers
        self._writer: _Thread | None = None
        self._readers: list[_Thread] = []
        self._free: asyncio.LifoQueue[_Thread] = asyncio.LifoQueue()

    async def open_writer(self, connect: Connect) -> None:
        writer = _Thread(connect, "store-writer")
        await writer.begin()
        self._writer = writer

    async def open_readers(self, connect: Connect) -> None:
        for number in range(self._reader_count):
            reader = _Thread(connect, f"store-reader-{number}")
            await reader.begin()
            self._readers.append(reader)
            self._free.put_nowait(reader)

    async def write(self, work: Work[T]) -> T:
        assert self._writer is not None, "the writer is not open"
        return await self._writer.run(work)

    async def read(self, work: Work[T]) -> T:
        """One hop to a reader's thread and back.

        If the caller is cancelled, that thread may still be busy when it is used next; the next
        work then waits behind.
        """
        reader = await self._free.get()
        try:
            return await reader.run(work)
        finally:
            self._free.put_nowait(reader)

    async def aside(self, connect: Connect, work: Work[T]) -> T:
        return await asyncio.to_thread(_with_connection, connect, work)

    async def close(self) -> None:
        """Close the readers first; the writer closes last and then merges the log into the file."""
        threads = [*self._readers, *([self._writer] if self._writer is not None else [])]
        self._readers, self._writer = [], None
        async with AsyncExitStack() as stack:
            for thread in reversed(threads):
                stack.push_async_callback(thread.end)


class RunnerDead(StoreUnavailable):
    """A simulated process death: the runner does no later work."""


def _with_connection(connect: Connect, work: Work[T]) -> T:
    with closing(connect()) as connection:
        return work(connection)
