"""What is remembered of the store beside it, in `store.json`, so that its loss is noticed.

Written when the store is opened and closed, and now and then between; never with a commit. Everything
here blocks on the disk. See docs/decisions/0044-a-store-is-known-from-outside.md.
"""

from __future__ import annotations

import contextlib
import errno
import json
import logging
import sqlite3
import threading
from collections.abc import Callable
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from agentsup.kit.files import overwrite, write_atomic
from agentsup.store import backup, trust
from agentsup.store.connection import connect_unlogged
from agentsup.store.trust import Condition, Doubt, MainFile, Remembered

__all__ = ["StoreRecord", "describe", "put_aside", "remembered"]

_log = logging.getLogger(__name__)

_SIZE = 512
"""Bytes of the record: one sector of a disk."""
APPLIED = "applied"
"""The directory, beside the store, of the configuration that was applied last."""


class StoreRecord:
    """The record of the store at `store`. Used by the one process that has the store open."""

    def __init__(
        self,
        store: Path,
        *,
        now_ms: Callable[[], int],
        new_id: Callable[[], str],
        accept: bool = False,
    ) -> None:
        """`new_id` names a new store. With `accept` whatever is found is taken as the store."""
        self._store = store
        self._path = path_beside(store)
        self._now_ms = now_ms
        self._new_id = new_id
        self._accept = accept
        self._lock = threading.Lock()
        self._noted: Remembered | None = None
        self._is_over = False

    # -- a start -----------------------------------------------------------------------------------

    def check(self) -> Doubt | None:
        """Look at the file, which nobody has open; what was accepted of it, or None.

        Raises `StoreLost` where it is not the store that was there; `OSError`.
        """
        past = remembered(self._path)
        doubt = trust.before_opening(
            past,
            size=_size(self._store),
            log_bytes=_size(_log_of(self._store)) or 0,
            main=_unlogged(self._store),
            seen=self._is_seen(),
        )
        if doubt is not None:
            self._refuse(doubt, past)
        return doubt

    def begin(self) -> None:
        """`check`, and note that the file will be opened. Raises as that does."""
        doubt, past = self.check(), remembered(self._path)
        if doubt is not None:
            _log.warning("the store was taken as it is, as asked: %s", doubt.value)
            if doubt is not Doubt.WITHOUT_LOG:
                put_aside([_log_of(self._store), _index_of(self._store)], self._now_ms())
            past = None
        if past is None:
            past = Remembered("", 0, 0, 0, Condition.OPENING, 0)
        self._note(replace(past, condition=Condition.OPENING))

    def opened(self, connection: sqlite3.Connection) -> None:
        """Compare what the whole database says, count this start in it, and note both.

        Raises `StoreLost` as `begin` does.
        """
        assert self._noted is not None, "begin comes first"
        past, found = self._noted, describe(connection)
        doubt = trust.when_read(past, found)
        if doubt is not None:
            self._refuse(doubt, past)
            _log.warning("the store was taken as it is, as asked: %s", doubt.value)
            past = replace(past, generation=0, folded=0)
        generation = max(past.generation, found.generation) + 1
        store_id = found.store_id or self._new_id()
        connection.executemany(
            "INSERT INTO store_meta (key, value) VALUES (?, ?)"
            " ON CONFLICT (key) DO UPDATE SET value = excluded.value",
            [("store_id", store_id), ("generation", str(generation)), ("clean", "0")],
        )
        connection.execute("DELETE FROM store_meta WHERE key = 'copied_at'")
        # Once the file itself has this start, any older file in its place shows, whatever log is by it.
        is_busy = connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()[0]
        # So that there is a log from now on: without one it could not be missed.
        connection.execute(
            "INSERT INTO store_meta (key, value) VALUES ('opened_at', ?)"
            " ON CONFLICT (key) DO UPDATE SET value = excluded.value",
            (str(self._now_ms()),),
        )
        folded = past.folded if is_busy else generation
        self._note(
            Remembered(store_id, generation, folded, found.sequence, Condition.OPEN, self._now_ms())
        )

    def failed(self) -> None:
        """The opening did not succeed; the connection is closed again."""
        with self._lock:
            noted = self._noted
        if noted is not None and _size(_log_of(self._store)) and noted.generation:
            with contextlib.suppress(OSError):
                self._note(replace(noted, condition=Condition.OPEN))

    # -- between -----------------------------------------------------------------------------------

    def note(self, connection: sqlite3.Connection) -> None:
        """Note how far the store has come. Raises `OSError`, `sqlite3.Error`."""
        sequence = describe(connection).sequence
        with self._lock:
            noted = self._noted
            if self._is_over or noted is None or sequence <= noted.sequence:
                return
            self._write(replace(noted, sequence=sequence, at=self._now_ms()))

    def closed(self, sequence: int | None) -> None:
        """Note that the connections are closed; `sequence` where the file was marked as clean.

        May be repeated. What can't be noted is logged: the next start is stricter than it need be.
        """
        with self._lock:
            if self._is_over or self._noted is None:
                return
            self._is_over = True
            is_folded = not _size(_log_of(self._store))
            what = replace(
                self._noted,
                sequence=self._noted.sequence if sequence is None else sequence,
                folded=self._noted.generation if is_folded else self._noted.folded,
                condition=Condition.CLOSED if is_folded else Condition.OPENING,
                at=self._now_ms(),
            )
            try:
                self._write_last(what)
            except OSError as error:
                _log.warning("the end of %s could not be noted: %s", self._store, error)

    # -- inside ------------------------------------------------------------------------------------

    def _refuse(self, doubt: Doubt, past: Remembered | None) -> None:
        if self._accept:
            return
        newest = backup.latest(self._store.parent / "backups")
        last_good = None if newest is None else (newest, backup.taken_at(newest) or 0)
        raise trust.refusal(self._store, doubt, past, last_good)

    def _is_seen(self) -> bool:
        home = self._store.parent
        return backup.latest(home / "backups") is not None or (home / APPLIED).is_dir()

    def _note(self, what: Remembered) -> None:
        with self._lock:
            self._write(what)

    def _write(self, what: Remembered) -> None:
        write(self._store, what)
        self._noted = what

    def _write_last(self, what: Remembered) -> None:
        try:
            self._write(what)
        except OSError as error:
            if error.errno not in {errno.ENOSPC, errno.EDQUOT}:
                raise
            # No room for a second file, but the first one's block can be written over: a record
            # of a fixed size is one sector, which a power failure leaves old or new.
            overwrite(self._path, _encoded(what))
            self._noted = what


