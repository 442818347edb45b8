"""Declares tools at the functions that carry them out."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any, TypeVar, get_type_hints

from agentsup.agents.tools.arguments import NoArguments, read, schema_of
from agentsup.model.tool import Effect, Safety, Tool, ToolContext

F = TypeVar("F", bound=Callable[..., Any])


def tool(name: str, effect: Effect, safety: Safety, **facts: Any) -> Callable[[F], F]:
    """Declare a function as the tool ``name``; ``facts`` are further fields of ``Tool``.

    The function takes the ``ToolContext`` and, if the tool has arguments, their model as ``args``.
    Its docstring is what models read about the tool.
    """

    def declare(function: F) -> F:
        function.__dict__["tool"] = partial(Tool, name, effect=effect, safety=safety, **facts)
        return function

    return declare


def tool_of(function: Callable[..., Awaitable[str]]) -> Tool:
    """The tool that a function, or a method of an object, is declared as."""
    model = get_type_hints(function).get("args", NoArguments)

    async def run(context: ToolContext, args: dict[str, Any]) -> str:
        given = () if model is NoArguments else (read(model, args),)
        return await function(context, *given)

    made: partial[Tool] = function.__dict__["tool"]
    return made(" ".join((function.__doc__ or "").split()), partial(schema_of, model), run)


def tools_of(owner: object) -> tuple[Tool, ...]:
    """The tools that the methods of an object are declared as, in their order."""
    named = (
        name for name, each in vars(type(owner)).items() if "tool" in getattr(each, "__dict__", {})
    )
    return tuple(tool_of(getattr(owner, name)) for name in named)
