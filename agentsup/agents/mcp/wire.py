"""Sessions with tool servers, over stdio or HTTP: with ``exchange`` and ``results`` the only module
that imports the MCP library.

It is imported in a thread when the first server is opened: that takes most of a second and 30 MiB.
Programs are started by ``engines.process`` and not by the library. Their output is read here, line
by line, at a bounded rate, so that a server that writes garbage or too much affects only its own
agent.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from functools import partial
from http import HTTPStatus
from typing import Any, TypeVar

import anyio
import httpx2
import mcp_types as types
from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream
from mcp.client.session import ClientSession
from mcp.client.streamable_http import streamable_http_client
from mcp.shared.exceptions import MCPError
from mcp.shared.message import SessionMessage
from pydantic import ValidationError

from agentsup import __version__
from agentsup.agents.mcp.exchange import (
    GONE,
    Dispatcher,
    NoAnswer,
    NotingClient,
    NotSent,
    StatusRefused,
    listed_tool,
    named_status,
    one_line,
    text_of,
    unavailable,
    why_ended,
)
from agentsup.agents.mcp.failures import (
    CallLost,
    CallRefused,
    CallTimedOut,
    ErrorAnswered,
    ServerUnavailable,
    SessionGone,
)
from agentsup.agents.mcp.offered import MAX_LISTED, ListedTool, ToolListing
from agentsup.engines.process import EngineProcess
from agentsup.kit.clock import Clock
from agentsup.kit.compute import compute
from agentsup.kit.log import set_level
from agentsup.kit.outbound.limits import MIB, AnswerLimits
from agentsup.kit.outbound.tls import loaded
from agentsup.kit.tasks import TaskOwner
from agentsup.model.errors import EngineFailed

T = TypeVar("T")

MAX_PAGES = 10
MAX_GARBAGE = 10_000
"""The most lines that are no protocol messages. Some servers log to stdout, but not so much."""
_THREAD_BYTES = 64 * 1024
_LINES_A_SECOND, _BYTES_A_SECOND = 1_000, 20_000_000
AHEAD_S = 0.05
"""Seconds of its pace that a server may be ahead before reading from it waits."""
_CLOSE_S = 0.5
_PROBE_S = 15.0
_EVENT_BYTES = 4 * MIB
_ANSWER = AnswerLimits(
    # A stream may stay open as long as the server; after so many bytes it is connected again.
    body_bytes=32 * MIB,
    # The library follows them within one origin alone, so that no token goes elsewhere.
    redirects=2,
    # Answers may take as long as a call may, and calls have their own limits.
    headers_s=3600.0,
    idle_s=None,
    total_s=None,
)
_NOT_SPOKEN = (types.UNSUPPORTED_PROTOCOL_VERSION, types.METHOD_NOT_FOUND)

# These loggers write whole addresses, which may hold a key, and every line that is no protocol.
for _chatty in ("client", "mcp", "httpx2", "httpcore2"):
    set_level("CRITICAL", _chatty)


class McpConnection:
    """An open session. ``closed`` is set when the program's output has ended."""

    def __init__(self, session: ClientSession, dispatcher: Dispatcher, server: str) -> None:
        self._session = session
        self._dispatcher = dispatcher
        self._server = server
        self.closed = asyncio.Event()
        self.garbage = 0
        self.said: Callable[[], str] = str
        """Returns the program's output for people, such as a question at its start."""
        self.why = ""
        """Why the output was read no further, if the program did not just end."""

    @property
    def reports_changes(self) -> bool:
        """Whether the server reports changes of its tools: not after ``discover``."""
        return self._session.initialize_result is not None

    async def list(self, timeout_s: float) -> ToolListing:
        """List the tools, page by page, up to a limit.

        Raises ``ServerUnavailable`` and ``CallRefused``.
        """
        capabilities = self._session.server_capabilities
        if capabilities is not None and capabilities.tools is None:
            # Some have tools and do not say so; the others know no such request.
            try:
                return await self._listed(timeout_s)
            except CallRefused:
                return ToolListing(())
        return await self._listed(timeout_s)

    async def _listed(self, timeout_s: float) -> ToolListing:
        found: list[ListedTool] = []
        self._dispatcher.unfit = []
        cursor: str | None = None
        cursors: set[str | None] = set()
        async with self._bounded(timeout_s, "did not list its tools"):
            for _ in range(MAX_PAGES):
                params = types.PaginatedRequestParams(cursor=cursor) if cursor else None
                page = await self._asked(self._session.list_tools(params=params))
                listed = map(listed_tool, page.tools[: MAX_LISTED - len(found)])
                found += [tool for tool in listed if tool not in found]
                cursors.add(cursor)
                # Some servers name the page that was just read as the next one.
                cursor = None if page.next_cursor in cursors else page.next_cursor
                if not cursor or len(found) >= MAX_LISTED:
                    break
        return ToolListing((*found, *self._dispatcher.unfit), is_cut=bool(cursor))

    async def call(self, tool: str, args: dict[str, Any], timeout_s: float) -> str:
        """Call a tool. If it is cancelled, the server is notified.

        Raises ``CallRefused`` (also if the result says that the call failed), ``CallTimedOut``,
        ``CallLost``, and ``ServerUnavailable`` if nothing was done: ``SessionGone`` if a new
        session may do it, ``NotSignedIn``.
        """
        request = types.CallToolRequest(
            params=types.CallToolRequestParams(name=tool, arguments=args)
        )
        try:
            # Not ``call_tool``: it would check the answer by a schema that the server wrote itself.
            # Our own limit, since its error for a timeout is one that servers send, too.
            async with asyncio.timeout(timeout_s):
                result = await self._session.send_request(request, types.CallToolResult)
        except TimeoutError:
            raise CallTimedOut(
                f"{self._server} did not answer within {timeout_s:g} s; whether it was done is not "
                "known, so look before you ask for it again"
            ) from None
        except MCPError as error:
            raise ErrorAnswered(one_line(error.message)) from None
        except NotSent:
            raise SessionGone(f"{self._server} can't be reached, so nothing was done") from None
        except StatusRefused as refused:
            raise await self._refused(refused) from None
        except (ValidationError, RuntimeError):
            raise CallRefused(f"{self._server} answered with what is no result") from None
        except (NoAnswer, httpx2.HTTPError, OSError, anyio.ClosedResourceError) as error:
            raise self._lost(why_ended(error)) from None
        text = text_of(result)
        if result.is_error:
            raise CallRefused(text)
        return text

    async def alive(self, timeout_s: float) -> None:
        """Raise ``ServerUnavailable`` if the server does not answer as the protocol has it:
        ``SessionGone`` if it answers, but to nothing in this session.

        A refused ping proves nothing, since a server that has lost the session refuses, too. It
        is then asked for its tools.
        """
        try:
            async with self._bounded(timeout_s, "did not answer"):
                await self._asked(self._session.send_ping())
        except CallRefused:
            try:
                await self.list(timeout_s)
            except CallRefused as error:
                raise SessionGone(error.message) from None

    async def open(self) -> None:
        """Agree on a protocol version: by ``initialize``, which nearly all know, else ``discover``.

        Raises ``ServerUnavailable`` and ``CallRefused``.
        """
        try:
            await self._session.initialize()
        except MCPError as error:
            if error.code not in _NOT_SPOKEN:
                raise ServerUnavailable(
                    f"{self._server} refused to begin: {one_line(error.message)}"
                ) from None
            await self._asked(self._session.discover())
        except StatusRefused as refused:
            raise unavailable(self._server, refused) from None
        except NoAnswer as error:
            raise ServerUnavailable(f"{self._server} went away: {why_ended(error)}") from None
        except (ValidationError, RuntimeError) as error:
            reason = one_line(str(error))
            raise ServerUnavailable(
                f"{self._server} began with what is no protocol: {reason}"
            ) from None
        self._dispatcher.version = self._session.protocol_version

    # -- inside ------------------------------------------------------------------------------------

    @asynccontextmanager
    async def _bounded(self, timeout_s: float, what: str) -> AsyncIterator[None]:
        try:
            async with asyncio.timeout(timeout_s):
                yield
        except TimeoutError:
            raise ServerUnavailable(f"{self._server} {what} within {timeout_s:g} s") from None

    async def _asked(self, answer: Awaitable[T]) -> T:
        try:
            return await answer
        except MCPError as error:
            raise CallRefused(
                f"{self._server} answered with an error: {one_line(error.message)}"
            ) from None
        except (ValidationError, RuntimeError) as error:
            reason = one_line(str(error))
            raise CallRefused(f"{self._server} answered with what is no answer: {reason}") from None
        except StatusRefused as refused:
            raise unavailable(self._server, refused) from None
        except NotSent:
            raise ServerUnavailable(f"{self._server} can't be reached") from None
        except (NoAnswer, httpx2.HTTPError, OSError, anyio.ClosedResourceError) as error:
            raise ServerUnavailable(f"{self._server} went away: {why_ended(error)}") from None

    async def _refused(self, refused: StatusRefused) -> ServerUnavailable | CallLost:
        """The outcome of a call that was answered with an HTTP error status."""
        status = refused.status
        if status < HTTPStatus.MULTIPLE_CHOICES:
            return self._lost(
                f"it answered {named_status(status)} without a message of the protocol"
            )
        if status >= HTTPStatus.INTERNAL_SERVER_ERROR:
            return self._lost(f"it answered {named_status(status)}")
        if status in GONE:
            try:
                await self.alive(_PROBE_S)
            except ServerUnavailable:
                return SessionGone(
                    f"{self._server} no longer knows its session ({status}), so nothing was done"
                )
        return unavailable(self._server, refused, "so nothing was done")

    def _lost(self, why: str) -> CallLost:
        return CallLost(
            f"the connection to {self._server} ended before its answer ({why}); whether it was done "
            "is not known, so look before you ask for it again"
        )


