"""Checking arguments that a person wrote against a tool's JSON Schema. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

_TYPES: Mapping[str, tuple[type, ...]] = {
    "string": (str,),
    "integer": (int,),
    "number": (int, float),
    "boolean": (bool,),
    "array": (list,),
    "object": (dict,),
    "null": (type(None),),
}


def problem(schema: Mapping[str, Any], value: Any, at: str = "args") -> str | None:
    """The first thing wrong with ``value`` by a tool's JSON Schema, or None.

    Types, required and unknown members, enumerations and items are checked; a tool checks the rest
    itself.
    """
    wanted = schema.get("type")
    if wanted is not None:
        names = wanted if isinstance(wanted, list) else [wanted]
        if not any(_is(value, str(name)) for name in names):
            return f"{at} must be of type {' or '.join(map(str, names))}"
    if "enum" in schema and value not in schema["enum"]:
        return f"{at} must be one of {', '.join(map(str, schema['enum']))}"
    if isinstance(value, dict):
        return _members(schema, value, at)
    if isinstance(value, list) and isinstance(schema.get("items"), Mapping):
        found = (problem(schema["items"], one, f"{at}[{i}]") for i, one in enumerate(value))
        return next((each for each in found if each), None)
    return None


def _members(schema: Mapping[str, Any], value: Mapping[str, Any], at: str) -> str | None:
    known = schema.get("properties") or {}
    for name in schema.get("required") or ():
        if name not in value:
            return f"{at}.{name} is missing"
    for name, each in value.items():
        if name in known:
            found = problem(known[name], each, f"{at}.{name}")
            if found:
                return found
        elif schema.get("additionalProperties") is False:
            return f"{at}.{name} is not an argument; there are {', '.join(known) or 'none'}"
    return None


def _is(value: Any, name: str) -> bool:
    if isinstance(value, bool) and name in ("integer", "number"):
        return False
    return isinstance(value, _TYPES.get(name, (object,)))
