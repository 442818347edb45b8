"""The identity of the store, also outside its file in ``store.json``, so that its loss is noticed.

A start compares both before SQLite opens the file, and again when the write-ahead log has been read.
With a store that is missing, older or without its log, work would be lost and finished work would be
done again (P1, P2). The record is written when the store is opened and closed, and at intervals
between; never with a commit. Everything here blocks on the disk. See
docs/decisions/0084-a-start-asks-three-things-of-its-store.md.
"""

from __future__ import annotations

import contextlib
import errno
import json
import sqlite3
import threading
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from enum import StrEnum
from pathlib import Path
from typing import Any

from agentsup.kit.files import overwrite, write_atomic
from agentsup.kit.log import get_logger
from agentsup.model.errors import StoreLost
from agentsup.store import backup
from agentsup.store.connection import connect_unlogged
from agentsup.store.migrate import PUT_META

_log = get_logger(__name__)

APPLIED = "applied"
"""The directory, beside the store, of the configuration that was applied last."""
_SIZE = 512
"""Size of the record in bytes: one sector of a disk."""
UNPACKED = ".restoring"
"""The directory, beside the store, into which the archive of a home is unpacked."""


class IdentityDoubt(StrEnum):
    """The defect of the present file; the fact ``reason`` of ``StoreLost``."""

    MISSING = "missing"
    OLDER = "older"
    WITHOUT_LOG = "without_log"


_LOST: dict[IdentityDoubt, str] = {
    IdentityDoubt.MISSING: "{path} is missing or empty, and this home had a store",
    IdentityDoubt.OLDER: "{path} is older than the store that was here, or another one",
    IdentityDoubt.WITHOUT_LOG: (
        "{path}-wal is missing: the daemon did not close the store, and the last changes stood there"
    ),
}


@dataclass(frozen=True, slots=True)
class RecordedIdentity:
    """The recorded identity. ``generation`` counts starts on this store; 0: none completed."""

    store_id: str = ""
    generation: int = 0
    folded: int = 0
    """The generation that is in the file itself, without its log."""
    sequence: int = 0
    """The last durable event number at that time."""
    has_log: bool = False
    """There is a log, unless the file is marked as cleanly closed."""
    at: int = 0
    """Wall time of the record in ms."""


@dataclass(frozen=True, slots=True)
class StoreFile:
    """The identity that the database itself holds, read without its log or with it."""

    store_id: str
    generation: int
    is_clean: bool
    copied_at: int | None = None
    """When this copy was made, in ms, if it is a backup."""
    sequence: int = 0


def doubt_before_opening(
    past: RecordedIdentity, *, size: int, log_bytes: int, main: StoreFile | None
) -> IdentityDoubt | None:
    """Why the file must not be opened, or None.

    Both sizes are 0 without a file. ``main`` is read without the log, None if it can't be read (the
    opening itself reports damage).
    """
    if not past.generation:
        return None
    if not size:
        return IdentityDoubt.MISSING
    if main is None:
        return None
    # SQLite would mix a backup with the log beside it.
    if _is_other(past, main) or main.generation < past.folded or main.copied_at is not None:
        return IdentityDoubt.OLDER
    is_whole = main.is_clean and main.generation >= past.generation
    return IdentityDoubt.WITHOUT_LOG if past.has_log and not (log_bytes or is_whole) else None


def doubt_when_read(past: RecordedIdentity, found: StoreFile) -> IdentityDoubt | None:
    """As ``doubt_before_opening``, for the database read together with its log."""
    is_older = found.generation < past.generation or found.sequence < past.sequence
    is_doubtful = past.generation > 0 and (is_older or _is_other(past, found))
    return IdentityDoubt.OLDER if is_doubtful else None


