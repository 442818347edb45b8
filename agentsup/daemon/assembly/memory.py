"""The assembly of all agents' memory: the parts that turns, tools and commands share."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from agentsup.agents.memory import AgentMemory, KnownNotes, MemoryOwner, TurnPreparer
from agentsup.agents.tools import memory_tools
from agentsup.agents.workspace import SharedKnowledge
from agentsup.config import ConfigSnapshot
from agentsup.daemon.runtime.boot_context import BootContext
from agentsup.daemon.runtime.fleet import Fleet
from agentsup.kit.tasks import TaskOwner
from agentsup.model.tool import Tool


def agent_memory(boot_context: BootContext) -> AgentMemory:
    """The memory in the store; known secrets are removed from what is saved."""
    return AgentMemory(
        boot_context.database,
        boot_context.clock,
        boot_context.entropy,
        redact=boot_context.redactor.text,
    )


def remembering_tools(
    boot_context: BootContext, current: Callable[[], ConfigSnapshot]
) -> tuple[Tool, ...]:
    """The memory tools; an agent's role and limits are the current ones."""

    def owner_of(agent_id: str) -> MemoryOwner:
        spec = current().find(boot_context.roster.name_of(agent_id))
        if spec is None:
            return MemoryOwner(agent_id)
        return MemoryOwner(agent_id, spec.role or "", spec.memory.max_entries)

    return memory_tools(agent_memory(boot_context), owner_of)


def shared_knowledge(
    boot_context: BootContext,
    fleet: Fleet,
    tasks: TaskOwner,
    tell: Callable[[str], Awaitable[None]],
) -> SharedKnowledge:
    """SHAREDMEMORY.md, with copies in the workspaces of all running agents."""
    return SharedKnowledge(
        boot_context.home.shared_memory,
        lambda: [stack.workspace for stack in fleet.stacks()],
        config_files=boot_context.config_files,
        files=boot_context.files,
        tasks=tasks,
        tell=tell,
    )


def before_turn(boot_context: BootContext) -> TurnPreparer:
    """Prepares each turn from memory, and shortens long sessions."""
    return TurnPreparer(
        boot_context.database,
        boot_context.clock,
        notes=KnownNotes(boot_context.files, boot_context.home.memory, boot_context.home.root),
        name_of=boot_context.roster.name_of,
    )
