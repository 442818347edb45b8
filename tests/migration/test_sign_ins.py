"""From schema 25 to 26, and from 27 to 28: all sign-ins of before end, unused links stay."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from agentsup.store.migrate import migrate, packaged


@pytest.mark.parametrize("version, columns", [(26, "session_hash"), (28, "host, port")])
def test_sign_ins_of_before_end_and_unused_links_stay(
    tmp_path: Path, version: int, columns: str
) -> None:
    with closing(sqlite3.connect(tmp_path / "state.db", isolation_level=None)) as connection:
        migrate(connection, packaged()[: version - 1], now_ms=lambda: 1)
        connection.execute(
            "INSERT INTO web_sessions (session_hash, subject, bound_to, begun_at, seen_at)"
            " VALUES ('of before', 'anna', '', 1, 1)"
        )
        connection.execute(
            "INSERT INTO web_codes (code_hash, subject, made_at, expires_at)"
            " VALUES ('of a link', 'anna', 1, 2)"
        )
        assert migrate(connection, packaged()[:version], now_ms=lambda: 2) == 1
        sessions = connection.execute(f"SELECT {columns} FROM web_sessions").fetchall()
        links = connection.execute("SELECT code_hash FROM web_codes").fetchall()
    assert (sessions, links) == ([], [("of a link",)])
