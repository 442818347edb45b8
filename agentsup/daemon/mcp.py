"""The agents' own tool servers, put together: what stacks open, and what people are shown."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from agentsup.agents.mcp.programs import Programs
from agentsup.agents.mcp.server import McpServices
from agentsup.agents.mcp.servers import idle
from agentsup.agents.processes import ProcessTable
from agentsup.agents.stack import AgentStack
from agentsup.config.mcp import servers_of
from agentsup.config.snapshot import ConfigSnapshot
from agentsup.daemon.fencing import fencing_of
from agentsup.daemon.ground import Ground
from agentsup.kit.procgroup import child_env
from agentsup.model.tool import Tool


class DaemonMcp:
    """What the daemon's parts take of the agents' tool servers."""

    def __init__(
        self,
        ground: Ground,
        current: Callable[[], ConfigSnapshot],
        processes: ProcessTable,
        stacks: Callable[[], Iterable[AgentStack]],
    ) -> None:
        self._current = current
        self._stacks = stacks
        self.services = McpServices(
            clock=ground.clock,
            entropy=ground.entropy,
            processes=processes,
            home=ground.home.root,
            environ=ground.environ,
            child_env=lambda: child_env(source=ground.environ),
            redact=ground.redactor.text,
            memory_mb=lambda: current().settings.limits.process_memory_mb,
            after_imports=ground.after_imports,
            fencing=fencing_of(ground.home.root, ground.environ, current),
            programs=Programs(lambda: current().settings.limits.mcp_processes),
            files=ground.files,
        )

    def with_tools_of(self, others: Callable[[], Iterable[Tool]]) -> Callable[[], Iterable[Tool]]:
        """The tools of ``others`` and those of all servers, each name once: for what looks at tools
        without asking whose they are."""

        def everything() -> tuple[Tool, ...]:
            own = {
                tool.name: tool
                for stack in self._stacks()
                if stack.servers is not None
                for tool in stack.servers.all()
            }
            return (*others(), *own.values())

        return everything

    def with_gauges_of(
        self, others: Callable[[], Mapping[str, float]]
    ) -> Callable[[], Mapping[str, float]]:
        """The figures of ``others`` and those of the programs of servers."""
        return lambda: {**others(), **self.services.programs.gauges()}

    def document(self, name: str) -> dict[str, Any]:
        """The servers of the agent called ``name``. Raises ``NotFound``."""
        spec = self._current().require(name)
        for stack in self._stacks():
            if stack.spec.name == spec.name and stack.servers is not None:
                return {"agent": spec.name, "servers": stack.servers.documents()}
        stopped = [idle(server, "stopped", None) for server in servers_of(spec.mcp).values()]
        return {"agent": spec.name, "servers": stopped}

    def warnings(self) -> tuple[str, ...]:
        """What keeps servers from working as declared."""
        found = (stack.servers for stack in self._stacks())
        return tuple(told for each in found if each is not None for told in each.warnings())
