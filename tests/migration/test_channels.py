"""From schema 1 to 2 with data in it: what waited still waits, and knows how far it came."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from agentsup.store.migrate import migrate, packaged

ADD_PART = (
    "INSERT INTO outbox (message_id, agent_id, channel, conversation, part_no, kind, body, state,"
    " attempts, begun_boot, created_at) VALUES ('m', 'a', 'telegram', '7', ?, 'answer', '{}', ?,"
    " 2, ?, 5)"
)
NEW = {
    "buttons",
    "poll_offsets",
    "presses",
    "profiles",
    "question_ends",
    "streams",
    "updates",
}


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A database of schema 1 with two parts, one of them begun."""
    path = tmp_path / "state.db"
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        assert migrate(connection, packaged()[:1], now_ms=lambda: 1) == 1
        connection.execute(ADD_PART, (0, "delivered", ""))
        connection.execute(ADD_PART, (1, "pending", "boot1"))
    return path


def test_parts_of_an_older_schema_begin_at_their_first_piece(path: Path) -> None:
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        assert migrate(connection, packaged()[:2], now_ms=lambda: 2) == 1
        rows = connection.execute(
            "SELECT state, attempts, begun_boot, progress, doubts, platform_ids FROM outbox"
        ).fetchall()
        tables = {name for (name,) in connection.execute("SELECT name FROM sqlite_schema")}
        versions = connection.execute("SELECT version, name FROM schema_version").fetchall()
        check = connection.execute("PRAGMA quick_check").fetchall()
    assert rows == [("delivered", 2, "", 0, 0, "[]"), ("pending", 2, "boot1", 0, 0, "[]")]
    assert tables >= NEW
    assert versions == [(1, "core"), (2, "channels")]
    assert check == [("ok",)]


def test_an_update_is_kept_once_per_bot_and_run(path: Path) -> None:
    add = (
        "INSERT INTO updates (channel, bot_id, run, update_id, raw, state, at)"
        " VALUES ('telegram', ?, ?, 1, '{}', 'received', 3)"
    )
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        migrate(connection, packaged()[:2], now_ms=lambda: 2)
        for key in (("b1", 0), ("b2", 0), ("b1", 1)):
            connection.execute(add, key)
        with pytest.raises(sqlite3.IntegrityError, match="UNIQUE"):
            connection.execute(add, ("b1", 0))