@asynccontextmanager
async def over_http(
    server: str, url: str, headers: Mapping[str, str], on_changed: Callable[[], None]
) -> AsyncGenerator[McpConnection]:
    """A session with the server at an address. Raises ``ServerUnavailable``."""
    try:
        async with (
            NotingClient(_ANSWER, await loaded(), headers=headers) as client,
            streamable_http_client(url, http_client=client, max_sse_event_size=_EVENT_BYTES) as (
                incoming,
                outgoing,
            ),
        ):
            session, link = _session(server, incoming, outgoing, on_changed)
            async with session:
                yield link
    except (httpx2.HTTPError, OSError) as error:
        raise ServerUnavailable(f"{server} can't be reached: {one_line(str(error))}") from None


@asynccontextmanager
async def over_stdio(
    server: str, child: EngineProcess, clock: Clock, on_changed: Callable[[], None]
) -> AsyncGenerator[McpConnection]:
    """A session with a program that was started. The end of its output sets ``closed``."""
    give, incoming = anyio.create_memory_object_stream[SessionMessage | Exception](16)
    outgoing, take = anyio.create_memory_object_stream[SessionMessage](64)
    owner = TaskOwner(f"mcp {server}")
    session, link = _session(server, incoming, outgoing, on_changed)
    link.said = child.said_text

    async def listen() -> None:
        try:
            await _read(child, give, link, clock)
        finally:
            give.close()
            link.closed.set()
            on_changed()

    try:
        owner.spawn(listen(), name=f"mcp-read:{server}")
        owner.spawn(_write(child, take, give), name=f"mcp-write:{server}")
        async with session:
            yield link
    finally:
        await owner.close(_CLOSE_S)
        for stream in (give, incoming, outgoing, take):
            stream.close()


