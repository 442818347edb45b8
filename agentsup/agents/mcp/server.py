"""One tool server of an agent: a supervised child that opens it, keeps it open and lists its tools.

It is opened once and used by every turn of the stack. The stack's start does not wait for it: a
start that hangs, a crash or garbage affects only this child. A program that hangs at its first start
is tried once. A call whose server goes away fails with a message and is never repeated by itself.
"""

from __future__ import annotations

import asyncio
import importlib
import sys
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from agentsup.agents.mcp.failures import (
    CallLost,
    CallRefused,
    CallTimedOut,
    ErrorAnswered,
    NotSignedIn,
    ServerUnavailable,
    SessionGone,
    first_of,
)
from agentsup.agents.mcp.offered import (
    AcceptedTools,
    ListedTool,
    classed,
    take,
    tool_name,
    version_of,
)
from agentsup.agents.mcp.services import (
    McpServices,
    ServerLocation,
    ServerProcessRecords,
    error_line,
    idle,
)
from agentsup.agents.pipeline.marking import marked
from agentsup.config import McpServer, resolved
from agentsup.engines.process import ProcessLauncher
from agentsup.kit.tasks import OwnerClosed, TaskOwner, call_after, is_set_within
from agentsup.model.errors import AgentsupError
from agentsup.model.health import AgentState
from agentsup.model.tool import Tool, ToolContext
from agentsup.supervision import (
    ChildContext,
    ChildSpec,
    ChildStatus,
    Grace,
    Restart,
    RestartPolicy,
    SupervisedChild,
)

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

    from agentsup.agents.mcp.wire import McpConnection

WIRE = "agentsup.agents.mcp.wire"
PATIENT = RestartPolicy(is_endless=True, cap_s=300.0)
"""A server is restarted without a limit, since its address may come back."""
GRACE = Grace(drain_s=5.0, cancel_s=2.0, kill_s=2.0)
PROBE_S = 60.0
"""Seconds without news after which an idle server is asked whether it is alive."""
_ANSWER_S = 15.0
_LIST_S = 30.0
_RELIST_S = 1.0
_AFTER_S = 2.0
"""Seconds after its limit in which a call must have ended by itself."""
_COMING_S = 10.0
"""Seconds for which a call waits for a server that is being opened (again)."""
_ONCE = "not tried again until its entry is changed or its agent restarted"
_ERROR_CHARS = 4_000
_ENDED = (AgentState.BACKOFF, AgentState.FAILED)
_USABLE = (AgentState.RUNNING, AgentState.DEGRADED)
NOT_SIGNED_IN = "not_signed_in"
"""The state of a server that wants a token: it is asked again, as in ``backoff``."""


