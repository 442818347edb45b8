"""An empty database of the present schema, made once per process and copied for each test.

Applying all migrations costs more than most tests that need a store. Tests of the store itself, and
processes of their own, let the daemon create its file.
"""

from __future__ import annotations

import sqlite3
import tempfile
from contextlib import closing
from functools import cache
from pathlib import Path

from agentsup.store import migrate


def lay_store(path: Path) -> Path:
    """Put a fresh database at ``path``, unless a file is there; returns ``path``."""
    if not path.exists():
        path.touch(mode=0o600)
        path.write_bytes(fresh_store())
    return path


@cache
def fresh_store() -> bytes:
    """The file as the first opening makes it and an orderly end leaves it."""
    with tempfile.TemporaryDirectory(prefix="agentsup-fresh-") as folder:
        path = Path(folder) / "state.db"
        with closing(sqlite3.connect(path, isolation_level=None)) as connection:
            connection.execute("PRAGMA journal_mode = WAL")
            migrate.migrate(connection, migrate.packaged(), now_ms=lambda: 0)
            migrate.mark(connection, clean=True)
        return path.read_bytes()
