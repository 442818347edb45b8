"""Tools for what only the daemon has: a new life of the agent, large results, the text that all agents
share, and a person to ask."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any

from pydantic import Field

from agentsup.agents.pipeline.marking import marked
from agentsup.agents.pipeline.results import ResultStore
from agentsup.agents.tools.declaring import Arguments, Text, tool, tool_of, whole
from agentsup.agents.workspace.shared_memory import SharedKnowledge
from agentsup.model.errors import Forbidden
from agentsup.model.question import ASKED_BY_MODELS
from agentsup.model.tool import ASK_PERSON, Effect, Safety, Tool, ToolContext

_MOST = 1_000
"""Most requests that are held. The request of a stopped turn is never taken, so the oldest are
dropped."""
PAGE_CHARS = 16_000
MOST_CHARS = 19_000
"""The most characters of a page. It leaves room for the lines around the page."""
MAX_TEXT_CHARS = 4_000
MAX_OPTIONS, MAX_OPTION_CHARS = 8, 60


class Restarts:
    """The open requests, in memory only: a restarted daemon rebuilds all stacks anyway."""

    def __init__(self) -> None:
        self._asked: dict[str, None] = {}

    def ask(self, message_id: str) -> None:
        """Request a rebuild of the agent after its turn on this message."""
        self._asked[message_id] = None
        if len(self._asked) > _MOST:
            del self._asked[next(iter(self._asked))]

    def is_asked(self, message_id: str) -> bool:
        """Whether a rebuild was requested for this turn."""
        return message_id in self._asked

    def take(self, message_id: str) -> bool:
        """Remove the request for a rebuild after this turn; returns whether there was one."""
        return self._asked.pop(message_id, ...) is None


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


def shared_memory_tool(knowledge: SharedKnowledge) -> Tool:
    """The tool. It returns the text that the daemon has in memory and does not read the file."""

    @tool("read_shared_memory", Effect.READ, Safety.SAFE)
    async def read(context: ToolContext) -> str:
        """Read the shared memory: what all agents of this installation should know."""
        del context
        return knowledge.text or "The shared memory is empty."

    return tool_of(read)


def asking_tool() -> Tool:
    """The tool. It is only for programs, which call it over MCP."""
    return Tool(
        ASK_PERSON,
        "Ask the person a question and wait for the answer, which may take hours. Only for a "
        "decision without which the work can't go on.",
        dict(ASKED_BY_MODELS),
        _answer,
        Effect.READ,
        Safety.SAFE,
        is_essential=True,
        is_for_programs=True,
        is_for_people=True,
        check=_problem,
    )


async def _answer(context: ToolContext, args: dict[str, Any]) -> str:
    """The answer, which the approver has added to the arguments."""
    del context
    return str(args.get("answer", "Nobody can be asked here; decide by yourself, or say so."))


def _problem(args: dict[str, Any]) -> str | None:
    text, options = args.get("text"), args.get("options") or []
    if not isinstance(text, str) or not 0 < len(text.strip()) <= MAX_TEXT_CHARS:
        return f"text must be a question of at most {MAX_TEXT_CHARS} characters"
    if not isinstance(options, list) or len(options) > MAX_OPTIONS:
        return f"options must be a list of at most {MAX_OPTIONS}"
    if any(not isinstance(each, str) or not 0 < len(each) <= MAX_OPTION_CHARS for each in options):
        return f"each option must be a text of at most {MAX_OPTION_CHARS} characters"
    return None
