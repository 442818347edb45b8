"""The other agents, whose persona an agent's stack may take."""

from __future__ import annotations

from collections.abc import Callable

from agentsup.agents.mcp import AgentServers
from agentsup.config import ConfigSnapshot
from agentsup.daemon.runtime.boot_context import BootContext
from agentsup.daemon.runtime.fleet import Fleet
from agentsup.model.agent import AgentSpec


class DaemonOthers:
    """Implements ``agents.sessions.handler.OtherAgents`` over the current configuration."""

    def __init__(
        self, boot_context: BootContext, current: Callable[[], ConfigSnapshot], fleet: Fleet
    ) -> None:
        self._roster = boot_context.roster
        self._current = current
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
