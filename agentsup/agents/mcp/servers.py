"""The tool servers of one agent, as long as its stack lives. Their tools are this agent's alone."""

from __future__ import annotations

import asyncio
import importlib.util
from collections.abc import Mapping
from typing import Any

from agentsup.agents.mcp.failures import ServerAway
from agentsup.agents.mcp.server import McpServices, Server, ServerPlace, connection_of
from agentsup.config.mcp import MAX_SERVERS, McpServer, servers_of
from agentsup.engines.child import BerthLimits, ChildManager
from agentsup.kit.tasks import TaskOwner
from agentsup.model.health import AgentState
from agentsup.model.tool import Tool
from agentsup.observe.logging import get_logger
from agentsup.supervision.spec import Grace

_log = get_logger(__name__)

EXTRA = "mcp"
MISSING = "what it takes is not installed; install it with: pip install 'agentsup[mcp]'"
FIRST_TRY_S = 10.0
"""How long turns wait for servers that were never tried, counted from their start."""
_USABLE = (AgentState.RUNNING, AgentState.DEGRADED)
LEAVING = Grace(drain_s=0.2, cancel_s=1.0, kill_s=1.0)


class AgentServers:
    """Implements ``model.tool.ToolRegistry`` over the servers that an entry names."""

    def __init__(self, place: ServerPlace, services: McpServices) -> None:
        self._place = place
        self._s = services
        self._servers: dict[str, Server] = {}
        self._leaving: set[Server] = set()
        self._off: dict[str, McpServer] = {}
        self._is_missing = False
        self._is_open = False
        self._since_at = services.clock.now_ms()
        self._began_s = services.clock.monotonic()
        self._owner = TaskOwner(f"mcp of {place.agent}")
        self._children = ChildManager(
            services.clock,
            limits=lambda: BerthLimits(total=2 * MAX_SERVERS, per_agent=2 * MAX_SERVERS),
            memory_mb=services.memory_mb,
            redact=services.redact,
            fencing=services.fencing,
        )

    # -- life --------------------------------------------------------------------------------------

    def open(self, declared: Mapping[str, Any]) -> None:
        """Begin to open these servers, of a stack that begins to work. Returns at once."""
        self._is_open = True
        self.apply(declared)

    def apply(self, declared: Mapping[str, Any]) -> None:
        """Have exactly these servers; one that did not change is not touched. Returns at once.

        Before ``open`` and after ``close`` nothing is done.
        """
        if not self._is_open:
            return
        wanted = {name: each for name, each in servers_of(declared).items() if each.enabled}
        self._off = {n: each for n, each in servers_of(declared).items() if not each.enabled}
        self._is_missing = bool(wanted) and not _is_installed()
        if self._is_missing:
            self._off |= wanted
            _log.warning("no tool servers", agent=self._place.agent, reason=MISSING)
            wanted = {}
        for name in [each for each in self._servers if each not in wanted]:
            leaving = self._servers.pop(name)
            self._leaving.add(leaving)
            self._owner.spawn(self._end(leaving), name=f"mcp-stop:{name}")
        for name, server in wanted.items():
            self._have(name, server)

    def _have(self, name: str, declared: McpServer) -> None:
        known = self._servers.get(name)
        if known is not None and connection_of(known.declared) == connection_of(declared):
            known.retune(declared)
            return
        self._servers[name] = made = Server(declared, self._place, self._s, self._children)
        self._began_s = self._s.clock.monotonic()
        if known is None:
            made.start()
        else:
            self._leaving.add(known)
            self._owner.spawn(self._end(known, made), name=f"mcp-replace:{name}")

    async def _end(self, leaving: Server, following: Server | None = None) -> None:
        """One after the other: they share a home, and perhaps a port."""
        await leaving.stop()
        self._leaving.discard(leaving)
        if following is not None and self._servers.get(following.declared.name) is following:
            following.start()

    async def close(self) -> None:
        """Close all of them at once, in bounded time."""
        closing = TaskOwner("mcp-close")
        leaving = (*self._servers.values(), *self._leaving)
        self._servers, self._is_open = {}, False  # nothing follows any more
        tasks = {
            closing.spawn(server.stop(LEAVING), name=f"mcp-stop:{server.declared.name}")
            for server in leaving
        }
        if tasks:
            await asyncio.wait(tasks, timeout=LEAVING.total_s + 2.0)
        await closing.close(0.1)
        await self._owner.close(1.0)
        await self._children.close()

    # -- what turns take -----------------------------------------------------------------------------

    async def tried(self, *, is_patient: bool) -> None:
        """Wait until every server was tried once: for a moment after their start, and for a turn
        that goes on (``is_patient``), which may need a tool it has used, as long as a start may take.
        """
        for server in list(self._servers.values()):
            limit_s = server.declared.start_timeout_s if is_patient else FIRST_TRY_S
            try:
                async with asyncio.timeout_at(self._began_s + limit_s):
                    await server.tried.wait()
            except TimeoutError:
                continue

    def get(self, name: str) -> Tool | None:
        """The tool called ``mcp:server/tool``."""
        server, _, tool = name.removeprefix("mcp:").partition("/")
        found = self._servers.get(server)
        return None if found is None or not name.startswith("mcp:") else found.tools.get(tool)

    async def coming(self, name: str) -> Tool | None:
        """A tool of a server that has not told its tools yet, waited for a moment.

        Raises ``ServerAway``: it can't be used now, and nothing was done.
        """
        server, _, tool = name.removeprefix("mcp:").partition("/")
        if not name.startswith("mcp:"):
            return None
        found = self._servers.get(server)
        if found is None and server in self._off:
            why = MISSING if self._is_missing else "it is switched off"
            raise ServerAway(f"the tool server {server} is not used ({why}), so nothing was done")
        if found is None:
            return None
        await found.come()
        return found.tools.get(tool)

    def all(self) -> tuple[Tool, ...]:
        return tuple(tool for server in self._servers.values() for tool in server.tools.values())

    # -- how they are --------------------------------------------------------------------------------

    def told(self) -> str:
        """For the model: which servers can't be used. In our words alone."""
        away = [name for name, each in self._servers.items() if each.child.state not in _USABLE]
        if self._is_missing:
            away += sorted(self._off)
        if not away:
            return ""
        return (
            f"Tool servers that can't be used now: {', '.join(away)}. Say so where a request needs "
            "one."
        )

    def warnings(self) -> tuple[str, ...]:
        """For operators: what keeps servers from working as declared."""
        if not self._is_missing:
            return ()
        names = ", ".join(sorted(self._off))
        return (f"{self._place.agent} runs without its tool servers ({names}): {MISSING}",)

    def documents(self) -> list[dict[str, Any]]:
        """Every server, in the order of the entry."""
        off = [
            idle(server, "failed" if self._is_missing else "disabled", self._since_at)
            | ({"error": MISSING} if self._is_missing else {})
            for server in self._off.values()
        ]
        return [*(server.document() for server in self._servers.values()), *off]


def idle(server: McpServer, state: str, since_at: int | None) -> dict[str, Any]:
    """The document of a server that is not opened."""
    return {
        "name": server.name,
        "type": server.kind,
        "target": server.shown,
        "state": state,
        "since": since_at,
        "tools": [],
        "error": "",
        "next_retry_at": None,
        "restarts": 0,
        "notes": [],
    }


def _is_installed() -> bool:
    return importlib.util.find_spec(EXTRA) is not None
