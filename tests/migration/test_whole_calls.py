"""From schema 18 to 19: approvals that were shown in part can only be denied, the rest goes on."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

from agentsup.store.migrate import migrate, packaged

ASK = (
    "INSERT INTO questions (question_id, agent_id, session_id, message_id, kind, text, options,"
    " state, asked_at, call_id, tool) VALUES (?, 'a', 's', 'm', ?, ?, '[\"once\",\"deny\"]', ?, 5,"
    " 'm:k:1', 'exec')"
)


def test_what_an_older_version_cut_is_known_as_such(tmp_path: Path) -> None:
    with closing(sqlite3.connect(tmp_path / "state.db", isolation_level=None)) as connection:
        migrate(connection, packaged()[:18], now_ms=lambda: 1)
        cut = "exec\n  command: xx … 203 characters not shown … yy"
        connection.execute(ASK, ("q_cut", "approval", cut, "open"))
        connection.execute(ASK, ("q_more", "approval", "exec\n  a: 1\n  … 1 more\n", "open"))
        connection.execute(ASK, ("q_whole", "approval", "exec\n  command: ls", "open"))
        connection.execute(ASK, ("q_other", "question", "… 1 more characters not shown", "open"))
        connection.execute(ASK, ("q_done", "approval", cut, "answered"))
        connection.execute(
            "INSERT INTO grants (grant_id, agent_id, tool, scope, message_id, question_id,"
            " granted_by, granted_at) VALUES ('g', 'a', 'exec', 'always', 'm', 'q_done', 'otto', 5)"
        )
        assert migrate(connection, packaged()[:19], now_ms=lambda: 2) == 1
        found = connection.execute(
            "SELECT question_id, whole <> '', digest, call FROM questions ORDER BY question_id"
        ).fetchall()
        grants = connection.execute("SELECT grant_id, pattern FROM grants").fetchall()
        check = connection.execute("PRAGMA quick_check").fetchall()
    assert found == [
        ("q_cut", 1, "", ""),
        ("q_done", 0, "", ""),
        ("q_more", 1, "", ""),
        ("q_other", 0, "", ""),
        ("q_whole", 0, "", ""),
    ]
    assert grants == [("g", "")]
    assert check == [("ok",)]
