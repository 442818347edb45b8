"""Schema versions: forward only, all or nothing each, a newer one refused, kills survived."""

from __future__ import annotations

import os
import signal
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest

from agentsup.kit.clock import SystemClock
from agentsup.model.errors import SchemaTooNew
from agentsup.store import Database, StoreOptions
from agentsup.store.backup import backups
from agentsup.store.migrate import current_version, load, migrate, packaged

ONE = "CREATE TABLE a (x INTEGER PRIMARY KEY) STRICT; INSERT INTO a VALUES (1), (2);"
TWO = """
-- A trigger holds semicolons of its own.
CREATE TABLE b (x INTEGER REFERENCES a (x), note TEXT DEFAULT 'a; b') STRICT;
CREATE TRIGGER a_to_b AFTER INSERT ON a BEGIN INSERT INTO b (x) VALUES (new.x); END;
INSERT INTO a VALUES (3);
"""


@pytest.fixture
def steps(tmp_path: Path) -> Path:
    directory = tmp_path / "steps"
    directory.mkdir()
    (directory / "0001_a.sql").write_text(ONE)
    return directory


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "state.db"


def connect(path: Path) -> sqlite3.Connection:
    return sqlite3.connect(path, isolation_level=None)


async def open_and_close(path: Path, steps: Path) -> None:
    options = StoreOptions(reserve_bytes=0)
    store = await Database.open(path, clock=SystemClock(), migrations=steps, options=options)
    await store.close()


def tables(path: Path) -> set[str]:
    with closing(connect(path)) as connection:
        rows = connection.execute("SELECT name FROM sqlite_schema WHERE type = 'table'")
        return {row[0] for row in rows} - {"schema_version", "store_meta"}


async def test_a_fresh_file_and_an_old_one_end_with_the_same_schema(
    tmp_path: Path, steps: Path
) -> None:
    old, fresh = tmp_path / "old" / "state.db", tmp_path / "fresh" / "state.db"
    for path in (old, fresh):
        path.parent.mkdir()
    await open_and_close(old, steps)
    (steps / "0002_b.sql").write_text(TWO)
    for path in (old, fresh):
        await open_and_close(path, steps)
        await open_and_close(path, steps)  # nothing to do the second time
    found = []
    for path in (old, fresh):
        with closing(connect(path)) as connection:
            schema = connection.execute("SELECT name, sql FROM sqlite_schema ORDER BY 1").fetchall()
            rows = connection.execute("SELECT x, note FROM b").fetchall()
            versions = connection.execute("SELECT version, name FROM schema_version").fetchall()
            found.append((schema, rows, versions))
    assert found[0] == found[1]
    assert found[0][1:] == ([(3, "a; b")], [(1, "a"), (2, "b")])


async def test_a_backup_is_taken_before_the_schema_of_existing_data_changes(
    path: Path, steps: Path
) -> None:
    await open_and_close(path, steps)
    assert backups(path.parent / "backups") == []
    (steps / "0002_b.sql").write_text(TWO)
    await open_and_close(path, steps)
    (backup,) = backups(path.parent / "backups")
    assert tables(backup) == {"a"}
    await open_and_close(path, steps)
    assert len(backups(path.parent / "backups")) == 1


async def test_a_newer_schema_is_refused_and_the_file_untouched(path: Path, steps: Path) -> None:
    (steps / "0002_b.sql").write_text(TWO)
    await open_and_close(path, steps)
    (steps / "0002_b.sql").unlink()
    before = path.read_bytes()
    with pytest.raises(
        SchemaTooNew, match="schema 2, this agentsup knows schemas up to 1"
    ) as error:
        await open_and_close(path, steps)
    assert (error.value.facts["found"], error.value.facts["known"]) == (2, 1)
    assert "Install the version that wrote it" in error.value.message
    assert path.read_bytes() == before


@pytest.mark.parametrize(
    "broken, complaint",
    [
        ("CREATE TABLE b (x); INSERT INTO nowhere VALUES (1);", "nowhere"),
        ("CREATE TABLE b (x REFERENCES a (x)); INSERT INTO b VALUES (99);", "missing rows of a"),
        ("CREATE TABLE b (x); COMMIT;", "must not end its own transaction"),
    ],
)
async def test_a_migration_that_fails_leaves_the_version_before_it(
    path: Path, steps: Path, broken: str, complaint: str
) -> None:
    await open_and_close(path, steps)
    (steps / "0002_broken.sql").write_text(broken)
    with pytest.raises(sqlite3.Error, match=complaint) as error:
        await open_and_close(path, steps)
    assert "in migration 0002_broken.sql" in error.value.__notes__
    with closing(connect(path)) as connection:
        assert current_version(connection) == 1


