"""One tool server of an agent: a supervised child that opens it, keeps it and hears of its tools.

It is opened once and used by every turn of the stack. Nothing waits for it: a start that hangs, a
crash or nonsense is this child's own trouble. A call whose server goes away fails with a sentence and
is never made again by itself.
"""

from __future__ import annotations

import asyncio
import importlib
import sys
from collections.abc import Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from agentsup.agents.mcp.failures import CallLost, CallRefused, CallTimedOut, ServerAway
from agentsup.agents.mcp.offered import (
    Answer,
    Listed,
    Taken,
    classed,
    clean,
    take,
    tool_name,
    version_of,
)
from agentsup.agents.mcp.programs import Book, Programs
from agentsup.agents.pipeline.marking import marked
from agentsup.agents.processes import ProcessTable
from agentsup.config.mcp import McpServer, resolved
from agentsup.engines.child import ChildLimits, ChildManager, ProgramHome, home_variables
from agentsup.engines.child.fencing import Fencing
from agentsup.kit.clock import Clock
from agentsup.kit.entropy import Entropy
from agentsup.kit.pool import BoundedPool
from agentsup.kit.tasks import OwnerClosed, TaskOwner
from agentsup.model.engine import EngineSpec
from agentsup.model.errors import AgentsupError
from agentsup.model.health import AgentState
from agentsup.model.tool import Tool, ToolContext
from agentsup.supervision.board import ChildStatus
from agentsup.supervision.child import SupervisedChild
from agentsup.supervision.policy import RestartPolicy
from agentsup.supervision.spec import ChildContext, ChildSpec, Grace, Restart

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

    from agentsup.agents.mcp.wire import Link

WIRE = "agentsup.agents.mcp.wire"
PATIENT = RestartPolicy(max_restarts=None, cap_s=300.0)
"""A server is tried for ever: it may be an address that comes back."""
GRACE = Grace(drain_s=5.0, cancel_s=2.0, kill_s=2.0)
PROBE_S = 60.0
"""A server of which nothing was heard for so long is asked whether it is there."""
_ANSWER_S = 15.0
_LIST_S = 30.0
_RELIST_S = 1.0
_COMING_S = 10.0
"""How long a call waits for a server that is being opened (again)."""
_LIMITS = ChildLimits(line_bytes=4 * 1024 * 1024, line_values=100_000)
_ERROR_CHARS = 4_000
_TOLD_CHARS = 600
_ENDED = (AgentState.BACKOFF, AgentState.FAILED)


@dataclass(frozen=True, slots=True)
class McpServices:
    """What the servers of all agents share."""

    clock: Clock
    entropy: Entropy
    processes: ProcessTable
    home: Path
    """Where relative `file:` references count from."""
    environ: Mapping[str, str]
    child_env: Callable[[], dict[str, str]]
    redact: Callable[[str], str] = str
    memory_mb: Callable[[], int] = lambda: 4096
    after_imports: Callable[[], None] = lambda: None
    fencing: Callable[[], Fencing] = Fencing
    programs: Programs = field(default_factory=Programs)
    """How many programs of servers run in all."""
    files: BoundedPool = field(default_factory=lambda: BoundedPool("files"))
    """Where the homes of programs are made."""


@dataclass(frozen=True, slots=True)
class ServerPlace:
    """Whose server it is, and where its program works."""

    agent_id: str
    agent: str
    workspace: Path

    def home_of(self, server: str) -> Path:
        """A home of the program's own, beside the workspace."""
        return self.workspace.parent / "mcp" / server


