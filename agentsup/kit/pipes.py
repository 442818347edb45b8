"""Our ends of a child's pipes, read and written without tasks and with bounded memory.

The readers use bare descriptors with the loop's reader callbacks, so opening and closing them needs
no await and cannot be interrupted by a cancellation. A grandchild may keep the pipe open: once the
group's leader has ended, the rest of the pipe is read and the stream ends, even if another process
still holds the other side.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import AsyncGenerator
from enum import Enum
from typing import IO

TAIL_BYTES = 64 * 1024
"""The number of last bytes that are kept of error output."""
_CHUNK_BYTES = 64 * 1024
_HIGH_WATER_BYTES = 256 * 1024


class Stdio(Enum):
    """The handling of one of the child's three streams."""

    NULL = "null"
    PIPE = "pipe"
    TAIL = "tail"
    """Read all the time, keep only the end (stderr)."""
    MERGE = "merge"
    """The same stream as stdout (stderr only)."""


def take_descriptor(stream: IO[bytes]) -> int:
    """A copy of the descriptor of a pipe's file object, which is closed."""
    descriptor = os.dup(stream.fileno())
    stream.close()
    return descriptor


class LineTooLong(ValueError):
    """A line of the child's output is longer than allowed; ``limit_bytes`` is the limit."""

    def __init__(self, limit_bytes: int) -> None:
        """``limit_bytes`` is the limit."""
        super().__init__(f"the program wrote a line of more than {limit_bytes} bytes")
        self.limit_bytes = limit_bytes


class _Source:
    """A non-blocking read end that ends with the pipe or with the leader."""

    def __init__(self, descriptor: int) -> None:
        os.set_blocking(descriptor, False)
        self._descriptor = descriptor
        self._loop = asyncio.get_running_loop()
        self._is_open = True
        self._is_leader_gone = False
        self._is_paused = False
        self._loop.add_reader(descriptor, self._on_readable)

    def leader_ended(self) -> None:
        """Read the rest of the pipe, then end."""
        self._is_leader_gone = True
        self._drain()

    def close(self) -> None:
        """End now and close the descriptor; data that was read stays available."""
        if self._is_open:
            self._is_open = False
            self._loop.remove_reader(self._descriptor)
            os.close(self._descriptor)
            self._changed()

    def _drain(self) -> None:
        while self._is_open and not self._is_paused and self._on_readable():
            pass

    def _on_readable(self) -> bool:
        """Read one chunk; False if there was nothing more to read now."""
        try:
            data = os.read(self._descriptor, _CHUNK_BYTES)
        except BlockingIOError:
            if self._is_leader_gone:
                self.close()
            return False
        except OSError:
            data = b""
        if not data:
            self.close()
            return False
        self._take(data)
        self._changed()
        return True

    def _pause(self) -> None:
        if self._is_open and not self._is_paused:
            self._is_paused = True
            self._loop.remove_reader(self._descriptor)

    def _resume(self) -> None:
        if self._is_open and self._is_paused:
            self._is_paused = False
            if self._is_leader_gone:
                self._drain()
            else:
                self._loop.add_reader(self._descriptor, self._on_readable)

    def _take(self, data: bytes) -> None:
        raise NotImplementedError

    def _changed(self) -> None:
        """Called at new data or at the end; readers are woken here."""


class PipeTail(_Source):
    """Reads everything and keeps only the last ``TAIL_BYTES``, so that the child never blocks."""

    def __init__(self, descriptor: int) -> None:
        """Take over ``descriptor``; it is closed at the end of the stream."""
        self._tail = bytearray()
        super().__init__(descriptor)

    @property
    def tail(self) -> bytes:
        """The last bytes that were written."""
        return bytes(self._tail)

    def _take(self, data: bytes) -> None:
        self._tail += data
        del self._tail[:-TAIL_BYTES]


