"""Edits agents.json as text, so that what a person wrote keeps its form.

A change is checked before it is written, and refused if the file changed meanwhile. The new file
replaces the old one atomically; a copy of the old one is put into the home's backups.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final, NoReturn

from agentsup.cli.connect.failure import CommandFailed
from agentsup.config import (
    ConfigFinding,
    Home,
    agents_bytes,
    decode,
    index_of,
    listed,
    parse_agents,
    replace_agents,
)
from agentsup.model.errors import ConfigErrors, Conflict, Refused

EMPTY: Final = "[]\n"
_NOT_WRITTEN: Final = "would not be right after this change; nothing was written"


def agents_text(home: Home) -> str:
    """The text of agents.json, also where it is wrong; that of an empty list without one."""
    if not home.root.is_dir():
        raise CommandFailed(f"there is no home at {home.root}; make one with `agentsup init`")
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
    if not home.root.is_dir():
        raise CommandFailed(f"there is no home at {home.root}; make one with `agentsup init`")
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
    except Refused as error:
        raise CommandFailed(error.message) from None
    if before is not None and before.startswith(b"\xef\xbb\xbf"):
        after = b"\xef\xbb\xbf" + after
    _checked(after, path, _NOT_WRITTEN)
    # Errors that were there before do not refuse a change: a removal may be what fixes them.
    known = {one.message for one in errors}
    if new := [one for one in errors_of(home, after) if one.message not in known]:
        _refuse(path, _NOT_WRITTEN, new)
    try:
        return replace_agents(home, before, after)
    except OSError as error:
        raise CommandFailed(f"{path} can't be written: {error.strerror or error}") from None
    except Conflict as error:
        raise CommandFailed(error.message) from None


def _read(home: Home) -> bytes | None:
    try:
        return agents_bytes(home)
    except OSError as error:
        raise CommandFailed(
            f"{home.agents_json} can't be read: {error.strerror or error}"
        ) from None


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
