"""What a function gets to work with: `Tx` in the writer, `Reader` beside it.

A `Tx` is one function's savepoint inside a shared commit; it lives as long as that function runs.
"""

import re
import sqlite3
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import lru_cache
from typing import Any

__all__ = ["Params", "Reader", "Tx"]

Params = Sequence[Any] | Mapping[str, Any]

_ROWS_MOST = 32
"""Most rows that one statement inserts."""

# These would end or bypass the transaction that other callers share.
_CONTROL = re.compile(
    r"\s*(?:BEGIN|COMMIT|END|ROLLBACK|SAVEPOINT|RELEASE|ATTACH|DETACH|VACUUM)\b", re.IGNORECASE
)


@lru_cache(maxsize=1024)
def _is_control(sql: str) -> bool:
    """Whether `sql` would end the shared transaction; remembered, because texts are few."""
    return _CONTROL.match(sql) is not None


def _storable(params: Params) -> Params:
    """`params` with lone surrogates replaced, as UTF-8 has no form for them.

    The edges refuse or mend such texts. What slips past them, in an error's text for instance,
    must not cost the row that tells of it.
    """
    if isinstance(params, Mapping):
        return {name: _text(value) for name, value in params.items()}
    return [_text(value) for value in params]


def _text(value: Any) -> Any:
    return value.encode("utf-8", "replace").decode() if isinstance(value, str) else value


class Reader:
    """Queries over one snapshot of the database; writing raises `sqlite3.OperationalError`."""

    __slots__ = ("_connection",)

    def __init__(self, connection: sqlite3.Connection) -> None:
        """Use `connection` until `end` is called."""
        self._connection: sqlite3.Connection | None = connection

    @property
    def _live(self) -> sqlite3.Connection:
        if self._connection is None:
            raise RuntimeError(
                "used after its function returned: a Tx or Reader is valid only inside the "
                "function given to write() or read()"
            )
        return self._connection

    def execute(self, sql: str, params: Params = ()) -> sqlite3.Cursor:
        """Run one statement; the cursor must be used up before the function returns."""
        try:
            return self._live.execute(sql, params)
        except UnicodeEncodeError:
            return self._live.execute(sql, _storable(params))

    def one(self, sql: str, params: Params = ()) -> sqlite3.Row | None:
        """The first row, or None."""
        row: sqlite3.Row | None = self.execute(sql, params).fetchone()
        return row

    def all(self, sql: str, params: Params = ()) -> list[sqlite3.Row]:
        """Every row."""
        return self.execute(sql, params).fetchall()

    def scalar(self, sql: str, params: Params = ()) -> Any:
        """The first column of the first row, or None if there is no row."""
        row = self.execute(sql, params).fetchone()
        return None if row is None else row[0]

    def end(self) -> None:
        """Make every later use an error; called by the store when the function has returned."""
        self._connection = None


class Tx(Reader):
    """One function's part of a shared commit: its own savepoint, its own callbacks."""

    __slots__ = ("_callbacks", "_topics", "_undos")

    def __init__(self, connection: sqlite3.Connection) -> None:
        """Use `connection` until `end` is called."""
        super().__init__(connection)
        self._callbacks: list[Callable[[], None]] = []
        self._topics: dict[str, None] = {}
        self._undos: list[Callable[[], None]] = []

    def execute(self, sql: str, params: Params = ()) -> sqlite3.Cursor:
        """Run one statement. Raises `ValueError` for one that would end the shared transaction."""
        if _is_control(sql):
            raise ValueError(f"transactions belong to the store; a function may not run {sql!r}")
        return super().execute(sql, params)

    def executemany(self, sql: str, rows: Iterable[Params]) -> sqlite3.Cursor:
        """Run one statement for each of `rows`."""
        if _is_control(sql):
            raise ValueError(f"transactions belong to the store; a function may not run {sql!r}")
        return self._live.executemany(sql, rows)

    def insert(self, sql: str, rows: Sequence[Sequence[Any]]) -> int:
        """Insert all of `rows`, several by one statement; returns how many were inserted.

        `sql` ends with the values of one row: `INSERT … VALUES (?, …)`. Rows go in in order.
        Much cheaper than one by one: a statement costs more than a row.
        """
        head, word, values = sql.rpartition("VALUES")
        if not word:
            raise ValueError(f"no values of one row stand at the end of {sql!r}")
        inserted = begin = 0
        while begin < len(rows):
            # Powers of two, so that there are few texts and each of them stays prepared.
            count = min(_ROWS_MOST, 1 << (len(rows) - begin).bit_length() - 1)
            text = f"{head}VALUES{values}{f',{values}' * (count - 1)}"
            part = rows[begin : begin + count]
            inserted += self.execute(text, [value for row in part for value in row]).rowcount
            begin += count
        return inserted

    def after_commit(self, callback: Callable[[], None]) -> None:
        """Run `callback` in the loop's thread once this change is durable.

        Callbacks run in order, before the caller of `write` is told, and also if that caller was
        cancelled meanwhile; never after a rollback. They must not block or raise.
        """
        if self._connection is None:
            raise RuntimeError("after_commit must be called before the function returns")
        self._callbacks.append(callback)

    def after_rollback(self, callback: Callable[[], None]) -> None:
        """Run `callback` in the writer's thread if this change does not stand, before any other
        function runs: for state in memory that moves together with rows. It must not raise.
        """
        if self._connection is None:
            raise RuntimeError("after_rollback must be called before the function returns")
        self._undos.append(callback)

    def touch(self, topic: str) -> None:
        """Wake those who listen to `topic` once this change is durable; once however often said."""
        if self._connection is None:
            raise RuntimeError("touch must be called before the function returns")
        self._topics[topic] = None

    @property
    def topics(self) -> tuple[str, ...]:
        """What `touch` collected, in order of first mention."""
        return tuple(self._topics)

    def undo(self) -> None:
        """Run what `after_rollback` collected, the last first, once."""
        while self._undos:
            self._undos.pop()()

    @property
    def callbacks(self) -> list[Callable[[], None]]:
        """What `after_commit` collected, in order."""
        return self._callbacks
