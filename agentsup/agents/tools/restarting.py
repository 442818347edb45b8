"""``restart``: an agent begins anew, rebuilt with its present settings, after its turn."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from agentsup.agents.restarts import Restarts
from agentsup.model.errors import Forbidden
from agentsup.model.tool import Effect, Safety, Tool, ToolContext


def restart_tool(restarts: Callable[[], Restarts]) -> Tool:
    """The tool; it has to be named in ``tools``, and a person approves each call."""

    async def run(context: ToolContext, args: dict[str, Any]) -> str:
        del args
        if context.self_id != context.agent_id:
            raise Forbidden("whoever works in another's place can't restart: ask that agent itself")
        restarts().ask(context.message_id)
        return "You begin anew as soon as this turn has ended: end it now, with a word on why."

    return Tool(
        "restart",
        "Begin anew after this turn, rebuilt with your present settings; of main it is the daemon.",
        {"type": "object", "properties": {}, "additionalProperties": False},
        run,
        Effect.IDEMPOTENT,
        Safety.DANGEROUS,
        is_optional=True,
    )
