"""One HTTP session for every bot of a daemon, and the knowledge whether a request got away.

A TLS context takes tens of milliseconds to build and megabytes to keep, so there is one, built in
a thread. Connections are not limited here: a bot bounds its own calls, so that one whose server
hangs takes no connection from another (P3).
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import aiohttp

from agentsup.model.errors import AgentsupError

__all__ = ["HttpAnswer", "HttpPool", "Unanswered", "Unsent"]

_KEEPALIVE_S = 15.0
"""Shorter than any server keeps an idle connection, so that a request seldom meets its end."""
_CHUNK_BYTES = 64 * 1024


class Unsent(AgentsupError):
    """Surely nothing reached the server. The message says why, and names no address."""

    code = "http_unsent"
    status = 503


class Unanswered(AgentsupError):
    """Some of the request may have reached the server, but there is no whole answer."""

    code = "http_unanswered"
    status = 502


class _Theirs(Exception):
    """Carries an error that is not one of the connection."""

    def __init__(self, error: OSError) -> None:
        super().__init__()
        self.error = error


@dataclass(frozen=True, slots=True)
class HttpAnswer:
    """A whole answer."""

    status: int
    body: bytes
    retry_after: str


@dataclass(slots=True)
class _Progress:
    """How far a request came."""

    has_connection: bool = False
    """From here on some of it may have reached the server."""


class _Response(aiohttp.ClientResponse):
    """Remembers its connection, which goes back to the pool as soon as the answer is whole."""

    _line: asyncio.Transport | None = None

    async def start(self, connection: Any) -> aiohttp.ClientResponse:
        self._line = connection.transport
        return await super().start(connection)

    def hang_up(self) -> None:
        """Close the connection, so that no other request goes over it."""
        if self._line is not None:
            self._line.close()


class HttpPool:
    """One HTTP session and one TLS context for all bots of a daemon, opened at first use."""

    def __init__(self, *, connect_timeout_s: float = 8.0) -> None:
        """`connect_timeout_s` bounds the way to a connection, name look-up and TLS included."""
        self._connect_timeout_s = connect_timeout_s
        self._session: aiohttp.ClientSession | None = None
        self._tls: ssl.SSLContext | None = None
        self._tls_lock = asyncio.Lock()
        self._is_closed = False

    async def request(
        self,
        method: str,
        url: str,
        *,
        timeout_s: float,
        data: Any = None,
        headers: Mapping[str, str] | None = None,
        max_bytes: int | None = None,
        hang_up_after: int | None = None,
    ) -> HttpAnswer:
        """Make a request and read the whole answer, all within ``timeout_s``.

        An answer over ``max_bytes`` is none. After one with the status ``hang_up_after`` the
        connection is closed. Raises ``Unsent`` and ``Unanswered``.
        """
        async with self.open(
            method, url, timeout_s=timeout_s, data=data, headers=headers
        ) as response:
            body = await _whole(response, max_bytes)
            if response.status == hang_up_after and isinstance(response, _Response):
                response.hang_up()
            return HttpAnswer(response.status, body, response.headers.get("Retry-After", ""))

    @asynccontextmanager
    async def open(
        self,
        method: str,
        url: str,
        *,
        timeout_s: float,
        data: Any = None,
        headers: Mapping[str, str] | None = None,
    ) -> AsyncIterator[aiohttp.ClientResponse]:
        """Make a request and give the response to read from. Raises like ``request``; an
        ``OSError`` of what the block does with the answer is its own."""
        progress = _Progress()
        async with _translated(progress):
            session, tls = await self._opened(url)
            asked = session.request(
                method,
                url,
                data=data,
                headers=headers,
                ssl=tls,
                allow_redirects=False,
                timeout=self._timeout(timeout_s),
                trace_request_ctx=progress,
            )
            async with asked as response:
                try:
                    yield response
                except (aiohttp.ClientError, TimeoutError, ConnectionError):
                    raise
                except OSError as error:
                    raise _Theirs(error) from None

    async def close(self) -> None:
        """Close the session; calls under way fail. Harmless when repeated."""
        self._is_closed = True
        session, self._session = self._session, None
        if session is not None:
            await session.close()

    def _timeout(self, timeout_s: float) -> aiohttp.ClientTimeout:
        connect_s = min(self._connect_timeout_s, timeout_s)
        return aiohttp.ClientTimeout(total=timeout_s, connect=connect_s, sock_connect=connect_s)

    async def _opened(self, url: str) -> tuple[aiohttp.ClientSession, ssl.SSLContext | bool]:
        tls: ssl.SSLContext | bool = True
        if url.startswith("https:"):
            async with self._tls_lock:
                if self._tls is None:
                    self._tls = await asyncio.to_thread(ssl.create_default_context)
                tls = self._tls
        if self._is_closed:
            raise Unsent("the connection is closed")
        if self._session is None:
            self._session = aiohttp.ClientSession(
                connector=aiohttp.TCPConnector(limit=0, keepalive_timeout=_KEEPALIVE_S),
                cookie_jar=aiohttp.DummyCookieJar(),
                trace_configs=[_tracing()],
                response_class=_Response,
            )
        return self._session, tls


async def _whole(response: aiohttp.ClientResponse, max_bytes: int | None) -> bytes:
    if max_bytes is None:
        return await response.read()
    body = bytearray()
    async for chunk in response.content.iter_chunked(_CHUNK_BYTES):
        body += chunk
        if len(body) > max_bytes:
            raise Unanswered(f"the answer is over {max_bytes // (1024 * 1024)} MiB")
    return bytes(body)


@asynccontextmanager
async def _translated(progress: _Progress) -> AsyncIterator[None]:
    # No detail of these errors is shown but their kind: some hold the address, and with it a token.
    try:
        yield
    except _Theirs as carried:
        raise carried.error from None
    except aiohttp.InvalidURL:
        raise Unsent("the address is not valid") from None
    except (aiohttp.ClientError, TimeoutError, OSError) as error:
        why = _why(error)
        if progress.has_connection:
            raise Unanswered(why) from None
        raise Unsent(why) from None


def _why(error: Exception) -> str:
    if isinstance(error, TimeoutError):
        return "timed out"
    if isinstance(error, OSError) and error.strerror:
        return f"{type(error).__name__}, {error.strerror}"
    return type(error).__name__


def _tracing() -> aiohttp.TraceConfig:
    async def connected(
        session: aiohttp.ClientSession, context: SimpleNamespace, params: object
    ) -> None:
        context.trace_request_ctx.has_connection = True

    tracing = aiohttp.TraceConfig()
    tracing.on_connection_create_end.append(connected)
    tracing.on_connection_reuseconn.append(connected)
    return tracing
