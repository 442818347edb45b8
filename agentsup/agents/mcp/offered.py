"""The tools that a server lists: read one by one, accepted by the agent, cleaned, classified. Pure.

All of this was written by the server, which is not trusted. An unfit tool costs itself, not the
server. Its hints about its own tools count only if the operator says so.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable
from dataclasses import astuple, dataclass, field
from fnmatch import fnmatchcase
from typing import Any

from agentsup.agents.pipeline.ceiling import matches
from agentsup.config import McpServer
from agentsup.model.tool import Effect, Safety

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


MAX_TOOLS = 128
"""The most tools of one server. A model chooses badly among more, and each one costs tokens."""
MAX_DESCRIPTION_CHARS = 4_000
MAX_SCHEMA_CHARS = 32_000
MAX_ANSWER_CHARS = 400_000
_MAX_PROBLEMS = 20

_NAME = re.compile(r"[A-Za-z0-9_./-]{1,128}", re.ASCII)


@dataclass(frozen=True, slots=True)
class AcceptedTools:
    """The tools that are accepted, and the reasons why others are not."""

    tools: tuple[ListedTool, ...] = ()
    left_out: tuple[str, ...] = ()


def tool_name(server: str, tool: str) -> str:
    """The name of a server's tool among all tools."""
    return f"mcp:{server}/{tool}"


def take(server: McpServer, listing: ToolListing) -> AcceptedTools:
    """The tools of ``listing`` that are within the limits and that the operator chose."""
    taken: dict[str, ListedTool] = {}
    problems: list[str] = []
    surplus = 0
    for tool in listing.tools:
        if server.tools is not None and not matches(tool.name, server.tools):
            continue
        problem = _problem(tool)
        if problem is None and tool.name in taken:
            problem = f"{tool.name} is listed twice"
        if problem is None and len(taken) >= MAX_TOOLS:
            surplus += 1
            continue
        if problem is not None:
            problems.append(problem)
            continue
        described = clean(tool.description)[:MAX_DESCRIPTION_CHARS]
        schema = {"type": "object", "properties": {}, **tool.schema}
        taken[tool.name] = ListedTool(tool.name, described, schema, tool.hints)
    hidden = len(problems) - _MAX_PROBLEMS
    del problems[_MAX_PROBLEMS:]
    if hidden > 0:
        problems.append(f"{hidden} more can't be used")
    if surplus:
        problems.append(
            f"{surplus} tools are left out, since only {MAX_TOOLS} are taken; choose them by tools"
        )
    if listing.is_cut:
        problems.append("the server lists more tools than are read")
    return AcceptedTools(tuple(taken.values()), tuple(problems))


def classed(server: McpServer, tool: ListedTool) -> tuple[Effect, Safety]:
    """The effect of a call (whether it can be repeated) and how dangerous it is.

    Unless the operator says otherwise every call is blind and dangerous: the claim that a tool only
    reads comes from the very program that is to be judged.
    """
    words = (word for pattern, word in server.safety.items() if fnmatchcase(tool.name, pattern))
    said = next(map(Safety, words), None)
    reads = tool.hints.read_only is True
    safety = said or Safety.DANGEROUS
    if said is None and server.trust_hints:
        if reads:
            safety = Safety.SAFE
        elif tool.hints.destructive is False:
            safety = Safety.MODERATE
    if reads and (server.trust_hints or said is Safety.SAFE):
        return Effect.READ, safety
    if server.trust_hints and tool.hints.idempotent is True:
        return Effect.IDEMPOTENT, safety
    return Effect.BLIND, safety


def version_of(server: McpServer, tool: ListedTool) -> str:
    """A digest of a tool's origin and of all that its server says about it.

    A grant holds for one version. Another program under the same name, or a tool with changed
    arguments or another description, needs a new approval.
    """
    location = [server.kind, server.command, *server.args, str(server.url or "")]
    location += [server.cwd] if server.cwd else []
    said = [tool.name, tool.description, tool.schema, astuple(tool.hints)]
    whole = json.dumps([location, sorted(server.env), sorted(server.headers), said], sort_keys=True)
    return hashlib.sha256(whole.encode("utf-8", "surrogatepass")).hexdigest()[:16]


def joined(parts: Iterable[str]) -> str:
    """The parts of an answer as one text, cut to ``MAX_ANSWER_CHARS``."""
    text = "\n".join(part for part in parts if part)
    if len(text) > MAX_ANSWER_CHARS:
        left = len(text) - MAX_ANSWER_CHARS
        return f"{text[:MAX_ANSWER_CHARS]}\n[{left} more characters were dropped]"
    return text or "(the tool returned nothing)"


def _problem(tool: ListedTool) -> str | None:
    """Why a tool can't be accepted. The reason does not quote text that is unfit to be shown."""
    if tool.problem:
        return f"{tool.name or 'a tool without a name'} {tool.problem}"
    if not _NAME.fullmatch(tool.name):
        return f"{clean(tool.name)[:40]!r} is no name of a tool"
    if tool.schema.get("type", "object") != "object":
        return f"{tool.name} takes no object of arguments"
    try:
        size = len(json.dumps(tool.schema))
    except (ValueError, RecursionError):
        size = MAX_SCHEMA_CHARS + 1
    if size > MAX_SCHEMA_CHARS:
        return f"{tool.name} describes its arguments in more than {MAX_SCHEMA_CHARS} characters"
    return None
