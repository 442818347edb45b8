"""``read_shared_memory``: the text that all agents share."""

from __future__ import annotations

from agentsup.agents.tools.declaring import tool, tool_of
from agentsup.agents.workspace.shared_memory import SharedKnowledge
from agentsup.model.tool import Effect, Safety, Tool, ToolContext


def shared_memory_tool(knowledge: SharedKnowledge) -> Tool:
    """The tool. It returns the text that the daemon has in memory and does not read the file."""

    @tool("read_shared_memory", Effect.READ, Safety.SAFE)
    async def read(context: ToolContext) -> str:
        """Read the shared memory: what all agents of this installation should know."""
        del context
        return knowledge.text or "The shared memory is empty."

    return tool_of(read)
