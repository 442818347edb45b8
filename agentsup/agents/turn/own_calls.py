"""Calls that an engine makes itself: classified by our tool names, and told apart.

The CLI says which tool it uses; a call with a name that is not known here is dangerous. All calls
that are not plain reads are blind: we see them only from the outside.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from agentsup.agents.tools.exec import command_lines
from agentsup.agents.tools.files.tools import protected
from agentsup.agents.tools.web import addresses
from agentsup.kit.pool import BoundedPool
from agentsup.model import tool_names
from agentsup.model.engine import PermissionRequest
from agentsup.model.tool import OUR_MCP_SERVER, Effect, Safety

_SAFE, _MODERATE, _DANGEROUS = Safety.SAFE, Safety.MODERATE, Safety.DANGEROUS
_CLASSES: dict[str, tuple[str, Safety]] = {
    **dict.fromkeys(tool_names.READ.split(), ("fs_read", _SAFE)),
    **dict.fromkeys(tool_names.SEARCH.split(), ("fs_list", _SAFE)),
    **dict.fromkeys(tool_names.THINK.split(), ("think", _SAFE)),
    **dict.fromkeys(tool_names.EDIT.split(), ("fs_edit", _MODERATE)),
    **dict.fromkeys(tool_names.WRITE.split(), ("fs_write", _MODERATE)),
    **dict.fromkeys(tool_names.RUN.split(), ("exec", _DANGEROUS)),
    **dict.fromkeys(tool_names.FETCH.split(), ("web_fetch", _DANGEROUS)),
    **dict.fromkeys(tool_names.REMOVE.split(), ("fs_delete", _DANGEROUS)),
}
_KINDS = frozenset(name for name, _ in _CLASSES.values()) | {"fs_stat", "fs_mkdir"}
_OURS = f"mcp__{OUR_MCP_SERVER}__"
_MCP = re.compile(r"mcp__(?P<server>[^_].*?)__(?P<tool>.+)", re.DOTALL)
_COMMANDS, _WORDS = ("command", "cmd"), frozenset({"description", "justification", "title"})
_PATH_KEYS = re.compile(
    r"(?:.*_)?(?:path|paths|file|files|filename|dir|directory|folder|cwd|workdir|uri|to|from)"
    r"|.*(?:Path|Paths|File|Dir|Uri)"
)
_WORDS_KEYS = re.compile(
    r"content|contents|text|title|description|prompt|query|regex|explanation|reason"
    r"|(?:old|new|file)[_]?(?:str|string|text|content|source|Text|String|Source|Content)"
)
_PATCH = re.compile(
    r"^(?:\*\*\* (?:Add|Update|Delete) File: |\*\*\* Move to: |(?:---|\+\+\+) (?:[ab]/)?)([^\t\n]+)",
    re.MULTILINE,
)
_SCRIPT_KEYS = (*_COMMANDS, "script", "commandLine", "command_line", "argv")
_ROOTED = re.compile(r"/|~|\.\./|file://")
_MAX_DEPTH = 6


@dataclass(frozen=True, slots=True)
class OwnCall:
    """``name`` is our name (``exec``, ``mcp:server/tool``), or the CLI's if we have none.
    ``refused`` says why the call is never allowed."""

    name: str
    safety: Safety
    effect: Effect
    refused: str | None = None


def is_own_kind(tool: str) -> bool:
    """Whether our tool ``tool`` is of a kind that coding CLIs have too: files, programs, web."""
    return tool in _KINDS


def our_tool(tool: str) -> str | None:
    """The name of our tool, if a CLI names a tool of our MCP server; else None."""
    return tool.removeprefix(_OURS) if tool.startswith(_OURS) else None


def essence(name: str, args: dict[str, Any]) -> dict[str, Any]:
    """The arguments that identify a call when its turn starts again: without the description of a
    command, which a model words differently each time.

    ``name`` is that of ``classify``. Only for a coding agent's own programs are these arguments
    known to be descriptions; for a tool of another server they may mean anything.
    """
    if name != "exec" or not any(args.get(key) for key in _COMMANDS):
        return args
    return {key: value for key, value in args.items() if key not in _WORDS}


def classify(
    tool: str,
    args: dict[str, Any],
    workspace: str,
    real: Callable[[str], str] = os.path.realpath,
) -> OwnCall:
    """Classify one call. ``real`` resolves links, for which it reads the disk."""
    found = _MCP.fullmatch(tool)
    if found is not None:
        name = f"mcp:{found['server']}/{found['tool']}"
        return OwnCall(name, _DANGEROUS, Effect.BLIND)
    name, safety = _CLASSES.get(tool.strip().casefold(), (tool, _DANGEROUS))
    refused: str | None = None
    if name == "exec":
        refused = _command_problem(args)
    elif name == "web_fetch" and isinstance(args.get("url"), str):
        refused = addresses.url_problem(args["url"])
    elif name.startswith("fs_"):
        paths = list(_paths(args, is_glob=tool.strip().casefold() == "glob"))
        # A path outside may be legitimate, as for a library's source, but a person must be asked.
        if _is_outside(paths, workspace, real) or (safety is _MODERATE and not paths):
            safety = _DANGEROUS
    effect = Effect.READ if safety is _SAFE else Effect.BLIND
    return OwnCall(name, safety, effect, refused)


def _command_problem(args: dict[str, Any]) -> str | None:
    given = (command_lines.script_of(args[key]) for key in _SCRIPT_KEYS if key in args)
    commands = (each.split() if isinstance(each, str) else each for each in given)
    problems = (
        command_lines.problem(words)
        for words in commands
        if words and isinstance(words, list) and all(isinstance(word, str) for word in words)
    )
    return next((why for why in problems if why is not None), None)


def _paths(value: Any, key: str = "", depth: int = 0, *, is_glob: bool = False) -> Iterator[str]:
    """The arguments that name a file, whatever the program calls them."""
    if depth > _MAX_DEPTH:
        yield "/"  # a path that is nested so deep is assumed to be hidden on purpose
    elif isinstance(value, dict):
        for name, inner in value.items():
            if "/" in str(name):
                yield str(name)
            yield from _paths(inner, str(name), depth + 1, is_glob=is_glob)
    elif isinstance(value, list):
        for inner in value:
            yield from _paths(inner, key, depth + 1, is_glob=is_glob)
    elif isinstance(value, str) and value:
        if "*** Begin Patch" in value or key in ("patch", "diff"):
            yield from (found[1].strip() for found in _PATCH.finditer(value))
        elif _names_a_path(key, value, is_glob=is_glob):
            yield value.removeprefix("file://")


def _names_a_path(key: str, value: str, *, is_glob: bool) -> bool:
    if key == "pattern":
        return is_glob  # in other tools it is the text to search for
    if _PATH_KEYS.fullmatch(key):
        return True
    return not _WORDS_KEYS.fullmatch(key) and _ROOTED.match(value) is not None


def _is_outside(paths: Iterable[str], workspace: str, real: Callable[[str], str]) -> bool:
    """Whether one of the paths is outside the workspace, or protected inside it."""
    root = real(workspace)
    for path in paths:
        if "\0" in path or path.startswith("~"):
            return True
        if path == "/dev/null":
            continue
        target = real(str(Path(root) / path))
        if target != root and not target.startswith(root.rstrip("/") + "/"):
            return True
        if protected(os.path.relpath(target, root).split("/")):
            return True
    return False


def call_key(name: str, args: dict[str, Any]) -> str:
    """A short digest of a call's content."""
    canonical = json.dumps([name, args], sort_keys=True, ensure_ascii=False, default=str)
    return hashlib.sha256(canonical.encode()).hexdigest()[:16]


async def classified(
    request: PermissionRequest, workspace: str, files: BoundedPool, key: str
) -> OwnCall:
    """Classify a call of the engine's own. It may name any file, so links are resolved in the pool
    ``files``; if the disk does not answer, the call counts as dangerous and blind."""
    tool, args = request.tool, request.args
    try:
        return await files.run(partial(classify, tool, args, workspace), key=key)
    except OSError:
        found = classify(tool, args, workspace, str)
        return replace(found, safety=Safety.DANGEROUS, effect=Effect.BLIND)
