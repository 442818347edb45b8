"""One HTTP session for every bot of a daemon, and the knowledge whether a request got away.

A TLS context takes tens of milliseconds to build and megabytes to keep, so there is one, built in
a thread. Connections are not limited here: a bot bounds its own calls, so that one whose server
hangs takes no connection from another (P3).
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import aclosing, asynccontextmanager
from contextvars import ContextVar
from dataclasses import dataclass, replace
from typing import Any

import aiohttp

from agentsup.channels.received import Write
from agentsup.kit.outbound.aiohttp_client import Session, new_session, pieces, whole
from agentsup.kit.outbound.limits import MIB, AnswerLimits, LimitExceeded
from agentsup.model.errors import AgentsupError, TooLarge

__all__ = ["Answering", "BeforeSending", "HttpAnswer", "HttpPool", "Unanswered", "Unsent"]

_KEEPALIVE_S = 15.0
"""Shorter than any server keeps an idle connection, so that a request seldom meets its end."""
_ANSWER = AnswerLimits(body_bytes=8 * MIB, values=100_000, idle_s=None, total_s=None)
"""Each request brings a time of its own, within which it must have its whole answer."""


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


BeforeSending = Callable[[], Awaitable[None]]
"""Awaited once a connection is there and before the first byte of a request leaves. If it raises
an ``AgentsupError``, the request is not sent."""


@dataclass(slots=True)
class _Progress:
    """How far a request came."""

    before: BeforeSending | None
    may_have_left: bool = False
    """From here on some of it may have reached the server."""


# The session makes its requests itself: this is how one learns which call it belongs to.
_progress: ContextVar[_Progress | None] = ContextVar("http request", default=None)


class _Request(aiohttp.ClientRequest):
    """A request that says when it leaves."""

    async def send(self, conn: Any) -> aiohttp.ClientResponse:
        """Called with the connection to send over."""
        progress = _progress.get()
        assert progress is not None, "requests are made by HttpPool.open"
        if progress.before is not None:
            try:
                await progress.before()
            except AgentsupError as error:
                raise Unsent(error.message) from error
        progress.may_have_left = True
        return await super().send(conn)


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


@dataclass(frozen=True, slots=True)
class Answering:
    """An answer whose body is still to come."""

    status: int
    retry_after: str
    _response: aiohttp.ClientResponse

    async def save(self, write: Write, max_bytes: int) -> int:
        """Hand the body on piece by piece and return its size; ``TooLarge`` over ``max_bytes``."""
        size, limits = 0, replace(_ANSWER, body_bytes=max_bytes)
        try:
            async with aclosing(pieces(self._response, limits)) as coming:
                async for piece in coming:
                    size += len(piece)
                    await write(piece)
        except LimitExceeded as error:
            if error.limit != "bytes":
                raise
            raise TooLarge(f"the file is over {max_bytes // MIB} MiB", limit=max_bytes) from None
        return size

    async def beginning(self, max_bytes: int) -> bytes:
        """No more than the first ``max_bytes`` of the body."""
        body = bytearray()
        async with aclosing(pieces(self._response, _ANSWER)) as coming:
            async for piece in coming:
                body += piece
                if len(body) >= max_bytes:
                    break
        return bytes(body[:max_bytes])


class HttpPool:
    """One HTTP session and one TLS context for all bots of a daemon, opened at first use."""

    def __init__(self, *, connect_timeout_s: float = 8.0) -> None:
        """`connect_timeout_s` bounds the way to a connection, name look-up and TLS included."""
        self._connect_timeout_s = connect_timeout_s
        self._session: Session | None = None
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
        max_bytes: int = _ANSWER.body_bytes,
        max_values: int | None = _ANSWER.values,
        hang_up_after: int | None = None,
        before: BeforeSending | None = None,
    ) -> HttpAnswer:
        """Make a request and read the whole answer, all within ``timeout_s``.

        An answer over ``max_bytes``, or with over ``max_values`` JSON values, is none. After one
        with the status ``hang_up_after`` the connection is closed. Raises ``Unsent`` and ``Unanswered``.
        """
        async with self._open(method, url, timeout_s, data, headers, before) as response:
            body = await whole(response, replace(_ANSWER, body_bytes=max_bytes, values=max_values))
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
        headers: Mapping[str, str] | None = None,
    ) -> AsyncIterator[Answering]:
        """Make a request and give the answer to read from. Raises like ``request``; an
        ``OSError`` of what the block does with the answer is its own."""
        async with self._open(method, url, timeout_s, None, headers, None) as response:
            retry_after = response.headers.get("Retry-After", "")
            yield Answering(response.status, retry_after, response)

    async def close(self) -> None:
        """Close the session; calls under way fail. Harmless when repeated."""
        self._is_closed = True
        session, self._session = self._session, None
        if session is not None:
            await session.close()

    @asynccontextmanager
    async def _open(
        self,
        method: str,
        url: str,
        timeout_s: float,
        data: Any,
        headers: Mapping[str, str] | None,
        before: BeforeSending | None,
    ) -> AsyncIterator[aiohttp.ClientResponse]:
        progress = _Progress(before)
        async with _translated(progress):
            session, tls = await self._opened(url)
            mine = _progress.set(progress)
            try:
                response = await session.request(
                    method,
                    url,
                    data=data,
                    headers=headers,
                    ssl=tls,
                    allow_redirects=False,
                    timeout=self._timeout(timeout_s),
                )
            finally:
                _progress.reset(mine)
            async with response:
                try:
                    yield response
                except (aiohttp.ClientError, TimeoutError, ConnectionError):
                    raise
                except OSError as error:
                    raise _Theirs(error) from None

    def _timeout(self, timeout_s: float) -> aiohttp.ClientTimeout:
        connect_s = min(self._connect_timeout_s, timeout_s)
        return aiohttp.ClientTimeout(total=timeout_s, connect=connect_s, sock_connect=connect_s)

    async def _opened(self, url: str) -> tuple[Session, ssl.SSLContext | bool]:
        tls: ssl.SSLContext | bool = True
        if url.startswith("https:"):
            async with self._tls_lock:
                if self._tls is None:
                    self._tls = await asyncio.to_thread(ssl.create_default_context)
                tls = self._tls
        if self._is_closed:
            raise Unsent("the connection is closed")
        if self._session is None:
            self._session = new_session(
                _ANSWER,
                connector=aiohttp.TCPConnector(limit=0, keepalive_timeout=_KEEPALIVE_S),
                request_class=_Request,
                response_class=_Response,
            )
        return self._session, tls


@asynccontextmanager
async def _translated(progress: _Progress) -> AsyncIterator[None]:
    # No detail of these errors is shown but their kind: some hold the address, and with it a token.
    try:
        yield
    except _Theirs as carried:
        raise carried.error from None
    except LimitExceeded as error:
        raise Unanswered(error.told) from None
    except aiohttp.InvalidURL:
        raise Unsent("the address is not valid") from None
    except (aiohttp.ClientError, TimeoutError, OSError) as error:
        why = _why(error)
        if progress.may_have_left:
            raise Unanswered(why) from None
        raise Unsent(why) from None


def _why(error: Exception) -> str:
    if isinstance(error, TimeoutError):
        return "timed out"
    if isinstance(error, OSError) and error.strerror:
        return f"{type(error).__name__}, {error.strerror}"
    return type(error).__name__
