"""The tools that a server lists, read one by one: an unfit one costs itself, not the server. Pure."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Any

MAX_LISTED = 500
_NAME_CHARS = 40
_HINTS = ("readOnlyHint", "destructiveHint", "idempotentHint")
# Control characters, changes of writing direction, and invisible characters.
_HIDDEN = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u200b-\u200f\u202a-\u202e\u2060-\u2069\ufeff"
    "\U000e0000-\U000e007f]"
)


@dataclass(frozen=True, slots=True)
class Hints:
    """A server's hints about the effect of a tool; None for a hint that it does not give."""

    read_only: bool | None = None
    destructive: bool | None = None
    idempotent: bool | None = None


@dataclass(frozen=True, slots=True)
class ListedTool:
    """One tool as the server lists it. ``problem``: why it can't be used, as a verb phrase."""

    name: str
    description: str = ""
    schema: dict[str, Any] = field(default_factory=dict)
    hints: Hints = field(default_factory=Hints)
    problem: str = ""


@dataclass(frozen=True, slots=True)
class ToolListing:
    """The tools that a server lists. ``is_cut``: there were more than are read."""

    tools: tuple[ListedTool, ...]
    is_cut: bool = False


def readable(given: Any) -> dict[str, Any] | ListedTool:
    """A tool of a listing with the keys that are used, in the protocol's form; or what it is, with
    the problem, if it has no such form.

    What nobody reads (icons, the schema of its results, unknown keys) can't make a tool unfit. A
    tool without a schema takes no arguments, hints of another type say nothing.
    """
    if not isinstance(given, dict):
        return ListedTool("", problem="is no object")
    name = given.get("name")
    if not isinstance(name, str):
        return ListedTool("", problem="has no name")
    shown = clean(name)[:_NAME_CHARS]
    schema = given.get("inputSchema")
    schema = {} if schema is None else schema
    if not isinstance(schema, dict):
        return ListedTool(shown, problem="describes its arguments by something that is no schema")
    kind = schema.get("type", "object")
    if kind != "object" and not (isinstance(kind, list) and "object" in kind):
        return ListedTool(shown, problem="takes no object of arguments")
    schema = {**schema, "type": "object"}
    for key, wanted in (("properties", dict), ("required", list), ("$schema", str)):
        if key in schema and not isinstance(schema[key], wanted):
            del schema[key]
    made: dict[str, Any] = {"name": name, "inputSchema": schema}
    for key in ("description", "title"):
        if isinstance(given.get(key), str):
            made[key] = given[key]
    hints = given.get("annotations")
    if isinstance(hints, dict):
        made["annotations"] = {k: hints[k] for k in _HINTS if isinstance(hints.get(k), bool)}
    return made


def clean(text: str) -> str:
    """The text without characters that a reader does not see."""
    return _HIDDEN.sub("", text.replace("\r\n", "\n")).strip()
