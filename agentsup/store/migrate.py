"""The schema of the file and its integrity: both are checked when it is opened.

Schema versions are numbered SQL files, forward only, each in one transaction.

If the process is killed inside a migration, the old schema stays; after it, the new one. A database
written by a newer version is refused before anything in it is changed. A file without the flag of a
clean shutdown is checked; a damaged one is refused with a way back to the last good backup.
"""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from importlib.resources.abc import Traversable
from pathlib import Path

from agentsup.kit import faults
from agentsup.model.errors import SchemaTooNew
from agentsup.store.failures import StoreFault, corrupt, unavailable

_FILE_NAME = re.compile(r"(\d{4})_([a-z0-9_]+)\.sql")

PUT_META = (
    "INSERT INTO store_meta (key, value) VALUES (?, ?)"
    " ON CONFLICT (key) DO UPDATE SET value = excluded.value"
)
"""Sets a value of the store's own table."""
_OWN_TABLES = """
CREATE TABLE IF NOT EXISTS schema_version (
  version    INTEGER PRIMARY KEY,
  name       TEXT NOT NULL,
  applied_at INTEGER NOT NULL
) STRICT;
CREATE TABLE IF NOT EXISTS store_meta (
  key   TEXT PRIMARY KEY,
  value TEXT NOT NULL
) STRICT;
"""


@dataclass(frozen=True, slots=True)
class Migration:
    """One step. ``version`` counts from 1 without gaps."""

    version: int
    name: str
    sql: str


@cache
def packaged() -> tuple[Migration, ...]:
    """The migrations that ship with this version, read once."""
    return load(files("agentsup.store") / "migrations")


def load(directory: Traversable | Path) -> tuple[Migration, ...]:
    """Read ``NNNN_name.sql`` files in order.

    Raises ``ValueError`` for another file name, for a gap and for a number used twice.
    """
    found = []
    for entry in sorted(directory.iterdir(), key=lambda entry: entry.name):
        if not entry.name.endswith(".sql"):
            continue
        match = _FILE_NAME.fullmatch(entry.name)
        if match is None:
            raise ValueError(f"{entry.name}: a migration is called NNNN_name.sql")
        sql = entry.read_text(encoding="utf-8")
        found.append(Migration(int(match[1]), match[2], sql))
    versions = [migration.version for migration in found]
    if versions != list(range(1, len(found) + 1)):
        raise ValueError(f"migrations must be numbered 1, 2, 3 … without gaps, found {versions}")
    return tuple(found)


def current_version(connection: sqlite3.Connection) -> int | None:
    """The schema version of the database; 0 if it is empty, None if it isn't one of ours."""
    tables = {row[0] for row in connection.execute("SELECT name FROM sqlite_schema")}
    if not tables:
        return 0
    if "schema_version" not in tables:
        return None
    return int(
        connection.execute("SELECT coalesce(max(version), 0) FROM schema_version").fetchone()[0]
    )


def refuse_unknown(connection: sqlite3.Connection, path: Path, known: int) -> int:
    """The current version, if this version of agentsup may open the file.

    Raises ``SchemaTooNew`` for one above ``known`` and ``StoreUnavailable`` for a foreign database.
    """
    version = current_version(connection)
    if version is None:
        raise unavailable(StoreFault.FOREIGN, path)
    if version > known:
        raise SchemaTooNew(
            f"{path} has schema {version}, this agentsup knows schemas up to {known}. Install the "
            "version that wrote it (or a newer one), or restore a backup made before that upgrade.",
            path=str(path),
            found=version,
            known=known,
        )
    return version


def migrate(
    connection: sqlite3.Connection,
    migrations: Sequence[Migration],
    *,
    now_ms: Callable[[], int],
) -> int:
    """Bring the database up to the last of ``migrations``; returns how many were applied.

    Raises ``sqlite3.Error`` with a note that names the file; the database is then at the version
    before it. ``now_ms`` gives the wall time that is recorded.
    """
    connection.executescript(f"BEGIN IMMEDIATE; {_OWN_TABLES} COMMIT;")
    version = current_version(connection)
    pending = [migration for migration in migrations if migration.version > (version or 0)]
    if not pending:
        return 0
    # Rebuilding a table needs foreign keys off, which SQLite ignores inside a transaction.
    connection.execute("PRAGMA foreign_keys = OFF")
    try:
        for migration in pending:
            try:
                _apply(connection, migration, now_ms())
            except sqlite3.Error as error:
                error.add_note(f"in migration {migration.version:04}_{migration.name}.sql")
                raise
            finally:
                if connection.in_transaction:
                    connection.execute("ROLLBACK")
    finally:
        connection.execute("PRAGMA foreign_keys = ON")
    return len(pending)


def _apply(connection: sqlite3.Connection, migration: Migration, applied_at: int) -> None:
    connection.executescript("BEGIN IMMEDIATE;\n" + migration.sql)
    if not connection.in_transaction:
        raise sqlite3.ProgrammingError("a migration must not end its own transaction")
    broken = connection.execute("PRAGMA foreign_key_check").fetchone()
    if broken is not None:
        raise sqlite3.IntegrityError(f"rows of {broken[0]} refer to missing rows of {broken[2]}")
    connection.execute(
        "INSERT INTO schema_version (version, name, applied_at) VALUES (?, ?, ?)",
        (migration.version, migration.name, applied_at),
    )
    faults.point("store.before_commit")
    connection.execute("COMMIT")
    faults.point("store.after_commit")


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
