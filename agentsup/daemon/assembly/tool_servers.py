"""The assembly of the agents' own tool servers: what stacks open, and what people are shown."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from agentsup.agents import AgentStack
from agentsup.agents.mcp import McpServices, ServerProcesses, idle
from agentsup.agents.workspace import ProcessTable
from agentsup.config import ConfigSnapshot, servers_of
from agentsup.daemon.runtime.boot_context import BootContext
from agentsup.daemon.runtime.fencing import fencing_of
from agentsup.kit.childenv import child_env
from agentsup.model.tool import Tool


class DaemonMcp:
    """The tool servers of agents, for the other parts of the daemon."""

    def __init__(
        self,
        boot_context: BootContext,
        current: Callable[[], ConfigSnapshot],
        processes: ProcessTable,
        stacks: Callable[[], Iterable[AgentStack]],
    ) -> None:
        self._current = current
        self._stacks = stacks
        self.services = McpServices(
            clock=boot_context.clock,
            entropy=boot_context.entropy,
            processes=processes,
            home=boot_context.home.root,
            environ=boot_context.environ,
            child_env=lambda: child_env(source=boot_context.environ),
            redact=boot_context.redactor.text,
            memory_mb=lambda: current().settings.limits.process_memory_mb,
            after_imports=boot_context.after_imports,
            fencing=fencing_of(boot_context.home.root, boot_context.environ, current),
            programs=ServerProcesses(lambda: current().settings.limits.mcp_processes),
            files=boot_context.files,
        )

    def with_tools_of(self, others: Callable[[], Iterable[Tool]]) -> Callable[[], Iterable[Tool]]:
        """The tools of ``others`` and those of all servers, each name of a server's tool once.

        For parts that look tools up without knowing the agent.
        """

        def everything() -> tuple[Tool, ...]:
            in_use = self.services.in_use.values()
            own = {tool.name: tool for tools in in_use for tool in tools()}
            return (*others(), *own.values())

        return everything

    def document(self, name: str) -> dict[str, Any]:
        """The servers of the agent called ``name``, as a JSON document. Raises ``NotFound``."""
        spec = self._current().require(name)
        for stack in self._stacks():
            if stack.spec.name == spec.name and stack.servers is not None:
                servers, refused = stack.servers.documents(), stack.refused_tools()
                for server in servers:
                    server["notes"] += [
                        f"{tool.name} is left out, since the model's provider refuses it: {tool.why}"
                        for tool in refused
                        if tool.name in server["tools"]
                    ]
                return {"agent": spec.name, "servers": servers}
        stopped = [idle(server, "stopped", None) for server in servers_of(spec.mcp).values()]
        return {"agent": spec.name, "servers": stopped}

    def warnings(self) -> tuple[str, ...]:
        """Why servers do not work as declared."""
        found = (stack.servers for stack in self._stacks())
        return tuple(warning for each in found if each is not None for warning in each.warnings())