def path_beside(store: Path) -> Path:
    """Where the record of the store at `store` lies."""
    return store.with_name("store.json")


def remembered(path: Path) -> Remembered | None:
    """The record at `path`; None where there is none, or it can't be understood."""
    try:
        found = json.loads(path.read_bytes())
        return Remembered(
            str(found["store_id"]),
            int(found["generation"]),
            int(found["folded"]),
            int(found["sequence"]),
            Condition(found["condition"]),
            int(found["at"]),
        )
    except FileNotFoundError:
        return None
    except (ValueError, KeyError, TypeError) as error:
        _log.warning("%s can't be understood and counts for nothing: %s", path, error)
        return None


def write(store: Path, what: Remembered) -> None:
    """Replace the record of the store at `store`. Raises `OSError`."""
    write_atomic(path_beside(store), _encoded(what))


def _encoded(what: Remembered) -> bytes:
    """The record, filled up with spaces to `_SIZE` bytes, which is more than any needs."""
    return json.dumps(asdict(what)).encode().ljust(_SIZE - 1) + b"\n"


def describe(connection: sqlite3.Connection) -> MainFile:
    """What the database behind `connection` says of itself. Raises `sqlite3.Error`."""
    tables = {row[0] for row in connection.execute("SELECT name FROM sqlite_schema")}
    if "store_meta" not in tables:
        return MainFile("", 0, False)
    meta: dict[str, Any] = dict(
        tuple(row) for row in connection.execute("SELECT key, value FROM store_meta")
    )
    sequence = 0
    if "sqlite_sequence" in tables:
        row = connection.execute("SELECT seq FROM sqlite_sequence WHERE name = 'events'").fetchone()
        sequence = 0 if row is None else int(row[0])
    copied_at = meta.get("copied_at")
    return MainFile(
        meta.get("store_id", ""),
        int(meta.get("generation", 0)),
        meta.get("clean") == "1",
        None if copied_at is None else int(copied_at),
        sequence,
    )


def put_aside(paths: list[Path], at_ms: int) -> Path | None:
    """Move what exists of `paths` into a directory of their home's `backups/`; that directory."""
    there = [path for path in paths if path.exists()]
    if not there:
        return None
    target = there[0].parent / "backups" / f"aside-{backup.stamp(at_ms)}"
    target.mkdir(mode=0o700, parents=True)
    for path in there:
        path.rename(target / path.name)
    return target


def _unlogged(store: Path) -> MainFile | None:
    if not _size(store):
        return None
    try:
        with contextlib.closing(connect_unlogged(store)) as connection:
            return describe(connection)
    except (sqlite3.Error, ValueError):
        return None  # the opening itself tells what is wrong


def _size(path: Path) -> int | None:
    try:
        return path.stat().st_size
    except FileNotFoundError:
        return None


def _log_of(store: Path) -> Path:
    return store.with_name(store.name + "-wal")


def _index_of(store: Path) -> Path:
    return store.with_name(store.name + "-shm")
