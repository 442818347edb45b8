"""The memory of all agents, put together: what turns, tools and commands share."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from agentsup.agents.knowledge import SharedKnowledge
from agentsup.agents.memory.before_turn import BeforeTurn
from agentsup.agents.memory.entry import Owner
from agentsup.agents.memory.notes_file import NotesFiles
from agentsup.agents.memory.service import AgentMemory
from agentsup.agents.tools.memory import memory_tools
from agentsup.config.snapshot import ConfigSnapshot
from agentsup.daemon.fleet import Fleet
from agentsup.daemon.ground import Ground
from agentsup.kit.tasks import TaskOwner
from agentsup.model.tool import Tool


def agent_memory(ground: Ground) -> AgentMemory:
    """The store's, with known secrets taken out of what is saved."""
    return AgentMemory(ground.database, ground.clock, ground.entropy, redact=ground.redactor.text)


def remembering_tools(ground: Ground, current: Callable[[], ConfigSnapshot]) -> tuple[Tool, ...]:
    """The tools of the memory; an agent's role and bounds are those of the moment."""

    def owner_of(agent_id: str) -> Owner:
        spec = current().find(ground.roster.name_of(agent_id))
        if spec is None:
            return Owner(agent_id)
        return Owner(agent_id, spec.role or "", spec.memory.max_entries)

    return memory_tools(agent_memory(ground), owner_of)


def shared_knowledge(
    ground: Ground, fleet: Fleet, tasks: TaskOwner, tell: Callable[[str], Awaitable[None]]
) -> SharedKnowledge:
    """SHAREDMEMORY.md with its copies in the workspaces of all that are up."""
    return SharedKnowledge(
        ground.home.shared_memory,
        lambda: [stack.workspace for stack in fleet.stacks()],
        config_files=ground.config_files,
        files=ground.files,
        tasks=tasks,
        tell=tell,
    )


def before_turn(ground: Ground) -> BeforeTurn:
    """What remembers before each turn, and shortens long sessions."""
    return BeforeTurn(
        ground.database,
        ground.clock,
        notes_of=ground.home.memory,
        name_of=ground.roster.name_of,
        notes=NotesFiles(ground.files),
    )
