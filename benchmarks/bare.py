"""Bare SQLite with the store's pragmas and nothing of its code: what a durable commit costs here."""

from __future__ import annotations

import asyncio
import sqlite3
from pathlib import Path
from time import perf_counter
from types import TracebackType
from typing import Self

BODY = "x" * 900
"""About what a message of a person has."""


class BareTable:
    """One table with two indexes and rows of about 1 kB. Runs in a thread, timed there."""

    def __init__(self, path: Path) -> None:
        self._connection = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
        self._connection.executescript(
            "PRAGMA journal_mode = WAL; PRAGMA synchronous = FULL;"
            "CREATE TABLE rows (id INTEGER PRIMARY KEY, name TEXT UNIQUE, state TEXT, body TEXT);"
            "CREATE INDEX rows_state ON rows (state, id);"
        )
        self._next = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._connection.close()

    async def commits_ms(self, count: int, *, rows: int = 1) -> list[float]:
        """``count`` transactions of ``rows`` rows; how long each took, in ms."""
        return await asyncio.to_thread(self._commits_ms, count, rows)

    def _commits_ms(self, count: int, rows: int) -> list[float]:
        took = []
        for _ in range(count):
            began_s = perf_counter()
            self._connection.execute("BEGIN IMMEDIATE")
            for _ in range(rows):
                self._next += 1
                self._connection.execute(
                    "INSERT INTO rows (name, state, body) VALUES (?, 'queued', ?)",
                    (f"row_{self._next:020}", BODY),
                )
            self._connection.execute("COMMIT")
            took.append((perf_counter() - began_s) * 1_000)
        return took
