"""``result_read``: the rest of a result that was too large to be shown at once."""

from __future__ import annotations

from typing import Any

from agentsup.agents.pipeline.marking import marked
from agentsup.agents.pipeline.results import Results
from agentsup.agents.tools import arguments
from agentsup.model.tool import Effect, Safety, Tool, ToolContext

PAGE_CHARS = 16_000
MOST_CHARS = 19_000
"""Leaves room for the lines around a page."""


def result_tool(results: Results) -> Tool:
    """Reads results of the same session. Offered to every agent that has tools."""

    async def read(context: ToolContext, args: dict[str, Any]) -> str:
        reference = arguments.text(args, "ref")
        offset = max(0, int(arguments.number(args, "offset", default=0)))
        wanted = int(arguments.number(args, "limit", default=PAGE_CHARS))
        page = await results.page(
            reference,
            agent_id=context.agent_id,
            session_id=context.session_id,
            offset=min(offset, 1 << 31),
            limit=min(max(1, wanted), MOST_CHARS),
        )
        text = page.text or "(nothing is there: the result ends before)"
        if page.is_outside:
            text = marked(text, name=page.name, call_id=page.call_id)
        going_on = (
            f"[go on with offset={page.next_offset}; {page.chars} characters in all]"
            if page.next_offset is not None
            else f"[this is the end; {page.chars} characters in all]"
        )
        return f"{text}\n{going_on}"

    return Tool(
        "result_read",
        "Read on in a large result, by the reference that stands where it was cut.",
        {
            "type": "object",
            "properties": {
                "ref": {"type": "string"},
                "offset": {"type": "integer", "description": "First character, from 0."},
                "limit": {"type": "integer", "description": f"At most {MOST_CHARS}."},
            },
            "required": ["ref"],
            "additionalProperties": False,
        },
        read,
        Effect.READ,
        Safety.SAFE,
        is_essential=True,
        is_paged=True,
    )
