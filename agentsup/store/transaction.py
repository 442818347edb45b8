"""The objects that functions work with: ``Tx`` in the writer, ``Reader`` in reads.

A ``Tx`` is one function's savepoint inside a shared commit; it is valid while that function runs.
"""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import fields
from functools import cache, lru_cache
from typing import Any, TypeVar

T = TypeVar("T")
Params = Sequence[Any] | Mapping[str, Any]

# These would end or bypass the transaction that other callers share.
_CONTROL = re.compile(
    r"\s*(?:BEGIN|COMMIT|END|ROLLBACK|SAVEPOINT|RELEASE|ATTACH|DETACH|VACUUM)\b", re.IGNORECASE
)


@lru_cache(maxsize=1024)
def _is_control(sql: str) -> bool:
    """Whether ``sql`` would end the shared transaction. Cached, because texts are few."""
    return _CONTROL.match(sql) is not None


def _storable(params: Params) -> Params:
    """``params`` with lone surrogates replaced, as UTF-8 can't encode them.

    The API and the channels refuse or correct such texts. One that slips through, for instance in
    an error's text, must not prevent the row that reports it.
    """
    if isinstance(params, Mapping):
        return {name: _text(value) for name, value in params.items()}
    return [_text(value) for value in params]


def _text(value: Any) -> Any:
    return value.encode("utf-8", "replace").decode() if isinstance(value, str) else value


def from_row(kind: Callable[..., T], row: Any, /, **converted: Any) -> T:
    """A dataclass from the row's columns of the same names; ``converted`` are its other fields."""
    # A row finds a column by comparing names, so all are taken at once.
    values = dict(zip(row.keys(), row, strict=True)) | converted
    return kind(**{name: values[name] for name in _names(kind)})


def values_of(value: Any) -> dict[str, Any]:
    """The fields of a dataclass by name, as parameters of a statement that uses some of them.

    Unlike ``dataclasses.asdict`` it copies nothing.
    """
    return {name: getattr(value, name) for name in _names(value.__class__)}


@cache
def _names(kind: Any) -> tuple[str, ...]:
    return tuple(field.name for field in fields(kind))


def is_of_store(error: Exception) -> bool:
    """Whether the error may concern the whole store, such as a full disk, and not one row alone."""
    return isinstance(error, sqlite3.Error) and not isinstance(error, sqlite3.IntegrityError)


class Reader:
    """Queries over one snapshot of the database; writing raises ``sqlite3.OperationalError``."""

    __slots__ = ("_connection",)

    def __init__(self, connection: sqlite3.Connection) -> None:
        """Use ``connection`` until ``end`` is called."""
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

    def value(self, make: Callable[[Any], T], sql: str, params: Params = ()) -> T | None:
        """The result of ``make`` for the first row, or None if there is no row."""
        row = self.one(sql, params)
        return None if row is None else make(row)

    def values(self, make: Callable[[Any], T], sql: str, params: Params = ()) -> list[T]:
        """The results of ``make`` for all rows."""
        return [make(row) for row in self.all(sql, params)]

    def scalar(self, sql: str, params: Params = ()) -> Any:
        """The first column of the first row, or None if there is no row."""
        row = self.execute(sql, params).fetchone()
        return None if row is None else row[0]

    def end(self) -> None:
        """Make every later use an error; called by the store when the function has returned."""
        self._connection = None


class Tx(Reader):
    """One function's part of a shared commit, with its own savepoint and callbacks."""

    __slots__ = ("_callbacks", "_topics", "_undos")

    def __init__(self, connection: sqlite3.Connection) -> None:
        """Use ``connection`` until ``end`` is called."""
        super().__init__(connection)
        self._callbacks: list[Callable[[], None]] = []
        self._topics: dict[str, Callable[[], Any] | None] = {}
        self._undos: list[Callable[[], None]] = []

    def execute(self, sql: str, params: Params = ()) -> sqlite3.Cursor:
        """Run one statement. Raises ``ValueError`` if it would end the shared transaction."""
        if _is_control(sql):
            raise ValueError(f"transactions belong to the store; a function may not run {sql!r}")
        return super().execute(sql, params)

    def executemany(self, sql: str, rows: Iterable[Params]) -> sqlite3.Cursor:
        """Run one statement for each of ``rows``."""
        if _is_control(sql):
            raise ValueError(f"transactions belong to the store; a function may not run {sql!r}")
        return self._live.executemany(sql, rows)

    def after_commit(self, callback: Callable[[], None]) -> None:
        """Run ``callback`` in the loop's thread once this change is durable.

        Callbacks run in order, before ``write`` returns to its caller, and also if that caller was
        cancelled meanwhile; never after a rollback. They must not block or raise.
        """
        if self._connection is None:
            raise RuntimeError("after_commit must be called before the function returns")
        self._callbacks.append(callback)

    def after_rollback(self, callback: Callable[[], None]) -> None:
        """Run ``callback`` in the writer's thread if this change is rolled back, before any other
        function runs: for state in memory that must match the rows. It must not raise."""
        if self._connection is None:
            raise RuntimeError("after_rollback must be called before the function returns")
        self._undos.append(callback)

    def touch(self, topic: str, value: Callable[[], Any] | None = None) -> None:
        """Wake the listeners of ``topic`` once this change is durable; only once per commit.

        ``value`` makes what those get who expect the topic (``Database.expect``); it is called only
        if somebody does.
        """
        if self._connection is None:
            raise RuntimeError("touch must be called before the function returns")
        self._topics[topic] = value or self._topics.get(topic)

    def untouch(self, topic: str) -> None:
        """Take back what this function touched: the same function did what a listener would do."""
        self._topics.pop(topic, None)

    def attempt(self, fn: Callable[[Tx], T]) -> T:
        """Return ``fn(tx)``. If it raises, its own changes are undone, and only those.

        For work that may fail without harm to the rest of the function.
        """
        tx = Tx(self._live)
        self._live.execute("SAVEPOINT attempt")
        try:
            result = fn(tx)
        except BaseException:
            if self._live.in_transaction:  # SQLite ends it by itself on some errors (full disk)
                self._live.execute("ROLLBACK TO attempt")
                self._live.execute("RELEASE attempt")
            tx.undo()
            raise
        finally:
            tx.end()
        self._live.execute("RELEASE attempt")
        self._callbacks += tx.callbacks
        self._topics |= tx.topics
        self._undos += tx.undos
        return result

    @property
    def topics(self) -> Mapping[str, Callable[[], Any] | None]:
        """The topics of ``touch`` and their values, in order of first mention."""
        return self._topics

    def undo(self) -> None:
        """Run the callbacks of ``after_rollback`` once, the last first."""
        while self._undos:
            self._undos.pop()()

    @property
    def undos(self) -> list[Callable[[], None]]:
        """The callbacks of ``after_rollback``, in order."""
        return self._undos

    @property
    def callbacks(self) -> list[Callable[[], None]]:
        """The callbacks of ``after_commit``, in order."""
        return self._callbacks
