"""What the daemon gives to agents besides ``tool_pipeline``: tools over its services, and the personas
of other agents."""

from __future__ import annotations

from agentsup.agents.delegation import DelegationService, DelegationServices, Router
from agentsup.agents.delegation.tools import (
    delegation_tools,
    reminder_tools,
    spawning_tools,
    task_tools,
    team_tools,
)
from agentsup.agents.mcp import AgentServers
from agentsup.agents.memory import MemoryOwner
from agentsup.agents.tools import (
    mailbox_tools,
    memory_tools,
    peer_tools,
    restart_tool,
    shared_memory_tool,
)
from agentsup.agents.turn import TurnServices
from agentsup.daemon.assembly.parts import Assembly, RunningParts
from agentsup.daemon.assembly.tasks import DaemonTasks
from agentsup.daemon.runtime.boot_context import BootContext
from agentsup.daemon.runtime.fleet import Fleet
from agentsup.model.agent import AgentSpec
from agentsup.model.tool import Tool


def daemon_tools(assembly: Assembly, running: RunningParts, work: DaemonTasks) -> tuple[Tool, ...]:
    """Tools over the daemon's services: other agents, shared knowledge, memory, delegation.

    Turn services are read when a tool needs them, because they are built from all tools.
    """
    boot, mail = assembly.boot, assembly.mail

    def turns() -> TurnServices:
        return assembly.agents().turns

    def memory_owner(agent_id: str) -> MemoryOwner:
        spec = boot.spec_of(agent_id)
        if spec is None:
            return MemoryOwner(agent_id)
        return MemoryOwner(agent_id, spec.role or "", spec.memory.max_entries)

    services = DelegationServices(
        runs=work.runs,
        database=boot.database,
        directory=mail.directory,
        others=DaemonOthers(boot, running.fleet),
        roles=lambda: turns().roles.live_roles,
        hooks=lambda: turns().calls.pipeline.hooks,
        loads=mail.mailbox.context.loads,
        fan_out=lambda: boot.current().settings.limits.fan_out,
        redact=boot.redactor.text,
    )
    service = DelegationService(services, mail.tasks)
    mail.tasks.spawn(service.ends.watch_earlier(), name="run-ends")
    return (
        *peer_tools(mail.bus, mail.directory),
        shared_memory_tool(running.knowledge),
        restart_tool(lambda: turns().restarts),
        *mailbox_tools(mail.dispatcher, mail.history, mail.directory),
        *delegation_tools(service),
        *team_tools(service, Router(services, boot.clock), mail.dispatcher),
        *spawning_tools(service, boot.clock),
        *task_tools(service, lambda: work.hub),
        *reminder_tools(service, lambda: work.hub, boot.clock),
        *memory_tools(mail.memory, memory_owner),
    )


class DaemonOthers:
    """Implements ``agents.sessions.handler.OtherAgents`` over the current configuration."""

    def __init__(self, boot_context: BootContext, fleet: Fleet) -> None:
        self._roster = boot_context.roster
        self._current = boot_context.current
        self._fleet = fleet

    def spec(self, agent_id: str) -> AgentSpec | None:
        """The entry of an agent that is declared now."""
        entry = self._roster.by_id(agent_id)
        return None if entry is None else self._current().find(entry.name)

    def is_disabled(self, agent_id: str) -> bool:
        """Whether the agent is disabled, or an operator has stopped it."""
        entry = self._roster.by_id(agent_id)
        return entry is None or not self._roster.is_wanted_up(entry)

    def name_of(self, agent_id: str) -> str:
        """The present or last name of the agent."""
        return self._roster.name_of(agent_id)

    def servers(self, agent_id: str) -> AgentServers | None:
        """The agent's tool servers, while it runs."""
        unit = self._fleet.get(agent_id)
        return unit.stack.servers if unit is not None and unit.stack is not None else None
