"""The agents that mail can go to: what is known of each, and who may send to whom."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from agentsup.model.control import kind_of
from agentsup.model.errors import AgentDown, Forbidden
from agentsup.model.health import AgentState
from agentsup.model.ids import AgentId
from agentsup.model.principal import Principal

_DOWN = frozenset({AgentState.STOPPED, AgentState.STOPPING})


@dataclass(frozen=True, slots=True)
class DirectoryEntry:
    """The facts about an agent that the bus needs. ``can_delegate_to`` is None if it may send to
    anyone."""

    agent_id: AgentId
    name: str
    status: str
    last_reason: str = ""
    can_delegate_to: tuple[str, ...] | None = None
    description: str = ""
    is_wanted_up: bool = False
    """If it doesn't run now, it will be started or rebuilt; nobody has disabled it."""
    nickname: str = ""
    role: str = ""
    role_problem: str = ""
    """Why it can't work in that role, and so has no tools; empty if it can."""
    team: str = ""
    capabilities: tuple[str, ...] = ()

    @property
    def is_up(self) -> bool:
        """Whether it works now, or will by itself."""
        return self.status != AgentState.FAILED and (self.is_wanted_up or self.status not in _DOWN)


class AgentDirectory(Protocol):
    """The agents that exist. ``lookup`` raises ``NotFound`` (with ``did_you_mean``) or ``Gone``."""

    def lookup(self, name: str) -> DirectoryEntry: ...

    def by_id(self, agent_id: str) -> DirectoryEntry | None: ...

    def names(self) -> tuple[str, ...]: ...


def entries_of(directory: AgentDirectory) -> tuple[DirectoryEntry, ...]:
    """All agents that exist."""
    return tuple([directory.lookup(name) for name in directory.names()])


def name_in(directory: AgentDirectory, agent_id: str) -> str:
    """The agent's name, or its id if it no longer exists."""
    entry = directory.by_id(agent_id)
    return entry.name if entry is not None else agent_id


def check_up(target: DirectoryEntry, caller: Principal) -> None:
    """Raise ``AgentDown`` for an agent that stays down; one that is being rebuilt will answer.

    Only operators get the full reason, because an error may quote another person's message.
    """
    if target.is_up:
        return
    reason = target.last_reason if caller.is_operator else kind_of(target.last_reason)
    why = f": {reason}" if reason else ""
    raise AgentDown(
        f"agent {target.name} is {target.status}{why}. Revive it with "
        f"/agent_start {target.name} or `agentsup agents start {target.name}`, "
        "or use send_async, which queues",
        agent=target.name,
        agent_state=target.status,
    )


def may_send(sender: DirectoryEntry, target: DirectoryEntry) -> bool:
    """Whether the sender's ``can_delegate_to`` has the target."""
    allowed = sender.can_delegate_to
    return allowed is None or target.name.casefold() in {each.casefold() for each in allowed}


def check_may_send(sender: DirectoryEntry, target: DirectoryEntry) -> None:
    """Raise ``Forbidden`` unless ``may_send``."""
    if not may_send(sender, target):
        raise Forbidden(
            f"{sender.name} may not send to {target.name}: its can_delegate_to lists "
            f"{', '.join(sender.can_delegate_to or ()) or 'nobody'}",
            agent=target.name,
        )
