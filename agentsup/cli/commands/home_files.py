"""The files of a home: made from templates, and edited as text, so that what a person wrote keeps its
form.

A change is checked before it is written, and refused if the file changed meanwhile. The new file
replaces the old one atomically; a copy of the old one is put into the home's backups.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, NoReturn

from agentsup import config
from agentsup.cli.connect.failure import CommandFailed, failing_as
from agentsup.config import (
    ConfigFinding,
    Home,
    agents_bytes,
    decode,
    index_of,
    listed,
    parse_agents,
    replace_agents,
    replace_settings,
    settings_bytes,
)
from agentsup.kit.files import write_atomic
from agentsup.model.errors import ConfigError, ConfigErrors, Conflict, Refused

TEMPLATES: Final = Path(__file__).with_name("templates")
DEMO_RULES: Final = "demo-rules.yaml"
SCHEMAS: Final = ("agents.schema.json", "config.schema.json")
_SHIPPED: Final = Path(__file__).parents[2] / "config"
EMPTY: Final = "[]\n"
_NOT_WRITTEN: Final = "would not be right after this change; nothing was written"
_IN_CLEAR: Final = re.compile(
    r"""((?:key|token|secret|passw)[\w-]*["']?\s*[:=]\s*)(["'])(?!env:|file:)[^"']+\2""",
    re.IGNORECASE,
)


# -- a new home ------------------------------------------------------------------------------------


def create_home(home: Home) -> list[Path]:
    """Make the missing files of ``home``; returns the files made. Raises ``CommandFailed``.

    Only the JSON Schemas beside them, which are generated, are overwritten.
    """
    paths = (home.config_toml, home.agents_json, home.shared_memory, home.root / DEMO_RULES)
    files = {path: (TEMPLATES / path.name).read_bytes() for path in paths}
    return write_home(
        home, files, {home.root / name: (_SHIPPED / name).read_bytes() for name in SCHEMAS}
    )


def write_home(
    home: Home, missing: Mapping[Path, bytes], generated: Mapping[Path, bytes]
) -> list[Path]:
    """Make those files of ``home`` that are ``missing``, and overwrite those that are ``generated``
    and differ; returns the missing ones that were made. Raises ``CommandFailed``."""
    made: list[Path] = []
    try:
        home.create()
        for path, content in missing.items():
            if not path.exists() and not path.is_symlink():
                write_atomic(path, content)
                made.append(path)
        for path, content in generated.items():
            if not path.exists() or path.read_bytes() != content:
                write_atomic(path, content)
    except OSError as error:
        where = error.filename or home.root
        raise CommandFailed(f"the home can't be made: {where}: {error.strerror or error}") from None
    return made


# -- agents.json -----------------------------------------------------------------------------------


def require_home(home: Home) -> None:
    """Raise ``CommandFailed`` if there is no home."""
    if not home.root.is_dir():
        raise CommandFailed(f"there is no home at {home.root}; make one with `agentsup init`")


def agents_text(home: Home) -> str:
    """The text of agents.json, also where it is wrong; that of an empty list without one."""
    require_home(home)
    found = _read(home)
    return EMPTY if found is None else found.decode("utf-8-sig", "replace")


def entry_span(text: str, name: str) -> tuple[int, int]:
    """The span of the entry called ``name``. Raises ``CommandFailed`` and ``NotFound``."""
    try:
        parse_agents(text.encode())
    except ConfigErrors as error:
        raise CommandFailed(
            f"agents.json has an error; `agentsup agents edit` opens all of it: {error.findings[0]}"
        ) from None
    found = listed(text)
    return found.spans[index_of(found, name)]


def change_file(home: Home, change: Callable[[str], str], *, mends: bool = False) -> str:
    """Apply ``change`` to agents.json; returns the path of the copy of the old file, or empty.

    ``mends``: the file may have an error before. Raises ``CommandFailed`` if the file is wrong, would
    become wrong, or changed meanwhile.
    """
    path = home.agents_json
    require_home(home)
    before = _read(home)
    errors = errors_of(home, FileNotFoundError() if before is None else before)
    if before is None and (gone := [one for one in errors if one.path == path.name]):
        raise CommandFailed(f"{gone[0]}")
    if mends:
        text = agents_text(home)
    else:
        text = EMPTY if before is None else _checked(before, path, "has an error; mend it first")
    try:
        after = change(text).encode()
        if before is not None and before.startswith(b"\xef\xbb\xbf"):
            after = b"\xef\xbb\xbf" + after
        _checked(after, path, _NOT_WRITTEN)
        # Errors that were there before do not refuse a change: a removal may be what fixes them.
        known = {one.message for one in errors}
        if new := [one for one in errors_of(home, after) if one.message not in known]:
            _refuse(path, _NOT_WRITTEN, new)
        with failing_as(f"{path} can't be written"):
            return replace_agents(home, before, after)
    except Refused as error:
        raise CommandFailed(error.message) from None


def _read(home: Home) -> bytes | None:
    with failing_as(f"{home.agents_json} can't be read"):
        return agents_bytes(home)


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


# -- config.toml -----------------------------------------------------------------------------------


def with_settings(text: str, table: str, values: Mapping[str, Any]) -> str:
    """``config.with_settings`` for a command. Raises ``CommandFailed``."""
    try:
        return config.with_settings(text, table, values)
    except ConfigError as error:
        raise CommandFailed(error.message) from None


def change_settings(home: Home, change: Callable[[str], str]) -> list[str]:
    """Apply ``change`` to config.toml, and return what differs, line by line.

    The file is replaced atomically, a copy of the old one is put into ``backups``. Raises
    ``CommandFailed`` if the file would become wrong or changed meanwhile.
    """
    path = home.config_toml
    with failing_as(f"{path} can't be read"):
        before = settings_bytes(home)
    text = before.decode() if before is not None else ""
    after = change(text).encode()
    known = {one.message for one in errors_of(home)}
    if new := [one for one in errors_of(home, after, path) if one.message not in known]:
        raise CommandFailed(
            f"{path} would not be right after this change; nothing was written: {new[0]}"
        )
    try:
        with failing_as(f"{path} can't be written"):
            replace_settings(home, before, after)
    except Conflict as error:
        raise CommandFailed(error.message) from None
    return difference(text, after.decode())


def difference(before: str, after: str) -> list[str]:
    """The lines that were removed (``- ``) and added (``+ ``), without secrets."""
    rows = difflib.unified_diff(before.splitlines(), after.splitlines(), n=0, lineterm="")
    return [
        f"{row[0]} {_without_secrets(row[1:].strip())}"
        for row in rows
        if row[:1] in "+-" and not row.startswith(("+++", "---")) and row[1:].strip()
    ]


def _without_secrets(line: str) -> str:
    return _IN_CLEAR.sub(r'\1"***"', line)
