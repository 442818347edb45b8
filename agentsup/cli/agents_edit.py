"""Editing agents.json as text, so that what a person wrote keeps its form.

A change is refused where the file changed meanwhile, is checked before it is written, replaces the
file atomically and leaves a copy of the old one in the home's backups.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from agentsup.cli.failure import Failed
from agentsup.config.agents_file import decode, parse_agents
from agentsup.config.findings import did_you_mean
from agentsup.config.home import Home
from agentsup.kit.files import write_atomic
from agentsup.model.agent import MAIN
from agentsup.model.errors import ConfigErrors
from agentsup.model.name import name_problem

EMPTY: Final = "[]\n"
_SPACE = re.compile(r"[ \t\r\n]*")


@dataclass(frozen=True, slots=True)
class Listed:
    """Where the list of entries stands in the text: its brackets and each entry."""

    opens: int
    closes: int
    spans: tuple[tuple[int, int], ...]
    values: tuple[Any, ...]

    @property
    def names(self) -> list[str]:
        """The names of the entries, in order."""
        return [str(v.get("name", "")) if isinstance(v, dict) else "" for v in self.values]


def listed(text: str) -> Listed:
    """Find the entries of a text that `parse_agents` accepts."""
    decoder = json.JSONDecoder()
    at = _skip(text, 0)
    if text[at] == "{":
        at = _member(text, at, "agents", decoder)
    opens = at
    at = _skip(text, at + 1)
    spans: list[tuple[int, int]] = []
    values: list[Any] = []
    while text[at] != "]":
        value, end = decoder.raw_decode(text, at)
        spans.append((at, end))
        values.append(value)
        at = _skip(text, end)
        if text[at] == ",":
            at = _skip(text, at + 1)
    return Listed(opens, at, tuple(spans), tuple(values))


def with_entry(text: str, entry: Mapping[str, Any]) -> str:
    """The text with `entry` as the last one, indented like the others. Raises `Failed`."""
    name = str(entry["name"])
    if problem := name_problem(name):
        raise Failed(f"{name!r} can't be an agent's name: {problem}")
    found = listed(text)
    if name.casefold() in {each.casefold() for each in found.names}:
        raise Failed(f"there is an agent called {name!r} in agents.json already")
    outer = _indent_at(text, found.opens)
    is_multiline = "\n" in text[found.opens : found.closes] or not found.spans
    inner = _indent_at(text, found.spans[0][0]) if found.spans and is_multiline else outer + "  "
    written = json.dumps(dict(entry), indent=2, ensure_ascii=False).replace("\n", "\n" + inner)
    if found.spans:
        end = found.spans[-1][1]
        return f"{text[:end]},\n{inner}{written}{text[end:]}"
    return f"{text[: found.opens]}[\n{inner}{written}\n{outer}{text[found.closes :]}"


def without_entry(text: str, name: str) -> str:
    """The text without the entry called `name`, in any case. Raises `Failed`."""
    if name.casefold() == MAIN:
        raise Failed("the main agent can't be removed; `agentsup stop` ends the daemon")
    found = listed(text)
    names = [each.casefold() for each in found.names]
    if name.casefold() not in names:
        hint = did_you_mean(name, found.names)
        raise Failed(
            f"there is no agent called {name!r} in agents.json" + (f"; {hint}" if hint else "")
        )
    index = names.index(name.casefold())
    start, end = found.spans[index]
    if index + 1 < len(found.spans):
        end = found.spans[index + 1][0]
    elif index > 0:
        start = found.spans[index - 1][1]
    else:
        start, end = found.opens + 1, found.closes
    return text[:start] + text[end:]


def change_file(home: Home, change: Callable[[str], str]) -> str:
    """Apply `change` to agents.json; returns the path of the copy of the old file, if there was one.

    Raises `Failed` where the file is wrong already, would become wrong, or changed meanwhile.
    """
    path = home.agents_json
    if not home.root.is_dir():
        raise Failed(f"there is no home at {home.root}; make one with `agentsup init`")
    before = _read(path)
    text = (
        EMPTY
        if before is None
        else _checked(before, path, "is not right as it stands; mend it first")
    )
    after = change(text).encode()
    if before is not None and before.startswith(b"\xef\xbb\xbf"):
        after = b"\xef\xbb\xbf" + after
    _checked(after, path, "would not be right after this change; nothing was written")
    backup = ""
    try:
        if before is not None:
            home.backups.mkdir(mode=0o700, parents=True, exist_ok=True)
            kept = home.backups / f"agents-{hashlib.sha256(before).hexdigest()[:12]}.json"
            write_atomic(kept, before)
            backup = str(kept)
        mode = path.stat().st_mode & 0o777 if before is not None else 0o600
        if _read(path) != before:
            raise Failed(f"{path} was changed meanwhile; nothing was written, try again")
        write_atomic(path, after, mode=mode, follow_symlink=True)
    except OSError as error:
        raise Failed(f"{path} can't be written: {error.strerror or error}") from None
    return backup


def _read(path: Path) -> bytes | None:
    try:
        return path.read_bytes()
    except FileNotFoundError:
        return None
    except OSError as error:
        raise Failed(f"{path} can't be read: {error.strerror or error}") from None


def _checked(data: bytes, path: Path, complaint: str) -> str:
    try:
        parse_agents(data)
        return decode(data, path.name)
    except ConfigErrors as error:
        first = error.findings[0]
        more = f" (and {len(error.findings) - 1} more)" if len(error.findings) > 1 else ""
        raise Failed(f"{path} {complaint}: {first}{more}") from None


def _skip(text: str, at: int) -> int:
    match = _SPACE.match(text, at)
    return match.end() if match else at


def _member(text: str, at: int, wanted: str, decoder: json.JSONDecoder) -> int:
    """Offset of the value of the member `wanted` of the object at `at`."""
    at = _skip(text, at + 1)
    while text[at] != "}":
        key, at = decoder.raw_decode(text, at)
        at = _skip(text, _skip(text, at) + 1)
        if key == wanted:
            return at
        at = _skip(text, decoder.raw_decode(text, at)[1])
        if text[at] == ",":
            at = _skip(text, at + 1)
    raise Failed("agents.json has no list of agents")


def _indent_at(text: str, offset: int) -> str:
    """The white space at the beginning of the line on which `offset` stands."""
    line = text[text.rfind("\n", 0, offset) + 1 : offset]
    return line[: len(line) - len(line.lstrip())]
