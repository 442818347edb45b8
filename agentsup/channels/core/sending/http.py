"""One HTTP session for all bots of a daemon, which knows whether a request may have been sent.

A TLS context takes tens of milliseconds to build and megabytes of memory, so there is one, built in
a thread. Connections are not limited here: each bot bounds its own calls, so a bot whose server
hangs takes no connection from another (P3).
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import aclosing, asynccontextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field, replace
from typing import Any

import aiohttp

from agentsup.channels.core.errors import NotSent, OutcomeUnknown
from agentsup.channels.core.files.inbox_files import Write
from agentsup.kit.outbound.aiohttp_client import Request, Session, new_session, pieces, whole
from agentsup.kit.outbound.limits import MIB, AnswerLimits, LimitExceeded
from agentsup.kit.outbound.proxy import ProxyUnusable
from agentsup.kit.outbound.tls import loaded
from agentsup.model.errors import AgentsupError, TooLarge

_KEEPALIVE_S = 15.0
"""Shorter than servers keep an idle connection, so that a request rarely meets a closing one."""
_CONNECT_S = 8.0
"""The time limit of a connection, with name look-up and TLS."""
_SLOT_WAIT_S = 10.0
ANSWER = AnswerLimits(body_bytes=8 * MIB, values=100_000, idle_s=None, total_s=None)
"""The limits of an answer; its time limit is the request's."""


class _Theirs(Exception):
    """Wraps an ``OSError`` that does not come from the connection."""

    def __init__(self, error: OSError) -> None:
        super().__init__()
        self.error = error


@dataclass(frozen=True, slots=True)
class HttpAnswer:
    """An answer with its whole body."""

    status: int
    body: bytes
    retry_after: str


BeforeSending = Callable[[], Awaitable[None]]
"""Awaited when a connection is open and before the first byte of a request is sent. If it raises an
``AgentsupError``, the request is not sent."""


@dataclass(frozen=True, slots=True)
class HttpRequest:
    """A request to a platform. ``server`` names the server in the messages of errors, which contain
    no address. ``timeout_s`` bounds the request with its whole answer."""

    method: str
    url: str = field(repr=False)
    server: str
    timeout_s: float
    data: Any = None
    headers: Mapping[str, str] | None = field(default=None, repr=False)
    before: BeforeSending | None = None


@dataclass(slots=True)
class _RequestProgress:
    """Progress of a request."""

    request: HttpRequest
    may_be_sent: bool = False
    """Whether a part of it may have reached the server."""

    def not_sent(self, why: str) -> NotSent:
        """Return the error that nothing has reached the server."""
        return NotSent(f"{self.request.server} can't be reached: {why}")

    def unknown(self, why: str) -> OutcomeUnknown:
        """Return the error that there is no whole answer, though something may have been sent."""
        return OutcomeUnknown(f"no answer from {self.request.server}: {why}")


# The session creates its requests itself; by this variable a request finds its call.
_progress: ContextVar[_RequestProgress | None] = ContextVar("http request", default=None)


class _Request(Request):
    """A request that records when it is sent."""

    async def send(self, conn: Any) -> aiohttp.ClientResponse:
        """Send the request over the connection; called by aiohttp."""
        progress = _progress.get()
        assert progress is not None, "requests are made by HttpPool.open"
        if progress.request.before is not None:
            try:
                await progress.request.before()
            except AgentsupError as error:
                raise progress.not_sent(error.message) from error
        progress.may_be_sent = True
        return await super().send(conn)


class _Response(aiohttp.ClientResponse):
    """Keeps its transport, as the connection returns to the pool once the answer is whole."""

    _line: asyncio.Transport | None = None

    async def start(self, connection: Any) -> aiohttp.ClientResponse:
        self._line = connection.transport
        return await super().start(connection)

    def hang_up(self) -> None:
        """Close the connection, so that no other request uses it."""
        if self._line is not None:
            self._line.close()


@dataclass(frozen=True, slots=True)
class Answering:
    """An answer whose body is not read yet."""

    status: int
    retry_after: str
    response: aiohttp.ClientResponse

    async def save(self, write: Write, max_bytes: int) -> int:
        """Write the body piece by piece and return its size in bytes.

        Raises ``TooLarge`` over ``max_bytes``.
        """
        size, limits = 0, replace(ANSWER, body_bytes=max_bytes)
        try:
            async with aclosing(pieces(self.response, limits)) as coming:
                async for piece in coming:
                    size += len(piece)
                    await write(piece)
        except LimitExceeded as error:
            if error.limit != "bytes":
                raise
            raise TooLarge(f"the file is over {max_bytes // MIB} MiB", limit=max_bytes) from None
        return size

    async def beginning(self, max_bytes: int) -> bytes:
        """Return at most the first ``max_bytes`` of the body."""
        body = bytearray()
        async with aclosing(pieces(self.response, ANSWER)) as coming:
            async for piece in coming:
                body += piece
                if len(body) >= max_bytes:
                    break
        return bytes(body[:max_bytes])


