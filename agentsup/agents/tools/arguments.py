"""Checking what a model passes to a tool: a clear sentence back instead of a stack trace."""

from __future__ import annotations

from typing import Any

from agentsup.model.errors import BadRequest


def text(args: dict[str, Any], name: str, *, default: str | None = None) -> str:
    """A string argument. Raises ``BadRequest`` naming the field."""
    value = args.get(name, default)
    if value is None:
        raise BadRequest(f"the argument {name!r} is missing", field=name)
    if not isinstance(value, str):
        raise BadRequest(f"the argument {name!r} must be a string", field=name)
    return value


def number(args: dict[str, Any], name: str, *, default: float) -> float:
    """A number argument. Raises ``BadRequest`` naming the field."""
    value = args.get(name, default)
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise BadRequest(f"the argument {name!r} must be a number", field=name)
    return float(value)


def flag(args: dict[str, Any], name: str) -> bool:
    """A boolean argument, false where it is missing. Raises ``BadRequest`` naming the field."""
    value = args.get(name, False)
    if not isinstance(value, bool):
        raise BadRequest(f"the argument {name!r} must be true or false", field=name)
    return value
