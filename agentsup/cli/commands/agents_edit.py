"""Edits agents.json as text, so that what a person wrote keeps its form.

A change is checked before it is written, and refused if the file changed meanwhile. The new file
replaces the old one atomically; a copy of the old one is put into the home's backups.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, NoReturn

from agentsup.cli.connect.failure import CommandFailed
from agentsup.config import ConfigFinding, Home, JsonPositions, decode, did_you_mean, parse_agents
from agentsup.kit.files import write_atomic
from agentsup.model.agent import MAIN
from agentsup.model.errors import ConfigErrors
from agentsup.model.name import name_problem

EMPTY: Final = "[]\n"
_NOT_WRITTEN: Final = "would not be right after this change; nothing was written"


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
    """The text with ``entry`` as the last one, indented like others. Raises ``CommandFailed``."""
    name = str(entry["name"])
    if problem := name_problem(name):
        raise CommandFailed(f"{name!r} can't be an agent's name: {problem}")
    found = listed(text)
    if name.casefold() in {each.casefold() for each in found.names}:
        raise CommandFailed(f"there is an agent called {name!r} in agents.json already")
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
    there. All else stays as it is written. Raises ``CommandFailed``."""
    for key, value in fields.items():
        text = _with_field(text, name, key, value)
    return text


def _with_field(text: str, name: str, key: str, value: Any) -> str:
    found = listed(text)
    at = _index_of(found, name)
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
    """The text without the entry called ``name`` (case is ignored). Raises ``CommandFailed``."""
    if name.casefold() == MAIN:
        raise CommandFailed("the main agent can't be removed; `agentsup stop` ends the daemon")
    found = listed(text)
    index = _index_of(found, name)
    start, end = found.spans[index]
    if index + 1 < len(found.spans):
        end = found.spans[index + 1][0]
    elif index > 0:
        start = found.spans[index - 1][1]
    else:
        start, end = found.opens + 1, found.closes
    return text[:start] + text[end:]


def _index_of(found: ListedEntries, name: str) -> int:
    names = [each.casefold() for each in found.names]
    if name.casefold() not in names:
        hint = did_you_mean(name, found.names)
        raise CommandFailed(
            f"there is no agent called {name!r} in agents.json" + (f"; {hint}" if hint else "")
        )
    return names.index(name.casefold())


def agents_text(home: Home) -> str:
    """The text of agents.json, also where it is wrong; that of an empty list without one."""
    if not home.root.is_dir():
        raise CommandFailed(f"there is no home at {home.root}; make one with `agentsup init`")
    found = _read(home.agents_json)
    return EMPTY if found is None else found.decode("utf-8-sig", "replace")


def entry_span(text: str, name: str) -> tuple[int, int]:
    """The span of the entry called ``name``. Raises ``CommandFailed``."""
    try:
        parse_agents(text.encode())
    except ConfigErrors as error:
        raise CommandFailed(
            f"agents.json has an error; `agentsup agents edit` opens all of it: {error.findings[0]}"
        ) from None
    found = listed(text)
    return found.spans[_index_of(found, name)]


def change_file(home: Home, change: Callable[[str], str], *, mends: bool = False) -> str:
    """Apply ``change`` to agents.json; returns the path of the copy of the old file, or empty.

    ``mends``: the file may have an error before. Raises ``CommandFailed`` if the file is wrong, would
    become wrong, or changed meanwhile.
    """
    path = home.agents_json
    if not home.root.is_dir():
        raise CommandFailed(f"there is no home at {home.root}; make one with `agentsup init`")
    before = _read(path)
    errors = errors_of(home, FileNotFoundError() if before is None else before)
    if before is None and (gone := [one for one in errors if one.path == path.name]):
        raise CommandFailed(f"{gone[0]}")
    if mends:
        text = agents_text(home)
    else:
        text = EMPTY if before is None else _checked(before, path, "has an error; mend it first")
    after = change(text).encode()
    if before is not None and before.startswith(b"\xef\xbb\xbf"):
        after = b"\xef\xbb\xbf" + after
    _checked(after, path, _NOT_WRITTEN)
    # Errors that were there before do not refuse a change: a removal may be what fixes them.
    known = {one.message for one in errors}
    if new := [one for one in errors_of(home, after) if one.message not in known]:
        _refuse(path, _NOT_WRITTEN, new)
    backup = ""
    try:
        if before is not None:
            home.backups.mkdir(mode=0o700, parents=True, exist_ok=True)
            copy = home.backups / f"agents-{hashlib.sha256(before).hexdigest()[:12]}.json"
            write_atomic(copy, before)
            backup = str(copy)
        mode = path.stat().st_mode & 0o777 if before is not None else 0o600
        if _read(path) != before:
            raise CommandFailed(f"{path} was changed meanwhile; nothing was written, try again")
        write_atomic(path, after, mode=mode, follow_symlink=True)
    except OSError as error:
        raise CommandFailed(f"{path} can't be written: {error.strerror or error}") from None
    return backup


def _read(path: Path) -> bytes | None:
    try:
        return path.read_bytes()
    except FileNotFoundError:
        return None
    except OSError as error:
        raise CommandFailed(f"{path} can't be read: {error.strerror or error}") from None


def _checked(data: bytes, path: Path, complaint: str) -> str:
    try:
        parse_agents(data)
        return decode(data, path.name)
    except ConfigErrors as error:
        _refuse(path, complaint, error.findings)


def _refuse(path: Path, complaint: str, found: Sequence[object]) -> NoReturn:
    more = f" (and {len(found) - 1} more)" if len(found) > 1 else ""
    raise CommandFailed(f"{path} {complaint}: {found[0]}{more}") from None


def errors_of(
    home: Home, content: bytes | OSError | None = None, path: Path | None = None
) -> list[ConfigFinding]:
    """The errors that ``agents validate`` would report, with ``content`` as agents.json (or as
    ``path``) if given."""
    from agentsup.config import validate
    from agentsup.daemon.runtime import ScriptCheck

    name = (path or home.agents_json).name
    given = {name: content} if content is not None else None
    found = validate(home, checks=(ScriptCheck(),), content=given)
    return [one for one in found if one.is_error]


def _indent_at(text: str, offset: int) -> str:
    """The white space at the beginning of the line that contains ``offset``."""
    line = text[text.rfind("\n", 0, offset) + 1 : offset]
    return line[: len(line) - len(line.lstrip())]
