"""``restart``: the agent is rebuilt with its current settings after its turn."""

from __future__ import annotations

from collections.abc import Callable

from agentsup.agents.tools.declaring import tool, tool_of
from agentsup.agents.tools.restart_requests import Restarts
from agentsup.model.errors import Forbidden
from agentsup.model.tool import Effect, Safety, Tool, ToolContext


def restart_tool(restarts: Callable[[], Restarts]) -> Tool:
    """The tool; it has to be named in ``tools``, and a person approves each call."""

    @tool("restart", Effect.IDEMPOTENT, Safety.DANGEROUS, is_optional=True)
    async def restart(context: ToolContext) -> str:
        """Begin anew after this turn, rebuilt with your present settings; of main it is the
        daemon."""
        if context.self_id != context.agent_id:
            raise Forbidden(
                "a turn in another persona can't restart the agent: ask that agent itself"
            )
        restarts().ask(context.message_id)
        return "You begin anew as soon as this turn has ended: end it now, and say why."

    return tool_of(restart)
