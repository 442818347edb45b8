"""What a server offers, and what of it an agent takes: bounded, cleaned, classed. Pure.

Everything here was written by the server, which nobody vouches for. What it says about its own tools
counts where the operator has said so.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable
from dataclasses import astuple, dataclass, field
from fnmatch import fnmatchcase
from typing import Any

from agentsup.config.mcp import McpServer
from agentsup.model.tool import Effect, Safety

MAX_TOOLS = 128
"""Of one server; a model that is shown more chooses badly, and pays for each."""
MAX_DESCRIPTION_CHARS = 4_000
MAX_SCHEMA_CHARS = 32_000
MAX_ANSWER_CHARS = 400_000
_MAX_PROBLEMS = 20

_NAME = re.compile(r"[A-Za-z0-9_./-]{1,128}", re.ASCII)
# Control characters, changes of direction, and characters that nobody sees.
_HIDDEN = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u200b-\u200f\u202a-\u202e\u2060-\u2069\ufeff"
    "\U000e0000-\U000e007f]"
)


@dataclass(frozen=True, slots=True)
class Hints:
    """What a server says about what a tool does; None where it does not say."""

    read_only: bool | None = None
    destructive: bool | None = None
    idempotent: bool | None = None


@dataclass(frozen=True, slots=True)
class Listed:
    """One tool as the server lists it."""

    name: str
    description: str = ""
    schema: dict[str, Any] = field(default_factory=dict)
    hints: Hints = field(default_factory=Hints)


@dataclass(frozen=True, slots=True)
class Listing:
    """What a server lists; ``is_cut`` where there was more than is read."""

    tools: tuple[Listed, ...]
    is_cut: bool = False


@dataclass(frozen=True, slots=True)
class Answer:
    """What a call brought back, as text."""

    text: str
    is_error: bool = False


@dataclass(frozen=True, slots=True)
class Taken:
    """The tools that are used, and why others are not."""

    tools: tuple[Listed, ...] = ()
    left_out: tuple[str, ...] = ()


def tool_name(server: str, tool: str) -> str:
    """What a server's tool is called among all tools."""
    return f"mcp:{server}/{tool}"


def take(server: McpServer, listing: Listing) -> Taken:
    """The tools of ``listing`` that fit the bounds and the operator's choice."""
    taken: dict[str, Listed] = {}
    problems: list[str] = []
    for tool in listing.tools:
        if server.tools is not None and not _fits(tool.name, server.tools):
            continue
        problem = _problem(tool)
        if problem is None and tool.name in taken:
            problem = f"{tool.name} is listed twice"
        if problem is None and len(taken) >= MAX_TOOLS:
            problems.append(f"only {MAX_TOOLS} tools are taken; choose them by tools")
            break
        if problem is not None:
            problems.append(problem)
            continue
        described = clean(tool.description)[:MAX_DESCRIPTION_CHARS]
        schema = {"type": "object", "properties": {}, **tool.schema}
        taken[tool.name] = Listed(tool.name, described, schema, tool.hints)
    if listing.is_cut:
        problems.append("the server lists more tools than are read")
    return Taken(tuple(taken.values()), tuple(problems[:_MAX_PROBLEMS]))


def classed(server: McpServer, tool: Listed) -> tuple[Effect, Safety]:
    """What repeating a call would do, and how dangerous it is.

    Unless the operator says otherwise every call is blind and dangerous: that a tool only reads is
    the word of the very program that should be judged.
    """
    said = next(
        (
            Safety(word)
            for pattern, word in server.safety.items()
            if fnmatchcase(tool.name, pattern)
        ),
        None,
    )
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


def version_of(server: McpServer, tool: Listed) -> str:
    """A digest of where a tool comes from and of all that its server says of it.

    Leave is given for this form of it: another program under the same name, or a tool that has come
    to take or to do something else, is asked about anew.
    """
    place = [server.kind, server.command, *server.args, str(server.url or "")]
    said = [tool.name, tool.description, tool.schema, astuple(tool.hints)]
    whole = json.dumps([place, sorted(server.env), sorted(server.headers), said], sort_keys=True)
    return hashlib.sha256(whole.encode("utf-8", "surrogatepass")).hexdigest()[:16]


def clean(text: str) -> str:
    """Without characters that a reader does not see."""
    return _HIDDEN.sub("", text.replace("\r\n", "\n")).strip()


def joined(parts: Iterable[str]) -> str:
    """The parts of an answer as one text, cut where it is out of all proportion."""
    text = "\n".join(part for part in parts if part)
    if len(text) > MAX_ANSWER_CHARS:
        left = len(text) - MAX_ANSWER_CHARS
        return f"{text[:MAX_ANSWER_CHARS]}\n[{left} more characters were dropped]"
    return text or "(the tool returned nothing)"


def _fits(name: str, patterns: tuple[str, ...]) -> bool:
    return any(fnmatchcase(name, pattern) for pattern in patterns)


def _problem(tool: Listed) -> str | None:
    """Why a tool can't be taken, without repeating what is not fit to be shown."""
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
