"""``kill -9`` around the commits of an agent's memory: rows and index stay one."""

from __future__ import annotations

import os
import signal
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest

from tests.support.bound import BOUND_S
from tests.support.empty_store import lay_store

pytestmark = pytest.mark.process

WRITER = Path(__file__).with_name("memory_writer.py")
CHECK = "INSERT INTO memories_index (memories_index, rank) VALUES ('integrity-check', 1)"


@pytest.mark.parametrize("point", ["store.before_commit", "store.after_commit"])
def test_a_kill_at_a_commit_leaves_rows_and_index_as_one(tmp_path: Path, point: str) -> None:
    path, confirmed, killed = lay_store(tmp_path / "state.db"), set[str](), 0
    for boot, nth in (("a", 13), ("b", 3), ("c", 9), ("d", 21)):
        env = {**os.environ, "AGENTSUP_FAULT": f"{point}:{nth}"}
        done = subprocess.run(
            [sys.executable, str(WRITER), str(path), boot],
            env=env,
            stdout=subprocess.PIPE,
            timeout=BOUND_S,
            check=False,
        )
        killed += done.returncode == -signal.SIGKILL
        confirmed |= set(done.stdout.decode().splitlines())
        with closing(sqlite3.connect(path)) as connection:
            assert connection.execute("PRAGMA integrity_check").fetchone() == ("ok",)
            connection.execute(CHECK)
            rows = dict(connection.execute("SELECT key, content FROM memories"))
            pinned = {r[0] for r in connection.execute("SELECT key FROM memories WHERE pinned")}
            assert confirmed <= pinned
            for key, content in rows.items():
                number = key.split()[1]
                found = connection.execute(
                    "SELECT m.key FROM memories_index i JOIN memories m ON m.seq = i.rowid"
                    " WHERE memories_index MATCH ? AND m.key = ?",
                    (f'"{content.split()[0]}" AND "{number}"', key),
                ).fetchall()
                assert found == [(key,)]
    assert killed >= 3
    assert confirmed
