"""The tool servers of one agent, for the life of its stack. No other agent has their tools."""

from __future__ import annotations

import asyncio
import importlib.util
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from agentsup.agents.mcp.failures import ServerUnavailable
from agentsup.agents.mcp.server import ToolServer
from agentsup.agents.mcp.services import McpServices, ServerLocation, idle
from agentsup.config import MAX_SERVERS, McpServer, servers_of
from agentsup.engines.process import ProcessLauncher, ProcessSlotLimits
from agentsup.kit.log import get_logger
from agentsup.kit.tasks import TaskOwner
from agentsup.model.health import AgentState
from agentsup.model.tool import Tool
from agentsup.supervision import Grace

_log = get_logger(__name__)

EXTRA = "mcp"
MISSING = "what it takes is not installed; install it with: pip install 'agentsup[mcp]'"
FIRST_TRY_S = 10.0
"""The longest time in seconds, counted from the start of the servers, that a turn waits for the
first attempt of each."""
_USABLE = (AgentState.RUNNING, AgentState.DEGRADED)
CLOSE_GRACE = Grace(drain_s=0.2, cancel_s=1.0, kill_s=1.0)


class AgentServers:
    """Implements ``model.tool.ToolRegistry`` over the servers in the agent's entry."""

    def __init__(self, location: ServerLocation, services: McpServices) -> None:
        self._location = location
        self._s = services
        self._servers: dict[str, ToolServer] = {}
        self._stopping: set[ToolServer] = set()
        self._unused: dict[str, McpServer] = {}
        self._is_missing = False
        self._is_open = False
        self._since_at = services.clock.now_ms()
        self._began_s = services.clock.monotonic()
        self._owner = TaskOwner(f"mcp of {location.agent}")
        self._children = ProcessLauncher(
            services.clock,
            limits=lambda: ProcessSlotLimits(total=2 * MAX_SERVERS, per_agent=2 * MAX_SERVERS),
            memory_mb=services.memory_mb,
            redact=services.redact,
            fencing=services.fencing,
            files=services.files,
        )

    # -- life --------------------------------------------------------------------------------------

    def open(self, declared: Mapping[str, Any]) -> None:
        """Begin to open these servers when the stack starts to work. Returns at once."""
        self._is_open = True
        self.apply(declared)

    def apply(self, declared: Mapping[str, Any]) -> None:
        """Make these the agent's servers. One that did not change is not touched. Returns at once.

        Before ``open`` and after ``close`` it does nothing.
        """
        if not self._is_open:
            return
        wanted = {name: each for name, each in servers_of(declared).items() if each.enabled}
        self._unused = {n: each for n, each in servers_of(declared).items() if not each.enabled}
        self._is_missing = bool(wanted) and not _is_installed()
        if self._is_missing:
            self._unused |= wanted
            _log.warning("no tool servers", agent=self._location.agent, reason=MISSING)
            wanted = {}
        for name in [each for each in self._servers if each not in wanted]:
            leaving = self._servers.pop(name)
            self._stopping.add(leaving)
            self._owner.spawn(self._end(leaving), name=f"mcp-stop:{name}")
        for name, server in wanted.items():
            self._ensure(name, server)
        if self._servers:
            self._s.in_use[self._location.agent_id] = self.all

    def _ensure(self, name: str, declared: McpServer) -> None:
        known = self._servers.get(name)
        if known is not None and _connection_of(known.declared) == _connection_of(declared):
            known.retune(declared)
            return
        self._servers[name] = made = ToolServer(declared, self._location, self._s, self._children)
        self._began_s = self._s.clock.monotonic()
        if known is None:
            made.start()
        else:
            self._stopping.add(known)
            self._owner.spawn(self._end(known, made), name=f"mcp-replace:{name}")

    async def _end(self, leaving: ToolServer, following: ToolServer | None = None) -> None:
        """Stop a server, and only then start the one that replaces it: both use the same home or
        port."""
        await leaving.stop()
        self._stopping.discard(leaving)
        if following is not None and self._servers.get(following.declared.name) is following:
            following.start()

    async def close(self) -> None:
        """Stop all servers at the same time, in bounded time."""
        closing = TaskOwner("mcp-close")
        leaving = (*self._servers.values(), *self._stopping)
        if self._s.in_use.get(self._location.agent_id) == self.all:
            del self._s.in_use[self._location.agent_id]
        self._servers, self._is_open = {}, False  # no successor is started any more
        tasks = {
            closing.spawn(server.stop(CLOSE_GRACE), name=f"mcp-stop:{server.declared.name}")
            for server in leaving
        }
        if tasks:
            await asyncio.wait(tasks, timeout=CLOSE_GRACE.total_s + 2.0)
        await closing.close(0.1)
        await self._owner.close(1.0)
        await self._children.close()

    # -- tools for turns ---------------------------------------------------------------------------

    async def wait_first_attempts(self, *, is_patient: bool) -> None:
        """Wait until each server was tried once, but at most ``FIRST_TRY_S`` after the latest start
        of one.

        A resumed turn (``is_patient``) waits as long as a start may take, since it may need a tool
        that it has used before.
        """
        for server in list(self._servers.values()):
            limit_s = server.declared.start_timeout_s if is_patient else FIRST_TRY_S
            try:
                async with asyncio.timeout_at(self._began_s + limit_s):
                    await server.tried.wait()
            except TimeoutError:
                continue

    def get(self, name: str) -> Tool | None:
        """The tool called ``mcp:server/tool``, or None."""
        server, _, tool = name.removeprefix("mcp:").partition("/")
        found = self._servers.get(server)
        return None if found is None or not name.startswith("mcp:") else found.tools.get(tool)

    async def wait_for_tool(self, name: str) -> Tool | None:
        """Wait for a server that has not listed its tools yet, and return its tool or None.

        Raises ``ServerUnavailable`` if the server can't be used now; nothing was done.
        """
        server, _, tool = name.removeprefix("mcp:").partition("/")
        if not name.startswith("mcp:"):
            return None
        found = self._servers.get(server)
        if found is None and server in self._unused:
            why = MISSING if self._is_missing else "it is switched off"
            raise ServerUnavailable(
                f"the tool server {server} is not used ({why}), so nothing was done"
            )
        if found is None:
            return None
        await found.ready_link()
        return found.tools.get(tool)

    def all(self) -> tuple[Tool, ...]:
        return tuple(tool for server in self._servers.values() for tool in server.tools.values())

    # -- state of the servers ----------------------------------------------------------------------

    def note_for_model(self) -> str:
        """The note that tells the model which servers can't be used. It contains no text that comes
        from a server."""
        away = [name for name, each in self._servers.items() if each.child.state not in _USABLE]
        if self._is_missing:
            away += sorted(self._unused)
        if not away:
            return ""
        return (
            f"Tool servers that can't be used now: {', '.join(away)}. Say so where a request needs "
            "one."
        )

    def warnings(self) -> tuple[str, ...]:
        """Warnings for operators: the servers that can't run because the library is missing."""
        if not self._is_missing:
            return ()
        names = ", ".join(sorted(self._unused))
        return (f"{self._location.agent} runs without its tool servers ({names}): {MISSING}",)

    def documents(self) -> list[dict[str, Any]]:
        """The documents of all servers; those that are not used come last."""
        off = [
            idle(server, "failed" if self._is_missing else "disabled", self._since_at)
            | ({"error": MISSING} if self._is_missing else {})
            for server in self._unused.values()
        ]
        return [*(server.document() for server in self._servers.values()), *off]


def _is_installed() -> bool:
    return importlib.util.find_spec(EXTRA) is not None


def _connection_of(declared: McpServer) -> McpServer:
    """The declaration reduced to the fields whose change needs a new connection."""
    return replace(declared, tools=None, safety={}, trust_hints=False, call_timeout_s=1.0)
