"""The directory of agents: the roster, with what the running daemon knows of each agent."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from agentsup.daemon.runtime.roster import Roster, RosterEntry
from agentsup.mailbox.mail import DirectoryEntry
from agentsup.model.agent import AgentSpec


@dataclass(frozen=True, slots=True, eq=False)
class RosterDirectory:
    """Implements ``mailbox.mail.bus.AgentDirectory``."""

    roster: Roster
    status: Callable[[str], tuple[str, str]]
    """Returns the actual state and the last reason of an agent, by its id."""
    role_problem: Callable[[str], str] = lambda _: ""
    """Returns why no agent can take the role of that name, or an empty string."""
    _made: dict[str, tuple[tuple[Any, ...], DirectoryEntry]] = field(default_factory=dict)
    """The last entry of each agent with what it was made of: a choice looks at all agents."""

    def lookup(self, name: str) -> DirectoryEntry:
        return self._entry(self.roster.entry(name))

    def by_id(self, agent_id: str) -> DirectoryEntry | None:
        found = self.roster.by_id(agent_id)
        return self._entry(found) if found is not None else None

    def names(self) -> tuple[str, ...]:
        return self.roster.names()

    def name_of(self, agent_id: str) -> str:
        return self.roster.name_of(agent_id)

    def _entry(self, entry: RosterEntry) -> DirectoryEntry:
        status, reason = self.status(entry.agent_id)
        spec = self.roster.spec_of(entry)
        problem = self.role_problem(spec.role) if spec and spec.role else ""
        made_of = (entry, spec, status, reason, problem)
        known = self._made.get(entry.agent_id)
        if known is None or known[0] != made_of:
            made = self._make(entry, spec, status, reason, problem)
            self._made[entry.agent_id] = known = (made_of, made)
        return known[1]

    def _make(
        self, entry: RosterEntry, spec: AgentSpec | None, status: str, reason: str, problem: str
    ) -> DirectoryEntry:
        return DirectoryEntry(
            agent_id=entry.agent_id,
            name=entry.name,
            status=status,
            last_reason=reason,
            can_delegate_to=spec.can_delegate_to if spec else None,
            description=spec.description if spec else "",
            is_wanted_up=self.roster.is_wanted_up(entry),
            nickname=spec.called if spec else entry.name,
            role=(spec.role or "") if spec else "",
            role_problem=problem,
            team=(spec.team or "") if spec else "",
            capabilities=spec.capabilities if spec else (),
        )