async def test_a_table_that_others_refer_to_can_be_rebuilt(path: Path, steps: Path) -> None:
    (steps / "0002_b.sql").write_text(TWO)
    await open_and_close(path, steps)
    (steps / "0003_rebuild.sql").write_text(
        "CREATE TABLE new_a (x INTEGER PRIMARY KEY, y TEXT NOT NULL DEFAULT '') STRICT;"
        "INSERT INTO new_a (x) SELECT x FROM a; DROP TABLE a; ALTER TABLE new_a RENAME TO a;"
    )
    await open_and_close(path, steps)
    with closing(connect(path)) as connection:
        assert connection.execute("SELECT count(*) FROM a JOIN b USING (x)").fetchone() == (1,)


def test_the_packaged_schema_applies_and_every_table_is_strict(path: Path) -> None:
    with closing(connect(path)) as connection:
        assert migrate(connection, packaged(), now_ms=lambda: 1) == len(packaged())
        assert migrate(connection, packaged(), now_ms=lambda: 2) == 0
        loose = connection.execute(
            "SELECT name FROM pragma_table_list WHERE schema = 'main' AND type = 'table' "
            "AND strict = 0 AND name NOT LIKE 'sqlite_%'"
        ).fetchall()
        assert loose == []
        assert connection.execute("PRAGMA foreign_key_check").fetchall() == []


# A child that migrates with SQL that can end its own process in the middle of a statement list.
CHILD = """
import os, signal, sqlite3, sys
from pathlib import Path
from agentsup.store.connection import connect_writer
from agentsup.store.migrate import load, migrate
connection = connect_writer(Path(sys.argv[1]), busy_timeout_ms=1000)
connection.create_function("die", 0, lambda: os.kill(os.getpid(), signal.SIGKILL))
migrate(connection, load(Path(sys.argv[2])), now_ms=lambda: 7)
"""


def run_child(path: Path, steps: Path, **env: str) -> int:
    command = [sys.executable, "-c", CHILD, str(path), str(steps)]
    return subprocess.run(command, check=False, timeout=15, env={**os.environ, **env}).returncode


@pytest.mark.parametrize("where", ["middle", "end"])
def test_killed_inside_a_migration_the_schema_is_the_one_before(
    path: Path, steps: Path, where: str
) -> None:
    assert run_child(path, steps) == 0
    killing = {
        "middle": "CREATE TABLE b (x); INSERT INTO a VALUES (9); SELECT die(); CREATE TABLE c (x);",
        "end": "CREATE TABLE b (x); INSERT INTO a VALUES (9); CREATE TABLE c (x); SELECT die();",
    }
    (steps / "0002_b.sql").write_text(killing[where])
    assert run_child(path, steps) == -signal.SIGKILL
    with closing(connect(path)) as connection:
        assert current_version(connection) == 1
        assert connection.execute("SELECT x FROM a").fetchall() == [(1,), (2,)]
        assert connection.execute("PRAGMA integrity_check").fetchone() == ("ok",)
    assert tables(path) == {"a"}
    (steps / "0002_b.sql").write_text(TWO)
    assert run_child(path, steps) == 0
    assert tables(path) == {"a", "b"}


@pytest.mark.parametrize("point, version", [("store.before_commit", 1), ("store.after_commit", 2)])
def test_killed_around_the_commit_of_a_migration(
    path: Path, steps: Path, point: str, version: int
) -> None:
    (steps / "0002_b.sql").write_text(TWO)
    assert run_child(path, steps, AGENTSUP_FAULT=f"{point}:2") == -signal.SIGKILL
    with closing(connect(path)) as connection:
        assert current_version(connection) == version
    assert run_child(path, steps) == 0
    with closing(connect(path)) as connection:
        assert current_version(connection) == 2
        assert connection.execute("SELECT x FROM b").fetchall() == [(3,)]
    assert len(load(steps)) == 2