def _is_other(past: RecordedIdentity, found: StoreFile) -> bool:
    return bool(found.store_id) and found.store_id != past.store_id


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
        self._now_ms = now_ms
        self._new_id = new_id
        self._accept = accept
        self._lock = threading.Lock()
        self._noted = RecordedIdentity()
        self._is_over = False

    def check(self) -> IdentityDoubt | None:
        """Check the file, which no process has open. Returns the doubt that was accepted, or None.

        Raises ``StoreLost`` if it is not the recorded store; ``OSError``.
        """
        past = read_record(path_beside(self._store))
        size = _size(self._store)
        if past is None and not size and self._is_seen():
            return self._refuse(IdentityDoubt.MISSING, RecordedIdentity())
        past = past or RecordedIdentity()
        doubt = doubt_before_opening(
            past, size=size, log_bytes=_size(_log_of(self._store)), main=_unlogged(self._store)
        )
        return doubt and self._refuse(doubt, past)

    def begin(self) -> None:
        """``check``, and note that the file will be opened. Raises as ``check`` does."""
        doubt, past = self.check(), read_record(path_beside(self._store))
        if doubt is not None:
            past = None
            if doubt is not IdentityDoubt.WITHOUT_LOG:
                index = self._store.with_name(self._store.name + "-shm")
                move_to_backups([_log_of(self._store), index], self._now_ms())
        self._write(replace(past or RecordedIdentity(), has_log=False))

    def opened(self, connection: sqlite3.Connection) -> None:
        """Check the identity of the whole database, count this start in it, and record both.

        Raises ``StoreLost`` as ``begin`` does.
        """
        past, found = self._noted, describe(connection)
        doubt = doubt_when_read(past, found)
        if doubt is not None:
            self._refuse(doubt, past)
            past = RecordedIdentity()
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
        self._write(
            RecordedIdentity(store_id, generation, folded, found.sequence, True, self._now_ms())
        )

    def note(self, connection: sqlite3.Connection) -> None:
        """Record the last event number. Raises ``OSError``, ``sqlite3.Error``."""
        sequence = describe(connection).sequence
        with self._lock:
            if not self._is_over and sequence > self._noted.sequence:
                self._write(replace(self._noted, sequence=sequence, at=self._now_ms()))

    def closed(self, sequence: int | None) -> None:
        """Record that the connections are closed; ``sequence`` is given for a clean file.

        May be repeated. An error is logged: the next start is then stricter than necessary.
        """
        with self._lock:
            if self._is_over or not self._noted.generation:
                return
            self._is_over = True
            noted = self._noted
            is_folded = not _size(_log_of(self._store))
            what = replace(
                noted,
                sequence=noted.sequence if sequence is None else sequence,
                folded=noted.generation if is_folded else noted.folded,
                has_log=False,
                at=self._now_ms(),
            )
            try:
                self._write_last(what)
            except OSError as error:
                _log.warning(f"the end of {self._store} could not be noted: {error}")

    def _refuse(self, doubt: IdentityDoubt, past: RecordedIdentity) -> IdentityDoubt:
        """Raise ``StoreLost``, unless any file is accepted; returns the doubt then."""
        if not self._accept:
            raise refusal(self._store, doubt, past)
        _log.warning(f"the store was taken as it is, as asked: {doubt.value}")
        return doubt

    def _is_seen(self) -> bool:
        """Whether other files of the home show that there was a store."""
        home = self._store.parent
        return backup.latest(home / "backups") is not None or (home / APPLIED).is_dir()

    def _write(self, what: RecordedIdentity) -> None:
        write(self._store, what)
        self._noted = what

    def _write_last(self, what: RecordedIdentity) -> None:
        try:
            self._write(what)
        except OSError as error:
            if error.errno not in {errno.ENOSPC, errno.EDQUOT}:
                raise
            # Others took the room that the disk reserve left. There is none for a second file, but
            # the record is one sector, which can be overwritten: it is old or new after a power cut.
            overwrite(path_beside(self._store), _encoded(what))
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
            # Records of before 0084 have a condition in place of the flag.
            bool(found.get("has_log", found.get("condition") == "open")),
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


def refusal(path: Path, doubt: IdentityDoubt, past: RecordedIdentity) -> StoreLost:
    """A ``StoreLost`` that names what is missing, the newest backup, and both remedies."""
    command = f"agentsup --home {path.parent}"
    sentence = _LOST[doubt].format(path=path)
    if doubt is IdentityDoubt.MISSING and (path.parent / UNPACKED).is_dir():
        sentence += ": a restore of this home was interrupted, run it again with the same file"
    if past.at:
        sentence += f" (last seen whole at {clock_time(past.at)})"
    newest = backup.latest(path.parent / "backups")
    restore = "There is no backup in backups/."
    if newest is not None:
        restore = (
            f"The newest backup is {newest.name}, of {clock_time(backup.taken_at(newest) or 0)}: "
            f"`{command} restore` goes back to it."
        )
    accepted = "takes the file as it is: what it lacks is gone"
    if doubt is IdentityDoubt.MISSING:
        accepted = "starts with an empty store"
    return StoreLost(
        f"{sentence}; nothing was started. Put the right files back, if you have them. {restore} "
        f"`{command} run --accept-store` (or `up`) {accepted}, and finished work may be done again.",
        reason=doubt.value,
        path=str(path),
        last_good_backup=None if newest is None else str(newest),
    )


def clock_time(at_ms: int) -> str:
    """A wall time in ms as people read it, in UTC."""
    return datetime.fromtimestamp(at_ms / 1000, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")


def _unlogged(store: Path) -> StoreFile | None:
    if not _size(store):
        return None
    try:
        with contextlib.closing(connect_unlogged(store)) as connection:
            return describe(connection)
    except (sqlite3.Error, ValueError):
        return None  # the opening itself reports the error


def _size(path: Path) -> int:
    """The size of a file in bytes, 0 if there is none."""
    try:
        return path.stat().st_size
    except FileNotFoundError:
        return 0


def _log_of(store: Path) -> Path:
    return store.with_name(store.name + "-wal")
