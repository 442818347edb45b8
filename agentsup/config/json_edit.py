"""Edits the text of agents.json, so that what a person wrote keeps its form."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from agentsup.config.findings import did_you_mean
from agentsup.config.home import Home
from agentsup.config.positions import JsonPositions
from agentsup.kit.files import write_atomic
from agentsup.model.agent import MAIN
from agentsup.model.errors import BadRequest, Conflict, NotFound
from agentsup.model.name import name_problem


@dataclass(frozen=True, slots=True)
class ListedEntries:
    """The list of entries in the text: the offsets of its brackets and of each entry."""

    opens: int
    closes: int
    spans: tuple[tuple[int, int], ...]
    values: tuple[Any, ...]

    @property
    def names(self) -> list[str]:
        """The names of the entries, in order."""
        return [str(each["name"]) for each in self.values]


def listed(text: str) -> ListedEntries:
    """Find the entries of a text that ``parse_agents`` accepts."""
    opens, members = JsonPositions(text).members(("agents",))
    closes = text.index("]", members[-1].end if members else opens)
    spans = tuple((each.value_at, each.end) for each in members)
    values = tuple(json.loads(text[start:end]) for start, end in spans)
    return ListedEntries(opens, closes, spans, values)


def with_entry(text: str, entry: Mapping[str, Any]) -> str:
    """The text with ``entry`` as the last one, indented like others. Raises ``Refused``."""
    name = str(entry["name"])
    if problem := name_problem(name):
        raise BadRequest(f"{name!r} can't be an agent's name: {problem}")
    found = listed(text)
    if name.casefold() in {each.casefold() for each in found.names}:
        raise Conflict(f"there is an agent called {name!r} in agents.json already")
    outer = _indent_at(text, found.opens)
    is_multiline = "\n" in text[found.opens : found.closes] or not found.spans
    inner = _indent_at(text, found.spans[0][0]) if found.spans and is_multiline else outer + "  "
    written = json.dumps(dict(entry), indent=2, ensure_ascii=False).replace("\n", "\n" + inner)
    if found.spans:
        end = found.spans[-1][1]
        return f"{text[:end]},\n{inner}{written}{text[end:]}"
    return f"{text[: found.opens]}[\n{inner}{written}\n{outer}{text[found.closes :]}"


def with_fields(text: str, name: str, fields: Mapping[str, Any]) -> str:
    """The text with ``fields`` set in the entry called ``name``; a mapping is merged with what is
    there. All else stays as it is written. Raises ``Refused``."""
    for key, value in fields.items():
        text = _with_field(text, name, key, value)
    return text


def _with_field(text: str, name: str, key: str, value: Any) -> str:
    found = listed(text)
    at = index_of(found, name)
    known = found.values[at].get(key)
    if isinstance(known, dict) and isinstance(value, Mapping):
        value = {**known, **value}
    start, end = found.spans[at]
    _, members = JsonPositions(text[start:end]).members(())
    written = json.dumps(value, ensure_ascii=False)
    for member in members:
        if member.key == key:
            return text[: start + member.value_at] + written + text[start + member.end :]
    last = start + members[-1].end
    before = start + members[-1].key_at
    is_own_line = not text[text.rfind("\n", 0, before) + 1 : before].strip()
    gap = "\n" + _indent_at(text, before) if is_own_line else " "
    return f"{text[:last]},{gap}{json.dumps(key)}: {written}{text[last:]}"


def without_entry(text: str, name: str) -> str:
    """The text without the entry called ``name`` (case is ignored). Raises ``Refused``."""
    if name.casefold() == MAIN:
        raise Conflict("the main agent can't be removed; `agentsup stop` ends the daemon")
    found = listed(text)
    index = index_of(found, name)
    start, end = found.spans[index]
    if index + 1 < len(found.spans):
        end = found.spans[index + 1][0]
    elif index > 0:
        start = found.spans[index - 1][1]
    else:
        start, end = found.opens + 1, found.closes
    return text[:start] + text[end:]


def index_of(found: ListedEntries, name: str) -> int:
    """The place of the entry called ``name`` (case is ignored). Raises ``NotFound``."""
    names = [each.casefold() for each in found.names]
    if name.casefold() not in names:
        hint = did_you_mean(name, found.names)
        raise NotFound(
            f"there is no agent called {name!r} in agents.json" + (f"; {hint}" if hint else "")
        )
    return names.index(name.casefold())


def replace_agents(home: Home, before: bytes | None, after: bytes) -> str:
    """Replace agents.json atomically; returns the path of the copy of the old one in ``backups``.

    Raises ``Conflict`` if it is not ``before`` any more, and ``OSError``.
    """
    path, backup = home.agents_json, ""
    if before is not None:
        home.backups.mkdir(mode=0o700, parents=True, exist_ok=True)
        copy = home.backups / f"agents-{hashlib.sha256(before).hexdigest()[:12]}.json"
        write_atomic(copy, before)
        backup = str(copy)
    mode = path.stat().st_mode & 0o777 if before is not None else 0o600
    if agents_bytes(home) != before:
        raise Conflict(f"{path} was changed meanwhile; nothing was written, try again")
    write_atomic(path, after, mode=mode, follow_symlink=True)
    return backup


def agents_bytes(home: Home) -> bytes | None:
    """The content of agents.json, or None without one. Raises ``OSError``."""
    try:
        return home.agents_json.read_bytes()
    except FileNotFoundError:
        return None


def _indent_at(text: str, offset: int) -> str:
    """The white space at the beginning of the line that contains ``offset``."""
    line = text[text.rfind("\n", 0, offset) + 1 : offset]
    return line[: len(line) - len(line.lstrip())]
