"""Edits the text of config.toml, so that comments and order stay.

An edit sets keys of one table. The new text is parsed again: if it does not say exactly what was
meant, it is refused, and the person is told what to write.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import re
import tomllib
from collections.abc import Mapping
from typing import Any, Final

from agentsup.config.home import Home
from agentsup.kit.files import write_atomic
from agentsup.model.errors import ConfigError, Conflict

_HEADER: Final = re.compile(r"\s*\[\s*([^\[\]]+?)\s*\]\s*(#.*)?")
_BARE: Final = re.compile(r"[A-Za-z0-9_-]+")


def with_settings(text: str, table: str, values: Mapping[str, Any]) -> str:
    """The text with ``values`` set in ``[table]``; a mapping is merged with what is there.

    Raises ``ConfigError`` if the text is no TOML or is written in a way that can't be edited.
    """
    try:
        wanted = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(f"config.toml has an error; mend it first: {error}") from None
    inner = wanted
    for part in table.split(".") if table else ():
        inner = inner.setdefault(part, {})
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
    try:
        wanted = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(f"config.toml has an error; mend it first: {error}") from None
    inner = wanted
    for part in table.split(".") if table else ():
        inner = inner.get(part, {})
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


def replace_settings(home: Home, before: bytes | None, after: bytes) -> None:
    """Replace config.toml atomically, with a copy of the old one in ``backups``.

    Raises ``Conflict`` if it is not ``before`` any more, and ``OSError``.
    """
    path = home.config_toml
    if before is not None:
        home.backups.mkdir(mode=0o700, parents=True, exist_ok=True)
        digest = hashlib.sha256(before).hexdigest()[:12]
        write_atomic(home.backups / f"config-{digest}.toml", before)
    if settings_bytes(home) != before:
        raise Conflict(f"{path} was changed meanwhile; nothing was written, try again")
    write_atomic(path, after, follow_symlink=True)


def settings_bytes(home: Home) -> bytes | None:
    """The content of config.toml, or None without one. Raises ``OSError``."""
    try:
        return home.config_toml.read_bytes()
    except FileNotFoundError:
        return None
