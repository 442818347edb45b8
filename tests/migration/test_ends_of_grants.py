"""From schema 36 to 37: grants of before hold on, for everybody's work and without an end."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

from agentsup.store.migrate import migrate, packaged


def test_grants_of_before_hold_as_they_were_shown(tmp_path: Path) -> None:
    with closing(sqlite3.connect(tmp_path / "state.db", isolation_level=None)) as connection:
        migrate(connection, packaged()[:36], now_ms=lambda: 1)
        connection.execute(
            "INSERT INTO grants (grant_id, agent_id, tool, scope, message_id, question_id,"
            " granted_by, granted_at, pattern) VALUES"
            " ('g', 'a', 'exec', 'always', 'm', 'q', 'otto', 5, 'ls *')"
        )
        assert migrate(connection, packaged()[:37], now_ms=lambda: 2) == 1
        found = connection.execute(
            "SELECT pattern, workspace, person, until_at, last_used_at, uses FROM grants"
        ).fetchall()
        check = connection.execute("PRAGMA quick_check").fetchall()
    assert found == [("ls *", "", None, None, None, 0)]
    assert check == [("ok",)]
