"""Connections to the store: the pragmas on which the promises depend.

``synchronous=FULL`` makes a commit durable before it is confirmed (P1); foreign keys are on; SQL
never reads time. Only this module calls ``sqlite3.connect``.
"""

from __future__ import annotations

import os
import sqlite3
from pathlib import Path
from urllib.parse import quote

SQLITE_VERSION = sqlite3.sqlite_version
"""For modules that may not import ``sqlite3``."""
_CACHED_STATEMENTS = 512
_WAL_KEEP_BYTES = 64 * 1024 * 1024


def connect_writer(path: Path, *, busy_timeout_ms: int) -> sqlite3.Connection:
    """Open (or create, readable by its owner only) the database for the one writer.

    Raises ``sqlite3.Error`` if the file can't be opened, is no database, or can't use WAL.
    """
    if not path.exists() and path.parent.is_dir():
        # Created here because SQLite would use the process umask; -wal and -shm follow its mode.
        try:
            os.close(os.open(path, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600))
        except OSError as error:
            raise _cannot_open(f"{error.strerror}: {path}") from error
    connection = _connect(path, "rw", busy_timeout_ms)
    try:
        mode = connection.execute("PRAGMA journal_mode = WAL").fetchone()[0]
        if mode != "wal":
            raise _cannot_open(f"the file system of {path} does not support write-ahead logging")
        connection.execute("PRAGMA synchronous = FULL")
        connection.execute("PRAGMA foreign_keys = ON")
        connection.execute("PRAGMA temp_store = MEMORY")
        # Triggers maintain full-text indexes; SQLite 3.40 calls that unsafe otherwise. We register
        # no function and no extension can be loaded, so a trigger has nothing to misuse.
        connection.execute("PRAGMA trusted_schema = ON")
        connection.execute(f"PRAGMA journal_size_limit = {_WAL_KEEP_BYTES}")
    except BaseException:
        connection.close()
        raise
    return connection


def connect_reader(path: Path, *, busy_timeout_ms: int) -> sqlite3.Connection:
    """Open an existing database for reading only."""
    return _connect(path, "ro", busy_timeout_ms)


def connect_unlogged(path: Path) -> sqlite3.Connection:
    """Open only the file for reading, without its log. No process may have the file open."""
    return _connect(path, "ro&immutable=1", 0)


def _connect(path: Path, mode: str, busy_timeout_ms: int) -> sqlite3.Connection:
    connection = sqlite3.connect(
        f"file:{quote(os.fsencode(path))}?mode={mode}",
        uri=True,
        isolation_level=None,  # transactions are ours, statement by statement
        cached_statements=_CACHED_STATEMENTS,
    )
    connection.row_factory = sqlite3.Row
    connection.execute(f"PRAGMA busy_timeout = {busy_timeout_ms}")
    connection.execute("PRAGMA trusted_schema = OFF")
    return connection


def _cannot_open(text: str) -> sqlite3.OperationalError:
    error = sqlite3.OperationalError(text)
    error.sqlite_errorcode = sqlite3.SQLITE_CANTOPEN
    error.sqlite_errorname = "SQLITE_CANTOPEN"
    return error
