"""Integrity of the file: a flag for a clean shutdown, and a check if it is missing.

A damaged file is refused with a way back to the last good backup.
"""

from __future__ import annotations

import sqlite3
from pathlib import Path

from agentsup.store.failures import corrupt
from agentsup.store.migrate import PUT_META

_MOST_FINDINGS = 5


def is_clean(connection: sqlite3.Connection) -> bool:
    """Whether the last process that used the file closed it cleanly."""
    try:
        row = connection.execute("SELECT value FROM store_meta WHERE key = 'clean'").fetchone()
    except sqlite3.OperationalError:
        return False  # killed before its first migration
    return row is not None and row[0] == "1"


def mark(connection: sqlite3.Connection, *, clean: bool) -> None:
    """Record that the file is in use (``clean=False``) or cleanly closed."""
    connection.execute(PUT_META, ("clean", "1" if clean else "0"))


def findings(connection: sqlite3.Connection) -> str:
    """The damage that ``quick_check`` reports; empty if none."""
    rows = connection.execute(f"PRAGMA quick_check({_MOST_FINDINGS})").fetchall()
    lines = [str(row[0]) for row in rows]
    return "" if lines == ["ok"] else "; ".join(lines)


def check(connection: sqlite3.Connection, path: Path, last_good: Path | None) -> None:
    """Raise ``StoreCorrupt`` if ``quick_check`` finds damage."""
    complaint = findings(connection)
    if complaint:
        raise corrupt(path, complaint, last_good)
