"""A server that answers every request with the same kind of trouble: for proofs of clients.

async with HostileServer() as server:
    ...  # a client of server.url("gzip bomb"), for each of TROUBLES
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import re
import zlib
from collections.abc import AsyncIterator, Callable, Mapping
from types import MappingProxyType, TracebackType
from typing import Final, Self
from urllib.parse import quote, unquote

_GIB: Final = 1024**3
_DRIP_S: Final = 0.05
_PIECE: Final = 64 * 1024

Pieces = AsyncIterator[bytes]
Trouble = Callable[[str], Pieces]


def _head(*lines: str, status: str = "200 OK", kind: str = "application/json") -> bytes:
    return "\r\n".join(
        [f"HTTP/1.1 {status}", f"Content-Type: {kind}", *lines, "Connection: close", "\r\n"]
    ).encode()


def _bomb(wbits: int, size: int = 3 * _GIB, *, kind: str = "application/json") -> Trouble:
    """3 GiB of blanks in 3 MiB: one block, compressed once, as often as it takes."""
    encoding = "gzip" if wbits > zlib.MAX_WBITS else "deflate"

    async def pieces(path: str) -> Pieces:
        first, block, step = await asyncio.to_thread(_packed, wbits)
        yield _head(f"Content-Encoding: {encoding}", kind=kind)
        yield first
        for _ in range(size // step - 1):
            yield block

    return pieces


@functools.cache
def _packed(wbits: int) -> tuple[bytes, bytes, int]:
    step = 32 * 1024 * 1024
    packer = zlib.compressobj(9, zlib.DEFLATED, wbits)
    first = packer.compress(b" " * step) + packer.flush(zlib.Z_FULL_FLUSH)
    return first, packer.compress(b" " * step) + packer.flush(zlib.Z_FULL_FLUSH), step


def _encoded(encoding: str) -> Trouble:
    async def pieces(path: str) -> Pieces:
        yield _head(f"Content-Encoding: {encoding}")
        while True:
            yield b"\x1b" * _PIECE

    return pieces


def _endless(begin: bytes, piece: bytes, kind: str = "application/json") -> Trouble:
    async def pieces(path: str) -> Pieces:
        yield _head(kind=kind) + begin
        while True:
            yield piece

    return pieces


def _said(text: bytes, *lines: str, kind: str = "application/json") -> Trouble:
    async def pieces(path: str) -> Pieces:
        yield _head(f"Content-Length: {len(text)}", *lines, kind=kind) + text

    return pieces


def _slowly(begin: bytes, drip: bytes) -> Trouble:
    async def pieces(path: str) -> Pieces:
        yield begin
        while True:
            await asyncio.sleep(_DRIP_S)
            yield drip

    return pieces


async def _silent(path: str) -> Pieces:
    yield b""
    await asyncio.Event().wait()


async def _half_a_header(path: str) -> Pieces:
    yield b"HTTP/1.1 200 OK\r\nContent-Type: application/js"
    await asyncio.Event().wait()


async def _endless_headers(path: str) -> Pieces:
    yield b"HTTP/1.1 200 OK\r\n"
    while True:
        yield b"X-More: " + b"a" * 1000 + b"\r\n"


async def _redirects(path: str) -> Pieces:
    yield _head(f"Location: {path}", "Content-Length: 0", status="307 Temporary Redirect")


async def _one_byte_chunks(path: str) -> Pieces:
    yield _head("Transfer-Encoding: chunked")
    while True:
        yield b"1\r\n \r\n" * 10_000


_EVENT = b"event: message\ndata: {}\n\n"
TROUBLES: Final[Mapping[str, Trouble]] = MappingProxyType(
    {
        "gzip bomb": _bomb(zlib.MAX_WBITS | 16),
        "deflate bomb": _bomb(zlib.MAX_WBITS),
        "gzip bomb of events": _bomb(zlib.MAX_WBITS | 16, kind="text/event-stream"),
        "gzip bomb of a page": _bomb(zlib.MAX_WBITS | 16, kind="text/html"),
        "brotli": _encoded("br"),
        "zstd": _encoded("zstd"),
        "gzip in gzip": _encoded("gzip, gzip"),
        "endless body": _endless(b"[0", b",0" * (_PIECE // 2)),
        "endless text": _endless(b"", b"a" * _PIECE, "text/plain"),
        "endless file": _endless(b"", b"\x00" * _PIECE, "application/octet-stream"),
        "endless events": _endless(b"", _EVENT * 2_000, "text/event-stream"),
        "endless event": _endless(b"data: ", b"a" * _PIECE, "text/event-stream"),
        "endless lines of an event": _endless(b"", b"data: a\n" * 8_000, "text/event-stream"),
        "one-byte chunks": _one_byte_chunks,
        "many values": _said(b"[" + b"{}," * 1_000_000 + b"{}]"),
        "many values in an event": _said(
            b"data: [" + b"{}," * 600_000 + b"{}]\n\n", kind="text/event-stream"
        ),
        "endless headers": _endless_headers,
        "redirects": _redirects,
        "silence": _silent,
        "half a header": _half_a_header,
        "dripping headers": _slowly(b"HTTP/1.1 200 OK\r\nX-Slow: ", b"a"),
        "dripping body": _slowly(_head(), b" "),
    }
)
TIMED: Final = frozenset(("silence", "half a header", "dripping headers", "dripping body"))
"""What ends by a time alone."""
SLOW: Final = TIMED | {"endless events", "one-byte chunks"}
"""What may be under its limits until somebody has waited long enough."""


class HostileServer:
    """Listens on loopback; the first segment of a path names the trouble."""

    def __init__(self) -> None:
        self._server: asyncio.Server | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self.port = 0
        self.asked: list[str] = []
        """The troubles that were given, in order."""

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.port = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        assert self._server is not None
        self._server.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def url(self, trouble: str) -> str:
        """Where a client finds it; more may follow in the path."""
        assert trouble in TROUBLES
        return f"http://127.0.0.1:{self.port}/{quote(trouble)}"

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        try:
            with contextlib.suppress(OSError, asyncio.IncompleteReadError):
                head = await reader.readuntil(b"\r\n\r\n")
                length = re.search(rb"(?i)\r\ncontent-length: *(\d+)", head)
                await reader.readexactly(int(length[1]) if length else 0)
                path = head.split(b" ", 2)[1].decode()
                trouble = unquote(path.split("/")[1])
                self.asked.append(trouble)
                async with contextlib.aclosing(TROUBLES[trouble](path)) as pieces:  # type: ignore[type-var]
                    async for piece in pieces:
                        writer.write(piece)
                        await writer.drain()
                writer.close()
                await writer.wait_closed()
        except asyncio.CancelledError:
            return  # our own end
        finally:
            writer.transport.abort()