class ToolServer:
    """One tool server: ``start`` it, ``call`` its tools, ``stop`` it."""

    def __init__(
        self,
        declared: McpServer,
        location: ServerLocation,
        services: McpServices,
        children: ProcessLauncher,
    ) -> None:
        self.declared = declared
        self.tried = asyncio.Event()
        """Set when the first attempt to open it has ended, successful or not."""
        self.tools: dict[str, Tool] = {}
        """By the names that the server gives them. They stay while the server is unavailable."""
        self._location = location
        self._s = services
        self._children = children
        self._listing = AcceptedTools()
        self._listed: tuple[Any, ...] = ()
        self._link: McpConnection | None = None
        self._linked = asyncio.Event()
        self._news = asyncio.Event()
        self._has_changed = False
        self._is_suspect = False
        self._busy = 0
        self._is_gone = False
        """Whether the server has refused a call because it no longer knows the session."""
        self._why = ""
        """Why the last life ended, in a sentence."""
        self._is_signed_out = False
        self._last_error = ""
        self._owner = TaskOwner(f"mcp {declared.name}", on_error=lambda task, error: None)
        self.child = SupervisedChild(
            ChildSpec(
                f"mcp:{location.agent}/{declared.name}",
                self._life,
                Restart.PERMANENT,
                ready_timeout_s=declared.start_timeout_s + 5.0,
                grace=GRACE,
                policy=PATIENT,
            ),
            clock=services.clock,
            entropy=services.entropy,
            record=self._record,
        )

    # -- life --------------------------------------------------------------------------------------

    def start(self) -> None:
        """Open the server, and open it again whenever it ends. Returns at once."""
        self.child.start()

    async def stop(self, grace: Grace | None = None) -> None:
        """Close the server within the grace."""
        self.tried.set()
        await self.child.stop(grace)
        await self._owner.close(0.1)

    def retune(self, declared: McpServer) -> None:
        """Apply settings that need no new connection: choice of tools, safety, limits of calls."""
        self.declared = declared
        self._take()

    async def _life(self, ctx: ChildContext) -> None:
        wire = await self._library()
        try:
            while await self._in_session(ctx, wire):
                pass  # the server has lost the session, and is asked for another one at once
        except AgentsupError as error:
            self._why, self._is_signed_out = error.message, isinstance(error, NotSignedIn)
            raise

    async def _in_session(self, ctx: ChildContext, wire: Any) -> bool:
        """Work in one session until it ends. True: the server no longer knows it."""
        name, allowed_s = self.declared.name, self.declared.start_timeout_s
        limit, has_begun = asyncio.timeout(allowed_s), False
        link: McpConnection | None = None
        try:
            async with limit, self._opened(wire) as link:
                await link.open()
                self._is_suspect = self._has_changed = self._is_gone = False
                await self._list(link)
                limit.reschedule(None)
                has_begun = True
                await self._serve(ctx, link)
        except TimeoutError:
            if not limit.expired():
                raise
            said = link.said() if link is not None else ""
            text = f"{name} was not ready within {allowed_s:g} s (start_timeout_s)"
            text = f"{text}; it said: {said}" if said else text
            if link is not None and self.declared.url is None and not self._listed:
                # A program that has never begun waits for something, such as an answer to its question.
                self.child.spec = replace(self.child.spec, restart=Restart.TEMPORARY)
                text = f"{_ONCE}; {text}"
            raise ServerUnavailable(text) from None
        except SessionGone:
            if not has_begun:
                raise
            return True
        except BaseExceptionGroup as group:
            first = first_of(group)
            if isinstance(first, SessionGone) and has_begun:
                return True
            if not isinstance(first, Exception) or isinstance(first, AgentsupError):
                raise first from None
            # Most errors of the library itself are network errors.
            why = f"{name} can't be kept open: {type(first).__name__}: {first}"
            raise ServerUnavailable(why) from first
        finally:
            self.tried.set()
        return False

    async def _library(self) -> Any:
        is_first = WIRE not in sys.modules
        wire = await asyncio.to_thread(importlib.import_module, WIRE)
        if is_first:
            self._s.after_imports()
        return wire

    @asynccontextmanager
    async def _opened(self, wire: Any) -> AsyncGenerator[McpConnection]:
        declared, location = self.declared, self._location
        opened = await asyncio.to_thread(
            resolved, declared, base=self._s.home, environ=self._s.environ
        )
        if declared.url is not None:
            async with wire.over_http(
                declared.name, opened.url, opened.headers, self._changed
            ) as link:
                yield link
            return
        program = location.program(declared, opened, self._s.child_env())
        child_id = self.child.spec.child_id
        records = ServerProcessRecords(self._s.processes, location.agent_id, child_id)
        async with (
            self._s.programs.slot(declared.name),
            self._children.open(program, location.spec, records) as child,
        ):
            try:
                async with wire.over_stdio(
                    declared.name, child, self._s.clock, self._changed
                ) as link:
                    try:
                        yield link
                    except (AgentsupError, TimeoutError):
                        if not link.closed.is_set():
                            raise
                    if link.closed.is_set():
                        raise (
                            ServerUnavailable(link.why) if link.why else await child.ended("ended")
                        )
            finally:
                child.close_stdin()

    async def _serve(self, ctx: ChildContext, link: McpConnection) -> None:
        """Keep the session open until the child is drained. Raises what ends it earlier."""
        self._link = link
        self._linked.set()
        bell = self._owner.spawn(
            call_after(ctx.draining, self._news.set), name=f"drain:{ctx.child_id}"
        )
        ctx.ready()
        self.tried.set()
        try:
            while not ctx.draining.is_set() and not link.closed.is_set():
                has_news = await self._wait_news()
                if ctx.draining.is_set() or link.closed.is_set():
                    break
                if self._is_gone:
                    raise SessionGone(f"{self.declared.name} no longer knows the session")
                if self._has_changed:
                    await self._s.clock.sleep(_RELIST_S)  # changes come in bursts
                    self._has_changed = False
                    await self._list(link)
                elif not self._busy and (self._is_suspect or not has_news):
                    self._is_suspect = False
                    await (link.alive(_ANSWER_S) if link.reports_changes else self._list(link))
            while self._busy and not link.closed.is_set():
                await self._wait_news()
        finally:
            bell.cancel()
            self._linked.clear()
            self._link = None

    async def _wait_news(self) -> bool:
        """Wait for news; False if there is none within ``PROBE_S``."""
        if not await is_set_within(self._news, PROBE_S):
            return False
        self._news.clear()
        return True

    def _changed(self) -> None:
        self._has_changed = True
        self._news.set()

    async def _list(self, link: McpConnection) -> None:
        try:
            listing = await link.list(_LIST_S)
        except CallRefused as error:
            raise ServerUnavailable(error.message) from None
        self._listed = (listing,)
        self._take()

    def _take(self) -> None:
        if self._listed:
            self._listing = take(self.declared, self._listed[0])
            self.tools = {each.name: self._tool(each) for each in self._listing.tools}

    # -- calls -------------------------------------------------------------------------------------

    def _tool(self, listed: ListedTool) -> Tool:
        effect, safety = classed(self.declared, listed)
        name = tool_name(self.declared.name, listed.name)

        async def run(context: ToolContext, args: dict[str, Any]) -> str:
            try:
                return await self.call(listed.name, args)
            except CallRefused as error:
                # In the server's own words, marked as untrusted like any result.
                said = error.message[:_ERROR_CHARS]
                quoted = marked(said, name=name, call_id=context.call_id)
                raise CallRefused(quoted) from None

        return Tool(
            name,
            listed.description or f"The tool {listed.name} of the server {self.declared.name}.",
            listed.schema,
            run,
            effect,
            safety,
            is_outside=True,
            version=version_of(self.declared, listed),
        )

    async def call(self, tool: str, args: dict[str, Any]) -> str:
        """Call one of its tools. A cancelled call notifies the server and does not wait for it.

        A call that was refused because the server no longer knows the session has not begun. It is
        made once more in the next session.
        Raises ``ServerUnavailable``, ``CallRefused``, ``CallTimedOut``, ``CallLost``.
        """
        try:
            return await self._called(await self.ready_link(), tool, args)
        except SessionGone:
            return await self._called(await self.ready_link(), tool, args)

    async def _called(self, link: McpConnection, tool: str, args: dict[str, Any]) -> str:
        limit_s = self.declared.call_timeout_s
        try:
            task = self._owner.spawn(link.call(tool, args, limit_s), name=f"mcp-call:{tool[:64]}")
        except OwnerClosed:
            raise self._unavailable() from None
        self._busy += 1
        try:
            done, _ = await asyncio.wait({task}, timeout=limit_s + _AFTER_S)
            if not done:
                raise CallTimedOut(f"{self.declared.name} did not take the call; it may be stuck")
            if task.cancelled():
                raise CallLost(f"{self.declared.name} was closed; whether it was done is not known")
            return task.result()
        except SessionGone:
            if self._link is link:
                self._link, self._is_gone = None, True
                self._linked.clear()
            raise
        except (CallTimedOut, CallLost, ErrorAnswered, ServerUnavailable):
            self._is_suspect = True
            raise
        finally:
            task.cancel()
            self._busy -= 1
            self._news.set()

    async def ready_link(self) -> McpConnection:
        """The open connection; waits for it at most ``_COMING_S``. Raises ``ServerUnavailable``."""
        if self._link is None:
            await is_set_within(self._linked, _COMING_S)
        if self._link is None:
            raise self._unavailable()
        return self._link

    def _unavailable(self) -> ServerUnavailable:
        is_final = self.child.state is AgentState.FAILED
        after = _ONCE if is_final else "started again by itself"
        return ServerUnavailable(
            f"the tool server {self.declared.name} is not running now, so nothing was done; it is "
            f"{after}"
        )

    # -- state -------------------------------------------------------------------------------------

    def document(self) -> dict[str, Any]:
        """The document for people: its state, since when, its tools and its problems."""
        status = self.child.status
        garbage = self._link.garbage if self._link is not None else 0
        notes = [*self._listing.left_out]
        if garbage:
            notes.append(f"{garbage} lines of its output are no protocol")
        is_away = status.state not in _USABLE
        state = NOT_SIGNED_IN if self._is_signed_out and is_away else status.state.value
        return idle(self.declared, state, status.changed_at) | {
            "tools": sorted(tool.name for tool in self.tools.values()),
            "error": error_line(self._s.redact(self._last_error)),
            "next_retry_at": status.next_retry_at,
            "restarts": max(0, status.life - 1),
            "notes": notes,
        }

    def _record(self, status: ChildStatus) -> None:
        end = status.last_end
        if status.state in _USABLE:
            self._last_error, self._why, self._is_signed_out = "", "", False
        elif end is not None and not end.wanted and status.state in _ENDED:
            self._last_error = self._why or status.reason
