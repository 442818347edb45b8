"""Reading the store from a program that does not own it, and files of other programs, of which nothing
is trusted."""

from __future__ import annotations

import contextlib
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any, Final, TypeVar

from agentsup.store.connection import connect_reader
from agentsup.store.failures import StoreFault, condition_of, unavailable
from agentsup.store.transaction import Reader

T = TypeVar("T")
_PATIENCE_MS = 2_000


def glance(path: Path, fn: Callable[[Reader], T]) -> T:
    """Run ``fn`` over one snapshot of the database at ``path``, while others may write it.

    Blocks. Raises ``StoreUnavailable`` or ``StoreCorrupt`` if it can't be read.
    """
    try:
        with contextlib.closing(connect_reader(path, busy_timeout_ms=_PATIENCE_MS)) as connection:
            connection.execute("BEGIN")
            return fn(Reader(connection))
    except sqlite3.Error as error:
        raise (
            condition_of(error, path, lambda: None)
            or unavailable(StoreFault.NOT_OPENED, path, str(error))
        ) from error


_STEPS: Final = 1_000
"""SQLite asks after so many of its steps whether it may go on."""
_MOST_ASKED: Final = 500_000
_MOST_OF_ONE: Final = 4 * 1024 * 1024
_MOST_IN_ALL: Final = 256 * 1024 * 1024
"""The most bytes of one value, and of all rows."""


def foreign_rows(path: Path, statement: str, most: int) -> list[dict[str, Any]]:
    """At most ``most`` rows that ``statement`` (ours) gives in the file at ``path``, a copy.

    What the file itself defines is not trusted, and the work is bounded. Raises ``OSError`` with
    the reason if it can't be read.
    """
    asked = 0

    def is_too_long() -> bool:
        nonlocal asked
        asked += 1
        return asked > _MOST_ASKED

    try:
        with closing(sqlite3.connect(path, timeout=1.0)) as connection:
            connection.row_factory = sqlite3.Row
            connection.execute("PRAGMA trusted_schema = OFF")
            connection.execute("PRAGMA cell_size_check = ON")
            connection.set_progress_handler(is_too_long, _STEPS)
            connection.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, _MOST_OF_ONE)
            return _bounded(connection.execute(statement), most)
    except sqlite3.Error as error:
        raise OSError(f"its data can't be read: {error}") from error


def _bounded(cursor: sqlite3.Cursor, most: int) -> list[dict[str, Any]]:
    """The first rows, at most ``most`` and of at most ``_MOST_IN_ALL`` bytes."""
    found: list[dict[str, Any]] = []
    left = _MOST_IN_ALL
    for row in cursor:
        left -= sum(len(each) for each in row if isinstance(each, str | bytes))
        if left < 0 or len(found) == most:
            break
        found.append(dict(row))
    return found
