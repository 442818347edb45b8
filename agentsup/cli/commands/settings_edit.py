"""Edits config.toml for a command, and shows what an edit changed."""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Mapping
from typing import Any, Final

from agentsup import config
from agentsup.cli.commands.agents_edit import errors_of
from agentsup.cli.connect.failure import CommandFailed
from agentsup.config import Home, replace_settings, settings_bytes
from agentsup.model.errors import ConfigError, Conflict

_IN_CLEAR: Final = re.compile(
    r"""((?:key|token|secret|passw)[\w-]*["']?\s*[:=]\s*)(["'])(?!env:|file:)[^"']+\2""",
    re.IGNORECASE,
)


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
    try:
        before = settings_bytes(home)
    except OSError as error:
        raise CommandFailed(f"{path} can't be read: {error.strerror or error}") from None
    text = before.decode() if before is not None else ""
    after = change(text).encode()
    known = {one.message for one in errors_of(home)}
    if new := [one for one in errors_of(home, after, path) if one.message not in known]:
        raise CommandFailed(
            f"{path} would not be right after this change; nothing was written: {new[0]}"
        )
    try:
        replace_settings(home, before, after)
    except Conflict as error:
        raise CommandFailed(error.message) from None
    except OSError as error:
        raise CommandFailed(f"{path} can't be written: {error.strerror or error}") from None
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
