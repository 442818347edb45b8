"""What an agent's stack knows of the other agents, in whose place it may work."""

from __future__ import annotations

from collections.abc import Callable

from agentsup.agents.mcp.servers import AgentServers
from agentsup.agents.stack import StackPlace
from agentsup.config.snapshot import ConfigSnapshot
from agentsup.daemon.fleet import Fleet
from agentsup.daemon.ground import Ground
from agentsup.kit.procgroup import child_env
from agentsup.model.agent import AgentSpec


def place_of(ground: Ground, name: str, url: Callable[[], str]) -> StackPlace:
    """Where the agent of that name lives."""
    home = ground.home
    return StackPlace(
        home.root, home.workspace(name), url, lambda: child_env(source=ground.environ)
    )


class DaemonOthers:
    """Implements ``agents.personas.Others`` over the configuration as it is now."""

    def __init__(self, ground: Ground, current: Callable[[], ConfigSnapshot], fleet: Fleet) -> None:
        self._roster = ground.roster
        self._current = current
        self._fleet = fleet

    def spec(self, agent_id: str) -> AgentSpec | None:
        """The entry of an agent that is there."""
        entry = self._roster.by_id(agent_id)
        return None if entry is None else self._current().find(entry.name)

    def is_kept_down(self, agent_id: str) -> bool:
        """Whether it is disabled, or an operator has stopped it."""
        entry = self._roster.by_id(agent_id)
        return entry is None or not entry.is_wanted_up

    def name_of(self, agent_id: str) -> str:
        """What it is or was called."""
        return self._roster.name_of(agent_id)

    def servers(self, agent_id: str) -> AgentServers | None:
        """Its tool servers, while it runs."""
        unit = self._fleet.get(agent_id)
        return unit.stack.servers if unit is not None and unit.stack is not None else None