class Server:
    """``start`` it, ``call`` its tools, ``stop`` it."""

    def __init__(
        self, declared: McpServer, place: ServerPlace, services: McpServices, children: ChildManager
    ) -> None:
        self.declared = declared
        self.tried = asyncio.Event()
        """Set once the first try has ended, well or badly."""
        self.tools: dict[str, Tool] = {}
        """By the names that the server gives them. Kept while it is away."""
        self._place = place
        self._s = services
        self._children = children
        self._listing = Taken()
        self._listed: tuple[Any, ...] = ()
        self._link: Link | None = None
        self._linked = asyncio.Event()
        self._news = asyncio.Event()
        self._has_changed = False
        self._is_suspect = False
        self._busy = 0
        self._why = ""
        """What this life ended by, in a sentence."""
        self._told = ""
        self._owner = TaskOwner(f"mcp {declared.name}", on_error=lambda task, error: None)
        self.child = SupervisedChild(
            ChildSpec(
                f"mcp:{place.agent}/{declared.name}",
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
        """Have it opened, and opened again whenever it ends."""
        self.child.start()

    async def stop(self, grace: Grace | None = None) -> None:
        """Have it closed, within the grace."""
        self.tried.set()
        await self.child.stop(grace)
        await self._owner.close(0.1)

    def retune(self, declared: McpServer) -> None:
        """Take over what does not concern the connection: choice, classes, limits of calls."""
        self.declared = declared
        self._take()

    async def _life(self, ctx: ChildContext) -> None:
        wire = await self._library()
        self._why = ""
        name, allowed_s = self.declared.name, self.declared.start_timeout_s
        limit = asyncio.timeout(allowed_s)
        try:
            async with limit, self._opened(wire) as link:
                await link.open()
                self._is_suspect = self._has_changed = False
                await self._list(link)
                limit.reschedule(None)
                await self._serve(ctx, link)
        except TimeoutError:
            if not limit.expired():
                raise
            self._why = f"{name} was not ready within {allowed_s:g} s"
            raise ServerAway(self._why) from None
        except AgentsupError as error:
            self._why = error.message
            raise
        except BaseExceptionGroup as group:
            first = _first(group)
            if not isinstance(first, Exception):
                raise first from None
            # Most of the library's own errors are of the network.
            why = f"{name} can't be kept open: {type(first).__name__}: {first}"
            self._why = first.message if isinstance(first, AgentsupError) else why
            raise ServerAway(self._why) from first
        finally:
            self.tried.set()

    async def _library(self) -> Any:
        is_first = WIRE not in sys.modules
        wire = await asyncio.to_thread(importlib.import_module, WIRE)
        if is_first:
            self._s.after_imports()
        return wire

    @asynccontextmanager
    async def _opened(self, wire: Any) -> AsyncGenerator[Link]:
        declared = self.declared
        opened = await asyncio.to_thread(
            resolved, declared, base=self._s.home, environ=self._s.environ
        )
        if declared.url is not None:
            async with wire.over_http(
                declared.name, opened.url, opened.headers, self._changed
            ) as link:
                yield link
            return
        home = self._place.home_of(declared.name)
        env = {**self._s.child_env(), **home_variables(home), **opened.env}
        spec = EngineSpec("mcp", workspace=str(self._place.workspace), agent=self._place.agent)
        async with (
            self._s.programs.place(declared.name),
            self._children.open(
                [declared.command, *declared.args],
                spec,
                Book(self._s.processes, self._place.agent_id, self.child.spec.child_id),
                env=env,
                home=ProgramHome(home),
                secrets=opened.secrets,
                limits=_LIMITS,
                remedy=f"install it, or name its full path as the command of the server {declared.name}",
            ) as child,
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
                        raise ServerAway(link.why) if link.why else await child.ended("ended")
            finally:
                child.close_stdin()

    async def _serve(self, ctx: ChildContext, link: Link) -> None:
        """Keep the session until it is to be closed. Raises why it can't be kept."""
        self._link = link
        self._linked.set()
        bell = self._owner.spawn(self._ring_at(ctx.draining), name=f"drain:{ctx.child_id}")
        ctx.ready()
        self.tried.set()
        try:
            while not ctx.draining.is_set() and not link.closed.is_set():
                heard = await self._hear()
                if ctx.draining.is_set() or link.closed.is_set():
                    break
                if self._has_changed:
                    await self._s.clock.sleep(_RELIST_S)  # changes come in swarms
                    self._has_changed = False
                    await self._list(link)
                elif not self._busy and (self._is_suspect or not heard):
                    self._is_suspect = False
                    await (link.alive(_ANSWER_S) if link.tells_changes else self._list(link))
            while self._busy and not link.closed.is_set():
                await self._hear()
        finally:
            bell.cancel()
            self._linked.clear()
            self._link = None

    async def _hear(self) -> bool:
        """Wait for news; False where there was none for long."""
        try:
            async with asyncio.timeout(PROBE_S):
                await self._news.wait()
        except TimeoutError:
            return False
        self._news.clear()
        return True

    async def _ring_at(self, draining: asyncio.Event) -> None:
        await draining.wait()
        self._news.set()

    def _changed(self) -> None:
        self._has_changed = True
        self._news.set()

    async def _list(self, link: Link) -> None:
        try:
            listing = await link.list(_LIST_S)
        except CallRefused as error:
            raise ServerAway(error.message) from None
        self._listed = (listing,)
        self._take()

    def _take(self) -> None:
        if self._listed:
            self._listing = take(self.declared, self._listed[0])
            self.tools = {each.name: self._tool(each) for each in self._listing.tools}

    # -- calls -------------------------------------------------------------------------------------

    def _tool(self, listed: Listed) -> Tool:
        effect, safety = classed(self.declared, listed)
        name = tool_name(self.declared.name, listed.name)

        async def run(context: ToolContext, args: dict[str, Any]) -> str:
            try:
                answer = await self.call(listed.name, args)
            except CallRefused as error:
                raise _quoted(error.message, name, context) from None
            if answer.is_error:
                raise _quoted(answer.text, name, context)
            return answer.text

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

    async def call(self, tool: str, args: dict[str, Any]) -> Answer:
        """Call one of its tools. A cancelled call is told to the server and not waited for.

        Raises ``ServerAway``, ``CallRefused``, ``CallTimedOut``, ``CallLost``.
        """
        link, limit_s = await self._ready_link(), self.declared.call_timeout_s
        try:
            task = self._owner.spawn(link.call(tool, args, limit_s), name=f"mcp-call:{tool[:64]}")
        except OwnerClosed:
            raise self._away() from None
        self._busy += 1
        try:
            done, _ = await asyncio.wait({task}, timeout=limit_s + 2.0)
            if not done:
                raise CallTimedOut(f"{self.declared.name} did not take the call; it may be stuck")
            if task.cancelled():
                raise CallLost(f"{self.declared.name} was closed; whether it was done is not known")
            return task.result()
        except (CallTimedOut, CallLost):
            self._is_suspect = True
            raise
        finally:
            task.cancel()
            self._busy -= 1
            self._news.set()

    async def come(self) -> None:
        """Wait a moment until it is open, its tools known. Raises ``ServerAway``."""
        await self._ready_link()

    async def _ready_link(self) -> Link:
        if self._link is None:
            try:
                async with asyncio.timeout(_COMING_S):
                    await self._linked.wait()
            except TimeoutError:
                raise self._away() from None
        if self._link is None:
            raise self._away()
        return self._link

    def _away(self) -> ServerAway:
        return ServerAway(
            f"the tool server {self.declared.name} is not running now, so nothing was done; it is "
            "started again by itself"
        )

    # -- how it is ---------------------------------------------------------------------------------

    def document(self) -> dict[str, Any]:
        """For people: its state, since when, its tools and what is amiss."""
        status = self.child.status
        garbage = self._link.garbage if self._link is not None else 0
        notes = [*self._listing.left_out]
        if garbage:
            notes.append(f"{garbage} lines of its output are no protocol")
        return {
            "name": self.declared.name,
            "type": self.declared.kind,
            "target": self.declared.shown,
            "state": status.state.value,
            "since": status.changed_at,
            "tools": sorted(tool.name for tool in self.tools.values()),
            "error": _one_line(self._s.redact(self._told)),
            "next_retry_at": status.next_retry_at,
            "restarts": max(0, status.life - 1),
            "notes": notes,
        }

    def _record(self, status: ChildStatus) -> None:
        end = status.last_end
        if end is not None and not end.wanted and status.state in _ENDED:
            self._told = self._why or status.reason


def connection_of(declared: McpServer) -> McpServer:
    """What of a declaration takes a new connection where it changes."""
    return replace(declared, tools=None, safety={}, trust_hints=False, call_timeout_s=1.0)


def _one_line(text: str) -> str:
    line = " ".join(clean(text).split())
    return (
        line
        if len(line) <= _TOLD_CHARS
        else f"{line[: _TOLD_CHARS // 2]} … {line[-_TOLD_CHARS // 2 :]}"
    )


def _quoted(text: str, name: str, context: ToolContext) -> CallRefused:
    """A failure in the server's own words, marked as such: they are as foreign as any result."""
    return CallRefused(marked(text[:_ERROR_CHARS], name=name, call_id=context.call_id))


def _first(group: BaseExceptionGroup[BaseException]) -> BaseException:
    """What was raised first in the library's nested groups."""
    error: BaseException = group
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error
