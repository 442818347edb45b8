"""``result_read``: the rest of a result that was too large to be shown at once."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from agentsup.agents.pipeline.marking import marked
from agentsup.agents.pipeline.results import ResultStore
from agentsup.agents.tools.arguments import Arguments, Text, whole
from agentsup.agents.tools.declaring import tool, tool_of
from agentsup.model.tool import Effect, Safety, Tool, ToolContext

PAGE_CHARS = 16_000
MOST_CHARS = 19_000
"""The most characters of a page. It leaves room for the lines around the page."""


class ReadResult(Arguments):
    """The arguments of ``result_read``."""

    ref: Text
    offset: Annotated[int, whole(0, 1 << 31)] = Field(0, description="First character, from 0.")
    limit: Annotated[int, whole(1, MOST_CHARS)] = Field(
        PAGE_CHARS, description=f"At most {MOST_CHARS}."
    )


def result_tool(results: ResultStore) -> Tool:
    """Reads results of the same session. Offered to every agent that has tools."""

    @tool("result_read", Effect.READ, Safety.SAFE, is_essential=True, is_paged=True)
    async def read(context: ToolContext, args: ReadResult) -> str:
        """Read more of a large result, by the reference that is given where it was cut."""
        page = await results.page(
            args.ref,
            agent_id=context.agent_id,
            session_id=context.session_id,
            offset=args.offset,
            limit=args.limit,
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

    return tool_of(read)