async def _read(
    child: EngineProcess,
    give: MemoryObjectSendStream[SessionMessage | Exception],
    link: McpConnection,
    clock: Clock,
) -> None:
    """Pass the program's lines on as messages. Lines that are none are counted and dropped."""
    busy_until = clock.monotonic()
    try:
        async with contextlib.aclosing(child.lines()) as lines:
            async for line in lines:
                if line.strip():
                    message = await _parsed(line, child.name)
                    if message is not None:
                        await give.send(message)
                    else:
                        link.garbage += 1
                        if link.garbage > MAX_GARBAGE:
                            link.why = f"wrote {link.garbage} lines that are no protocol"
                            return
                now = clock.monotonic()
                cost_s = 1 / _LINES_A_SECOND + len(line) / _BYTES_A_SECOND
                busy_until = max(busy_until, now) + cost_s
                if busy_until - now > AHEAD_S:
                    await clock.sleep(busy_until - now)
    except EngineFailed as error:
        link.why = error.message
    except (anyio.BrokenResourceError, anyio.ClosedResourceError):
        return  # our own end of the session is closed


async def _parsed(line: bytes, program: str) -> SessionMessage | None:
    try:
        if len(line) > _THREAD_BYTES:
            message = await compute(partial(_message, line), key=program)
        else:
            message = _message(line)
    except ValueError:
        return None
    return SessionMessage(message)


def _message(line: bytes) -> types.JSONRPCMessage:
    return types.jsonrpc_message_adapter.validate_json(line, by_name=False)


async def _write(
    child: EngineProcess,
    take: MemoryObjectReceiveStream[SessionMessage],
    give: MemoryObjectSendStream[SessionMessage | Exception],
) -> None:
    try:
        async for each in take:
            text = each.message.model_dump_json(by_alias=True, exclude_unset=True)
            await child.write(text.encode() + b"\n")
    except EngineFailed:
        give.close()  # so that pending requests fail: no answer will come


def _session(
    server: str, incoming: Any, outgoing: Any, on_changed: Callable[[], None]
) -> tuple[ClientSession, McpConnection]:
    async def hear(message: Any) -> None:
        if isinstance(message, types.ToolListChangedNotification):
            on_changed()

    us = types.Implementation(name="agentsup", version=__version__)
    dispatcher = Dispatcher(incoming, outgoing)
    session = ClientSession(dispatcher=dispatcher, client_info=us, message_handler=hear)
    return session, McpConnection(session, dispatcher, server)
