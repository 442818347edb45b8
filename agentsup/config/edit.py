"""Edits the texts of agents.json and config.toml, so that what a person wrote keeps its form.

An edit of config.toml sets keys of one table. The new text is parsed again: if it does not say
exactly what was meant, it is refused, and the person is told what to write.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from agentsup.config.findings import did_you_mean
from agentsup.config.home import Home
from agentsup.config.positions import JsonPositions
from agentsup.kit.files import write_atomic
from agentsup.model.agent import MAIN
from agentsup.model.errors import BadRequest, ConfigError, Conflict, NotFound
from agentsup.model.name import name_problem

_HEADER: Final = re.compile(r"\s*\[\s*([^\[\]]+?)\s*\]\s*(#.*)?")
_BARE: Final = re.compile(r"[A-Za-z0-9_-]+")


# -- agents.json -------------------------------------------------------------------------------------


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


def _indent_at(text: str, offset: int) -> str:
    """The white space at the beginning of the line that contains ``offset``."""
    line = text[text.rfind("\n", 0, offset) + 1 : offset]
    return line[: len(line) - len(line.lstrip())]


# -- config.toml -------------------------------------------------------------------------------------


def with_settings(text: str, table: str, values: Mapping[str, Any]) -> str:
    """The text with ``values`` set in ``[table]``; a mapping is merged with what is there.

    Raises ``ConfigError`` if the text is no TOML or is written in a way that can't be edited.
    """
    wanted, inner = _parsed(text, table)
    for key, value in values.items():
        known = inner.get(key)
        inner[key] = (
            {**known, **value} if isinstance(known, dict) and isinstance(value, Mapping) else value
        )
    lines = text.splitlines()
    for key in reversed(tuple(values)):  # each is put before those that were set already
        _set(lines, table, key, inner[key])
    made = "\n".join(lines) + "\n"
    if not _says(made, wanted):
        shown = "\n".join([f"[{table}]", *(f"{k} = {toml_of(inner[k])}" for k in values)])
        raise ConfigError(
            f"config.toml is written in a way that can't be edited here; write it there yourself:\n{shown}"
        )
    return made


def without_setting(text: str, table: str, key: str) -> str:
    """The text without ``key`` of ``[table]``, which may be missing there already. Raises as
    ``with_settings`` does."""
    wanted, inner = _parsed(text, table)
    if key not in inner:
        return text
    del inner[key]
    lines = text.splitlines()
    begin, end = _table(lines, table) or (0, 0)
    if (at := _statement(lines, begin, end, key)) is not None:
        del lines[at[0] : at[1]]
    made = "\n".join(lines) + "\n"
    if not _says(made, wanted):
        raise ConfigError(
            f"config.toml is written in a way that can't be edited here; take {key} out of it yourself"
        )
    return made


def _parsed(text: str, table: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """The document, and its table, which is made if it is missing. Raises ``ConfigError``."""
    try:
        document = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(f"config.toml has an error; mend it first: {error}") from None
    inner = document
    for part in table.split(".") if table else ():
        inner = inner.setdefault(part, {})
    return document, inner


def _says(text: str, wanted: Mapping[str, Any]) -> bool:
    try:
        return tomllib.loads(text) == wanted
    except tomllib.TOMLDecodeError:
        return False


def _sections(lines: list[str]) -> dict[str, int]:
    return {match[1]: at for at, line in enumerate(lines) if (match := _HEADER.fullmatch(line))}


def _table(lines: list[str], table: str) -> tuple[int, int] | None:
    """The lines of the table, without its header; None if it is not there. Empty: the keys before
    all tables."""
    sections = _sections(lines)
    if table and table not in sections:
        return None
    begin = sections[table] + 1 if table else 0
    end = min((at for at in sections.values() if at >= begin), default=len(lines))
    return begin, next((at for at in range(begin, end) if lines[at].lstrip()[:2] == "[["), end)


def _statement(lines: list[str], begin: int, end: int, key: str) -> tuple[int, int] | None:
    """The lines on which ``key`` is set, which may be several; None if it is not."""
    is_key = re.compile(rf"\s*{re.escape(key)}\s*=")
    for at in range(begin, end):
        if is_key.match(lines[at]):
            for stop in range(at + 1, end + 1):
                with contextlib.suppress(tomllib.TOMLDecodeError):
                    tomllib.loads("\n".join(lines[at:stop]))
                    return at, stop
            return at, at + 1
    return None


def _comment(line: str) -> str:
    """The comment behind the value of a line, with the space before it."""
    for found in re.finditer(r"\s*#", line):
        with contextlib.suppress(tomllib.TOMLDecodeError):
            if tomllib.loads(line[: found.start()]) == tomllib.loads(line):
                return line[found.start() :]
    return ""


def _set(lines: list[str], table: str, key: str, value: Any) -> None:
    sections = _sections(lines)
    if isinstance(value, Mapping) and f"{table}.{key}" in sections:
        for inner, each in value.items():
            _set(lines, f"{table}.{key}", inner, each)
        return
    line = f"{key} = {toml_of(value)}"
    inside = _table(lines, table)
    if inside is None:
        lines += ["", f"[{table}]", line]
        return
    if (at := _statement(lines, *inside, key)) is not None:
        lines[at[0] : at[1]] = [line + _comment("\n".join(lines[at[0] : at[1]]))]
        return
    lines.insert(_gap(lines, *inside, key), line)


def _gap(lines: list[str], begin: int, end: int, key: str) -> int:
    """The line for a new key: below the comment that shows it, or first in its table. The comments
    at the top of a file are about all of it."""
    is_shown = re.compile(rf"#\s*{re.escape(key)}\s*=")
    for at in range(begin, end):
        if is_shown.match(lines[at]):
            return at + 1
    if begin:
        return begin
    return next((at for at in range(end) if not lines[at].startswith("#")), end)


def toml_of(value: Any) -> str:
    """A value as TOML, tables inline."""
    if isinstance(value, Mapping):
        pairs = (
            f"{k if _BARE.fullmatch(k) else json.dumps(k)} = {toml_of(v)}" for k, v in value.items()
        )
        return "{ " + ", ".join(pairs) + " }"
    if isinstance(value, list | tuple):
        return "[" + ", ".join(map(toml_of, value)) + "]"
    # JSON's texts, numbers and booleans are TOML's, too.
    return json.dumps(value, ensure_ascii=False)


# -- the files ---------------------------------------------------------------------------------------


def replace_agents(home: Home, before: bytes | None, after: bytes) -> str:
    """Replace agents.json atomically; returns the path of the copy of the old one in ``backups``.

    Raises ``Conflict`` if it is not ``before`` any more, and ``OSError``.
    """
    path = home.agents_json
    mode = path.stat().st_mode & 0o777 if before is not None else 0o600
    return _replace(home, path, before, after, mode)


def replace_settings(home: Home, before: bytes | None, after: bytes) -> None:
    """Replace config.toml as ``replace_agents`` replaces agents.json."""
    _replace(home, home.config_toml, before, after, 0o600)


def _replace(home: Home, path: Path, before: bytes | None, after: bytes, mode: int) -> str:
    backup = ""
    if before is not None:
        home.backups.mkdir(mode=0o700, parents=True, exist_ok=True)
        digest = hashlib.sha256(before).hexdigest()[:12]
        copy = home.backups / f"{path.stem}-{digest}{path.suffix}"
        write_atomic(copy, before)
        backup = str(copy)
    if _content(path) != before:
        raise Conflict(f"{path} was changed meanwhile; nothing was written, try again")
    write_atomic(path, after, mode=mode, follow_symlink=True)
    return backup


def agents_bytes(home: Home) -> bytes | None:
    """The content of agents.json, or None without one. Raises ``OSError``."""
    return _content(home.agents_json)


def settings_bytes(home: Home) -> bytes | None:
    """The content of config.toml, or None without one. Raises ``OSError``."""
    return _content(home.config_toml)


def _content(path: Path) -> bytes | None:
    try:
        return path.read_bytes()
    except FileNotFoundError:
        return None
