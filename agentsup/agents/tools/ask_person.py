"""``ask_person``: lets a program ask a person. Engines that can suspend a turn do not need it.

The approver creates the question, like one for an approval, so it survives the end of the program
and of the daemon.
"""

from __future__ import annotations

from typing import Any

from agentsup.model.question import ASKED_BY_MODELS
from agentsup.model.tool import ASK_PERSON, Effect, Safety, Tool, ToolContext

MAX_TEXT_CHARS = 4_000
MAX_OPTIONS, MAX_OPTION_CHARS = 8, 60


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
