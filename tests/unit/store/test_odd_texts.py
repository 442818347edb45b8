"""A text that UTF-8 has no form for costs a character, never the row."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from agentsup.store import Reader, Tx
from agentsup.store.connection import connect_writer


@pytest.fixture
def connection() -> Iterator[sqlite3.Connection]:
    with closing(sqlite3.connect(":memory:")) as opened:
        opened.execute("CREATE TABLE notes (id INTEGER, text TEXT) STRICT")
        yield opened


def test_half_a_surrogate_pair_is_replaced(connection: sqlite3.Connection) -> None:
    tx = Tx(connection)
    tx.execute("INSERT INTO notes VALUES (?, ?)", (1, "a \ud800 b"))
    tx.execute("INSERT INTO notes VALUES (:id, :text)", {"id": 2, "text": "\udfff"})
    rows = Reader(connection).all("SELECT * FROM notes WHERE text <> ? ORDER BY id", ("\ud800",))
    assert rows == [(1, "a ? b")]
    assert tx.scalar("SELECT text FROM notes WHERE id = 2") == "?"


def test_nul_and_everything_else_is_kept(connection: sqlite3.Connection) -> None:
    tx = Tx(connection)
    text = "a\0b \U0001f600 é ١"
    tx.execute("INSERT INTO notes VALUES (1, ?)", (text,))
    assert tx.scalar("SELECT text FROM notes") == text


def test_a_home_whose_name_is_no_utf8(tmp_path: Path) -> None:
    home = tmp_path / os.fsdecode(b"h\xff?#%")
    home.mkdir()
    connect_writer(home / "state.db", busy_timeout_ms=1).close()
    assert (home / "state.db").exists()