class PipeReader(_Source):
    """Reads on demand: at most 256 KiB, or one line of the allowed length, are held unread."""

    def __init__(self, descriptor: int) -> None:
        """Take over ``descriptor``; it is closed at the end of the stream."""
        self._unread = bytearray()
        self._high_water_bytes = _HIGH_WATER_BYTES
        self._waiter: asyncio.Future[None] | None = None
        super().__init__(descriptor)

    async def read(self) -> bytes:
        """The next bytes, whatever their number; empty at the end. One reader at a time."""
        await self._more_than(0)
        return self._cut(len(self._unread))

    def unread(self, most_bytes: int) -> bytes:
        """The last bytes that nobody has taken yet, such as a line without its end."""
        return bytes(self._unread[-most_bytes:])

    async def lines(self, limit_bytes: int) -> AsyncGenerator[bytes, None]:
        """Line after line without its newline; a last line without one counts too.

        Raises ``LineTooLong`` for a line of more than ``limit_bytes``, before all of it is in
        memory.
        """
        self._high_water_bytes = max(_HIGH_WATER_BYTES, limit_bytes + 1)
        searched = 0
        while True:
            at = self._unread.find(b"\n", searched, limit_bytes + 1)
            if at >= 0:
                searched = 0
                yield self._cut(at + 1)[:-1]
                continue
            searched = len(self._unread)
            if searched > limit_bytes:
                raise LineTooLong(limit_bytes)
            if not await self._more_than(searched):
                break
        if self._unread:
            yield self._cut(len(self._unread))

    async def _more_than(self, size: int) -> bool:
        """Wait until more than ``size`` bytes are unread; False if the stream ended before."""
        while len(self._unread) <= size and self._is_open:
            if self._waiter is not None:
                raise RuntimeError("a pipe has one reader at a time")
            self._waiter = self._loop.create_future()
            try:
                await self._waiter
            finally:
                self._waiter = None
        return len(self._unread) > size

    def _cut(self, size: int) -> bytes:
        data = bytes(self._unread[:size])
        del self._unread[:size]
        if len(self._unread) < self._high_water_bytes // 2:
            self._resume()
        return data

    def _take(self, data: bytes) -> None:
        self._unread += data
        if len(self._unread) >= self._high_water_bytes:
            self._pause()

    def _changed(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)


class PipeWriter:
    """The child's standard input; ``write`` returns when the kernel has taken everything."""

    def __init__(self, descriptor: int) -> None:
        """Take over ``descriptor``."""
        os.set_blocking(descriptor, False)
        self._descriptor = descriptor
        self._loop = asyncio.get_running_loop()
        self._is_open = True
        self._ends_when_empty = False
        self._is_watching = False
        self._unsent = bytearray()
        self._waiters: list[asyncio.Future[None]] = []

    def feed(self, data: bytes, *, then_close: bool = False) -> None:
        """Send ``data`` as the child reads it, without waiting; optionally end the stream
        afterwards."""
        self._unsent += data
        self._ends_when_empty |= then_close
        self._pump()

    async def write(self, data: bytes) -> None:
        """Send ``data`` and wait until it is sent. Raises ``BrokenPipeError`` if the child no
        longer reads."""
        if self._is_open:
            self.feed(data)
        while self._unsent and self._is_open:
            waiter = self._loop.create_future()
            self._waiters.append(waiter)
            try:
                await waiter
            finally:
                self._waiters.remove(waiter)
        if not self._is_open:
            raise BrokenPipeError("the program does not read its input any more")

    def close(self) -> None:
        """End the stream; data that is not sent yet is dropped."""
        if not self._is_open:
            return
        self._is_open = False
        self._unwatch()
        with contextlib.suppress(OSError):
            os.close(self._descriptor)
        self._wake()

    def _pump(self) -> None:
        if not self._is_open:
            return
        try:
            while self._unsent:
                sent = os.write(self._descriptor, self._unsent[:_CHUNK_BYTES])
                del self._unsent[:sent]
        except BlockingIOError:
            if not self._is_watching:
                self._is_watching = True
                self._loop.add_writer(self._descriptor, self._pump)
            return
        except OSError:
            self.close()
            return
        self._unwatch()
        self._wake()
        if self._ends_when_empty:
            self.close()

    def _unwatch(self) -> None:
        if self._is_watching:
            self._is_watching = False
            self._loop.remove_writer(self._descriptor)

    def _wake(self) -> None:
        for waiter in self._waiters:
            if not waiter.done():
                waiter.set_result(None)
