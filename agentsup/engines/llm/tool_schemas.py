"""Schemas of tools in the form that providers take: an object at the top, without alternatives.

A model may then send what the schema forbids; the host checks arguments against the tool's own. Pure.
"""

from __future__ import annotations

from typing import Any

_ALTERNATIVES = ("oneOf", "anyOf", "allOf")
_REFUSED = (
    *(*_ALTERNATIVES, "not", "enum", "const", "if", "then", "else", "items", "format", "pattern"),
    *("dependentRequired", "dependentSchemas"),
)
_MOST_DEPTH = 32
_MOST_STEPS = 8


def accepted(schema: dict[str, Any]) -> dict[str, Any]:
    """Return the schema as providers take it; itself if it is so already."""
    top = schema
    for _ in range(_MOST_STEPS):
        target = _target(top, schema)
        if target is None:
            break
        top = {**target, **{key: value for key, value in top.items() if key != "$ref"}}
    found = _without_lost(_flat(top, schema), schema, 0)
    return found if isinstance(found, dict) else {"type": "object"}


def _flat(top: dict[str, Any], root: dict[str, Any]) -> dict[str, Any]:
    """Return an object schema with the properties of all alternatives at its top."""
    is_object = top.get("type") == "object" and isinstance(top.get("properties", {}), dict)
    if is_object and not any(key in top for key in _REFUSED):
        return top
    properties: dict[str, Any] = {}
    branches = [each for key in _ALTERNATIVES for each in _list(top.get(key))]
    for each in (*branches, top):
        if isinstance(each, dict):
            own = (_target(each, root) or each).get("properties")
            properties |= own if isinstance(own, dict) else {}
    left = {key: value for key, value in top.items() if key not in _REFUSED}
    return {**left, "type": "object", "properties": properties}


def _without_lost(value: Any, root: dict[str, Any], depth: int) -> Any:
    """Return the value with references to nowhere replaced by what takes anything."""
    if depth > _MOST_DEPTH:
        return {}
    if isinstance(value, list):
        found = [_without_lost(each, root, depth + 1) for each in value]
        return found if any(a is not b for a, b in zip(found, value, strict=True)) else value
    if not isinstance(value, dict):
        return value
    if isinstance(value.get("$ref"), str) and _target(value, root) is None:
        value = {key: each for key, each in value.items() if key != "$ref"}
    changed = {key: _without_lost(each, root, depth + 1) for key, each in value.items()}
    return changed if any(changed[key] is not value[key] for key in value) else value


def _target(part: dict[str, Any], root: dict[str, Any]) -> dict[str, Any] | None:
    """Return the schema inside ``root`` to which a part refers; None if to none there."""
    ref = part.get("$ref")
    if not isinstance(ref, str) or not ref.startswith("#"):
        return None
    at: Any = root
    for step in ref.removeprefix("#").strip("/").split("/"):
        if step:
            name = step.replace("~1", "/").replace("~0", "~")
            at = at.get(name) if isinstance(at, dict) else None
    return at if isinstance(at, dict) else None


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []
