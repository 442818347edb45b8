"""What a coding CLI's own calls are: its names for them, sorted into ours. Pure but for real paths.

The CLI says which tool it uses; a name that is not known here is unknown, and so dangerous. All of
them are blind: we see them only from the outside.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from agentsup.agents.tools import addresses, shell_policy
from agentsup.agents.tools.tree import protected
from agentsup.model import tool_names
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
    """``name`` in our words (``exec``, ``mcp:server/tool``), or the CLI's where we have none.
    ``refused`` says why it is out of the question."""

    name: str
    safety: Safety
    effect: Effect
    refused: str | None = None


def is_own_kind(tool: str) -> bool:
    """Whether one of our tools is of the kind that coding CLIs bring along: files, programs, web."""
    return tool in _KINDS


def our_tool(tool: str) -> str | None:
    """Which of our tools a CLI means that names it as one of our MCP server's, or None."""
    return tool.removeprefix(_OURS) if tool.startswith(_OURS) else None


def essence(name: str, args: dict[str, Any]) -> dict[str, Any]:
    """What a call does, by which it is known again when a turn has begun anew: without the words
    about a command, which a model chooses otherwise each time.

    ``name`` as ``classify`` gives it. Those words are known of a coding agent's own programs alone:
    to a tool of another server an argument of the same name may mean anything.
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
    """Sort one call. ``real`` resolves links; it looks at the disk."""
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
        places = list(_places(args, is_glob=tool.strip().casefold() == "glob"))
        # It may be right, as for a library's source; but not without being asked for.
        if _leave(places, workspace, real) or (safety is _MODERATE and not places):
            safety = _DANGEROUS
    effect = Effect.READ if safety is _SAFE else Effect.BLIND
    return OwnCall(name, safety, effect, refused)


def _command_problem(args: dict[str, Any]) -> str | None:
    for command in (args[key] for key in _SCRIPT_KEYS if key in args):
        found: str | None = None
        if isinstance(command, str):
            found = shell_policy.script_problem(command)
        elif isinstance(command, list) and all(isinstance(word, str) for word in command):
            found = shell_policy.problem(command)
        if found is not None:
            return found
    return None


def _places(value: Any, key: str = "", depth: int = 0, *, is_glob: bool = False) -> Iterator[str]:
    """What among the arguments names a file, whatever the program calls it."""
    if depth > _MAX_DEPTH:
        yield "/"  # nobody writes a path down here but to hide it
    elif isinstance(value, dict):
        for name, inner in value.items():
            if "/" in str(name):
                yield str(name)
            yield from _places(inner, str(name), depth + 1, is_glob=is_glob)
    elif isinstance(value, list):
        for inner in value:
            yield from _places(inner, key, depth + 1, is_glob=is_glob)
    elif isinstance(value, str) and value:
        if "*** Begin Patch" in value or key in ("patch", "diff"):
            yield from (found[1].strip() for found in _PATCH.finditer(value))
        elif _names_a_place(key, value, is_glob=is_glob):
            yield value.removeprefix("file://")


def _names_a_place(key: str, value: str, *, is_glob: bool) -> bool:
    if key == "pattern":
        return is_glob  # elsewhere it is what is looked for
    if _PATH_KEYS.fullmatch(key):
        return True
    return not _WORDS_KEYS.fullmatch(key) and _ROOTED.match(value) is not None


def _leave(places: Iterable[str], workspace: str, real: Callable[[str], str]) -> bool:
    """Whether one of the places is outside the workspace, or protected inside it."""
    root = real(workspace)
    for place in places:
        if "\0" in place or place.startswith("~"):
            return True
        if place == "/dev/null":
            continue
        target = real(str(Path(root) / place))
        if target != root and not target.startswith(root.rstrip("/") + "/"):
            return True
        if protected(os.path.relpath(target, root).split("/")):
            return True
    return False