class CallSlots:
    """Bounds how many calls of one account are under way."""

    def __init__(self, at_once: int, refusal: str) -> None:
        """``refusal`` is the message of the error when no slot becomes free."""
        self._slots = asyncio.Semaphore(at_once)
        self._refusal = refusal

    @asynccontextmanager
    async def one(self) -> AsyncIterator[None]:
        """Hold a slot during the block. Raises ``NotSent`` if none becomes free soon."""
        try:
            async with asyncio.timeout(_SLOT_WAIT_S):
                await self._slots.acquire()
        except TimeoutError:
            raise NotSent(self._refusal) from None
        try:
            yield
        finally:
            self._slots.release()


class HttpPool:
    """One HTTP session for all bots of a daemon, opened at first use."""

    def __init__(self) -> None:
        self._session: Session | None = None
        self._tls: ssl.SSLContext | None = None
        self._is_closed = False

    async def request(
        self,
        wanted: HttpRequest,
        *,
        limits: AnswerLimits = ANSWER,
        hang_up_after: int | None = None,
    ) -> HttpAnswer:
        """Make a request and read the whole answer, within its time limit.

        An answer over ``limits`` is an error. After an answer with the status ``hang_up_after`` the
        connection is closed. Raises ``NotSent`` if certainly nothing reached the server, else
        ``OutcomeUnknown``.
        """
        async with self.open(wanted) as answering:
            response = answering.response
            body = await whole(response, limits)
            if response.status == hang_up_after and isinstance(response, _Response):
                response.hang_up()
            return HttpAnswer(answering.status, body, answering.retry_after)

    @asynccontextmanager
    async def open(self, wanted: HttpRequest) -> AsyncIterator[Answering]:
        """Make a request and yield the answer to read from.

        Raises like ``request``; an ``OSError`` that the block itself raises is passed on.
        """
        progress = _RequestProgress(wanted)
        async with _translated(progress):
            session, tls = await self._opened(progress)
            mine = _progress.set(progress)
            try:
                response = await session.request(
                    wanted.method,
                    wanted.url,
                    data=wanted.data,
                    headers=wanted.headers,
                    ssl=tls,
                    allow_redirects=False,
                    timeout=_timeout(wanted.timeout_s),
                )
            finally:
                _progress.reset(mine)
            async with response:
                try:
                    retry_after = response.headers.get("Retry-After", "")
                    yield Answering(response.status, retry_after, response)
                except (aiohttp.ClientError, TimeoutError, ConnectionError):
                    raise
                except OSError as error:
                    raise _Theirs(error) from None

    async def close(self) -> None:
        """Close the session; calls under way fail. A second call does nothing."""
        self._is_closed = True
        session, self._session = self._session, None
        if session is not None:
            await session.close()

    async def _opened(self, progress: _RequestProgress) -> tuple[Session, ssl.SSLContext | bool]:
        tls: ssl.SSLContext | bool = True
        if progress.request.url.startswith("https:"):
            if self._tls is None:
                self._tls = await loaded()
            tls = self._tls
        if self._is_closed:
            raise progress.not_sent("the connection is closed")
        if self._session is None:
            self._session = new_session(
                ANSWER,
                connector=aiohttp.TCPConnector(limit=0, keepalive_timeout=_KEEPALIVE_S),
                request_class=_Request,
                response_class=_Response,
            )
        return self._session, tls


def _timeout(timeout_s: float) -> aiohttp.ClientTimeout:
    connect_s = min(_CONNECT_S, timeout_s)
    return aiohttp.ClientTimeout(total=timeout_s, connect=connect_s, sock_connect=connect_s)


@asynccontextmanager
async def _translated(progress: _RequestProgress) -> AsyncIterator[None]:
    # Only the kind of these errors is shown: some contain the address, and with it a token.
    try:
        yield
    except _Theirs as wrapped:
        raise wrapped.error from None
    except LimitExceeded as error:
        raise progress.unknown(error.text) from None
    except aiohttp.InvalidURL:
        raise progress.not_sent("the address is not valid") from None
    except (aiohttp.ClientError, TimeoutError, OSError, ValueError) as error:
        failed = progress.unknown if progress.may_be_sent else progress.not_sent
        raise failed(_why(error)) from None


def _why(error: Exception) -> str:
    if isinstance(error, ProxyUnusable):
        return str(error)
    if isinstance(error, TimeoutError):
        return "timed out"
    if isinstance(error, OSError) and error.strerror:
        return f"{type(error).__name__}, {error.strerror}"
    return type(error).__name__
