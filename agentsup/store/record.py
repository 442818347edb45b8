"""The identity of the store outside the file, in ``store.json``, so that its loss is noticed.

Written when the store is opened and closed, and at intervals between; never with a commit.
Everything here blocks on the disk. See docs/decisions/0044-a-store-is-known-from-outside.md.
"""

from __future__ import annotations

import contextlib
import errno
import json
import sqlite3
import threading
from collections.abc import Callable
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from agentsup.kit.files import overwrite, write_atomic
from agentsup.kit.log import get_logger
from agentsup.store import backup, identity
from agentsup.store.connection import connect_unlogged
from agentsup.store.identity import IdentityDoubt, RecordedIdentity, StoreCondition, StoreFile
from agentsup.store.migrate import PUT_META

_log = get_logger(__name__)

_SIZE = 512
"""Size of the record in bytes: one sector of a disk."""
APPLIED = "applied"
"""The directory, beside the store, of the configuration that was applied last."""
UNPACKED = ".restoring"
"""The directory, beside the store, into which the archive of a home is unpacked."""


class StoreRecord:
    """The record of the store at ``store``. Used only by the process that has the store open."""

    def __init__(
        self,
        store: Path,
        *,
        now_ms: Callable[[], int],
        new_id: Callable[[], str],
        accept: bool = False,
    ) -> None:
        """``new_id`` names a new store. With ``accept`` any file is used as the store."""
        self._store = store
        self._path = path_beside(store)
        self._now_ms = now_ms
        self._new_id = new_id
        self._accept = accept
        self._lock = threading.Lock()
        self._noted: RecordedIdentity | None = None
        self._is_over = False

    # -- start -------------------------------------------------------------------------------------

    def check(self) -> IdentityDoubt | None:
        """Check the file, which no process has open. Returns the doubt that was accepted, or None.

        Raises ``StoreLost`` if it is not the recorded store; ``OSError``.
        """
        past = read_record(self._path)
        doubt = identity.before_opening(
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
        """``check``, and note that the file will be opened. Raises as ``check`` does."""
        doubt, past = self.check(), read_record(self._path)
        if doubt is not None:
            _log.warning(f"the store was taken as it is, as asked: {doubt.value}")
            if doubt is not IdentityDoubt.WITHOUT_LOG:
                move_to_backups([_log_of(self._store), _index_of(self._store)], self._now_ms())
            past = None
        if past is None:
            past = RecordedIdentity("", 0, 0, 0, StoreCondition.OPENING, 0)
        self._note(replace(past, condition=StoreCondition.OPENING))

    def opened(self, connection: sqlite3.Connection) -> None:
        """Check the identity of the whole database, count this start in it, and record both.

        Raises ``StoreLost`` as ``begin`` does.
        """
        assert self._noted is not None, "begin comes first"
        past, found = self._noted, describe(connection)
        doubt = identity.when_read(past, found)
        if doubt is not None:
            self._refuse(doubt, past)
            _log.warning(f"the store was taken as it is, as asked: {doubt.value}")
            past = replace(past, generation=0, folded=0)
        generation = max(past.generation, found.generation) + 1
        store_id = found.store_id or self._new_id()
        connection.executemany(
            PUT_META,
            [("store_id", store_id), ("generation", str(generation)), ("clean", "0")],
        )
        connection.execute("DELETE FROM store_meta WHERE key = 'copied_at'")
        # Once the file itself has this start, any older file is detected, whatever log lies beside
        # it.
        is_busy = connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()[0]
        # This writes a log from now on: without one, its loss could not be noticed.
        connection.execute(PUT_META, ("opened_at", str(self._now_ms())))
        folded = past.folded if is_busy else generation
        self._note(
            RecordedIdentity(
                store_id, generation, folded, found.sequence, StoreCondition.OPEN, self._now_ms()
            )
        )

    def failed(self) -> None:
        """Note that the opening failed; the connection is closed again."""
        with self._lock:
            noted = self._noted
        if noted is not None and _size(_log_of(self._store)) and noted.generation:
            with contextlib.suppress(OSError):
                self._note(replace(noted, condition=StoreCondition.OPEN))

    # -- running and end ---------------------------------------------------------------------------

    def note(self, connection: sqlite3.Connection) -> None:
        """Record the last event number. Raises ``OSError``, ``sqlite3.Error``."""
        sequence = describe(connection).sequence
        with self._lock:
            noted = self._noted
            if self._is_over or noted is None or sequence <= noted.sequence:
                return
            self._write(replace(noted, sequence=sequence, at=self._now_ms()))

    def closed(self, sequence: int | None) -> None:
        """Record that the connections are closed; ``sequence`` is given for a clean file.

        May be repeated. An error is logged: the next start is then stricter than necessary.
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
                condition=StoreCondition.CLOSED if is_folded else StoreCondition.OPENING,
                at=self._now_ms(),
            )
            try:
                self._write_last(what)
            except OSError as error:
                _log.warning(f"the end of {self._store} could not be noted: {error}")

    # -- inside ------------------------------------------------------------------------------------

    def _refuse(self, doubt: IdentityDoubt, past: RecordedIdentity | None) -> None:
        if self._accept:
            return
        newest = backup.latest(self._store.parent / "backups")
        last_good = None if newest is None else (newest, backup.taken_at(newest) or 0)
        is_cut = doubt is IdentityDoubt.MISSING and (self._store.parent / UNPACKED).is_dir()
        raise identity.refusal(self._store, doubt, past, last_good, is_cut=is_cut)

    def _is_seen(self) -> bool:
        home = self._store.parent
        return backup.latest(home / "backups") is not None or (home / APPLIED).is_dir()

    def _note(self, what: RecordedIdentity) -> None:
        with self._lock:
            self._write(what)

    def _write(self, what: RecordedIdentity) -> None:
        write(self._store, what)
        self._noted = what

    def _write_last(self, what: RecordedIdentity) -> None:
        try:
            self._write(what)
        except OSError as error:
            if error.errno not in {errno.ENOSPC, errno.EDQUOT}:
                raise
            # There is no room for a second file, but the first one's block can be overwritten: a
            # record of a fixed size is one sector, which a power failure leaves old or new.
            overwrite(self._path, _encoded(what))
            self._noted = what


def path_beside(store: Path) -> Path:
    """The path of the record of the store at ``store``."""
    return store.with_name("store.json")


def read_record(path: Path) -> RecordedIdentity | None:
    """The record at ``path``; None if there is none, or if it can't be parsed."""
    try:
        found = json.loads(path.read_bytes())
        return RecordedIdentity(
            str(found["store_id"]),
            int(found["generation"]),
            int(found["folded"]),
            int(found["sequence"]),
            StoreCondition(found["condition"]),
            int(found["at"]),
        )
    except FileNotFoundError:
        return None
    except (ValueError, KeyError, TypeError) as error:
        _log.warning(f"{path} can't be understood and counts for nothing: {error}")
        return None


def write(store: Path, what: RecordedIdentity) -> None:
    """Replace the record of the store at ``store``. Raises ``OSError``."""
    write_atomic(path_beside(store), _encoded(what))


def _encoded(what: RecordedIdentity) -> bytes:
    """The record, padded with spaces to ``_SIZE`` bytes, which is more than any record needs."""
    return json.dumps(asdict(what)).encode().ljust(_SIZE - 1) + b"\n"


def describe(connection: sqlite3.Connection) -> StoreFile:
    """The identity stored in the database behind ``connection``. Raises ``sqlite3.Error``."""
    tables = {row[0] for row in connection.execute("SELECT name FROM sqlite_schema")}
    if "store_meta" not in tables:
        return StoreFile("", 0, False)
    meta: dict[str, Any] = dict(
        tuple(row) for row in connection.execute("SELECT key, value FROM store_meta")
    )
    sequence = 0
    if "sqlite_sequence" in tables:
        row = connection.execute("SELECT seq FROM sqlite_sequence WHERE name = 'events'").fetchone()
        sequence = 0 if row is None else int(row[0])
    copied_at = meta.get("copied_at")
    return StoreFile(
        meta.get("store_id", ""),
        int(meta.get("generation", 0)),
        meta.get("clean") == "1",
        None if copied_at is None else int(copied_at),
        sequence,
    )


def move_to_backups(paths: list[Path], at_ms: int) -> Path | None:
    """Move the existing files of ``paths`` into a new directory in ``backups/``; returns it, or
    None."""
    there = [path for path in paths if path.exists()]
    if not there:
        return None
    target = there[0].parent / "backups" / f"aside-{backup.stamp(at_ms)}"
    target.mkdir(mode=0o700, parents=True)
    for path in there:
        path.rename(target / path.name)
    return target


def _unlogged(store: Path) -> StoreFile | None:
    if not _size(store):
        return None
    try:
        with contextlib.closing(connect_unlogged(store)) as connection:
            return describe(connection)
    except (sqlite3.Error, ValueError):
        return None  # the opening itself reports the error


def _size(path: Path) -> int | None:
    try:
        return path.stat().st_size
    except FileNotFoundError:
        return None


def _log_of(store: Path) -> Path:
    return store.with_name(store.name + "-wal")


def _index_of(store: Path) -> Path:
    return store.with_name(store.name + "-shm")
