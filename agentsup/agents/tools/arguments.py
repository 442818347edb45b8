"""Checking what a model passes to a tool: a clear sentence back instead of a stack trace.

An argument that is null is one that is not given: many models fill in what they leave out.
"""

from __future__ import annotations

import math
from typing import Any

from agentsup.model.errors import BadRequest
from agentsup.model.tool import Tool, ToolContext

MAX_NUMBER = 10**18
"""A whole number beyond it is no amount of anything that is asked for here."""
_NAMES, _NAME_CHARS = 5, 60
"""Unknown arguments that are named, and characters of each."""


async def carried_out(tool: Tool, context: ToolContext, args: dict[str, Any]) -> str:
    """The call's result, with what of its arguments means nothing to the tool."""
    text = await tool.run(context, args)
    schema = tool.parameters
    # A person's answer is put beside the question by us.
    if schema.get("additionalProperties") is not False or tool.is_for_people:
        return text
    unknown = [name for name in args if name not in schema.get("properties", {})]
    if not unknown:
        return text
    names = ", ".join(repr(name)[:_NAME_CHARS] for name in unknown[:_NAMES])
    return f"{text}\n[{tool.name} has no argument {names}; it was ignored]"


def text(args: dict[str, Any], name: str, *, default: str | None = None) -> str:
    """A string argument. Raises ``BadRequest`` naming the field."""
    value = _given(args, name, default)
    if value is None:
        raise BadRequest(f"the argument {name!r} is missing", field=name)
    if not isinstance(value, str):
        raise BadRequest(f"the argument {name!r} must be a string", field=name)
    return value


def short(args: dict[str, Any], name: str, most: int) -> str:
    """A string of one line of at most ``most`` characters, empty where it is missing. Raises
    ``BadRequest`` naming the field."""
    found = text(args, name, default="").strip()
    if len(found) > most or len(found.splitlines()) > 1:
        raise BadRequest(
            f"the argument {name!r} must be one line of at most {most} characters", field=name
        )
    return found


def number(args: dict[str, Any], name: str, *, default: float) -> float:
    """A finite number. Raises ``BadRequest`` naming the field."""
    value = _given(args, name, default)
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise BadRequest(f"the argument {name!r} must be a number", field=name)
    # JSON as models write it may have NaN, Infinity and numbers of any length.
    if not (math.isfinite(value) if isinstance(value, float) else abs(value) <= MAX_NUMBER):
        raise BadRequest(f"the argument {name!r} must be a finite number", field=name)
    return float(value)


def flag(args: dict[str, Any], name: str, *, default: bool = False) -> bool:
    """A boolean argument. Raises ``BadRequest`` naming the field."""
    value = _given(args, name, default)
    if not isinstance(value, bool):
        raise BadRequest(f"the argument {name!r} must be true or false", field=name)
    return value


def whole(args: dict[str, Any], name: str, *, default: int, low: int, high: int) -> int:
    """A whole number, brought between ``low`` and ``high``. Raises ``BadRequest`` naming the field."""
    return max(low, min(high, int(number(args, name, default=default))))


def optional_number(args: dict[str, Any], name: str) -> float | None:
    """A number, or None where it is missing or null. Raises ``BadRequest`` naming the field."""
    return None if args.get(name) is None else number(args, name, default=0.0)


def needed(args: dict[str, Any], *names: str) -> str:
    """The first of these string arguments that is given and not blank. Raises ``BadRequest`` naming
    the first one."""
    for name in names:
        if args.get(name) is not None:
            found = text(args, name)
            if found.strip():
                return found
    raise BadRequest(f"the argument {names[0]!r} is missing", field=names[0])


def texts(args: dict[str, Any], name: str) -> tuple[str, ...] | None:
    """A list of strings, or None where it is missing. Raises ``BadRequest`` naming the field."""
    value = args.get(name)
    if value is None:
        return None
    if not isinstance(value, list) or not all(isinstance(each, str) for each in value):
        raise BadRequest(f"the argument {name!r} must be a list of strings", field=name)
    return tuple(value)


def rows(args: dict[str, Any], name: str) -> list[dict[str, Any]]:
    """A list of objects, empty where it is missing. Raises ``BadRequest`` naming the field."""
    value = args.get(name) or []
    if not isinstance(value, list) or not all(isinstance(each, dict) for each in value):
        raise BadRequest(f"the argument {name!r} must be a list of objects", field=name)
    return value


def choice(args: dict[str, Any], name: str, options: tuple[str, ...]) -> str:
    """One of these strings, the first where it is missing. Raises ``BadRequest`` naming the field."""
    found = text(args, name, default=options[0])
    if found not in options:
        raise BadRequest(f"the argument {name!r} must be one of {', '.join(options)}", field=name)
    return found


def _given(args: dict[str, Any], name: str, default: Any) -> Any:
    value = args.get(name)
    return default if value is None else value
