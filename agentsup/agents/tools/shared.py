"""``read_shared_memory``: the text that all agents share."""

from __future__ import annotations

from typing import Any

from agentsup.agents.knowledge import SharedKnowledge
from agentsup.model.tool import Effect, Safety, Tool, ToolContext


def shared_memory_tool(knowledge: SharedKnowledge) -> Tool:
    """Reads what the daemon holds; it never touches the file."""

    async def read(context: ToolContext, args: dict[str, Any]) -> str:
        del context, args
        return knowledge.text or "The shared memory is empty."

    return Tool(
        "read_shared_memory",
        "Read the shared memory: what all agents of this installation should know.",
        {"type": "object", "properties": {}, "additionalProperties": False},
        read,
        Effect.READ,
        Safety.SAFE,
    )
