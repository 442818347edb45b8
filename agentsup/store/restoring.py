"""Going back to a backup: checked before anything is touched, and nothing is thrown away.

The files that are there are moved to a directory of their own below `backups/`. Everything here
blocks, and needs the home's lock to be held.
"""

from __future__ import annotations

import contextlib
import errno
import os
import shutil
import sqlite3
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

from agentsup.model.errors import AgentsupError, NotFound, StoreCorrupt
from agentsup.store import backup, integrity, migrate, record
from agentsup.store.connection import connect_reader, connect_unlogged
from agentsup.store.failures import condition_of
from agentsup.store.trust import Condition, Remembered

__all__ = ["Chosen", "Restored", "Unfinished", "choose", "copy_to", "restore", "unfinished"]

_PATIENCE_MS = 2_000


@dataclass(frozen=True, slots=True)
class Unfinished:
    """What a backup holds: when it was made (ms, where that is known), its messages, and how many of
    them are not at their end in it."""

    made_at: int | None
    messages: int
    unfinished: int


@dataclass(frozen=True, slots=True)
class Restored:
    """What was done. `aside` holds the files that were there, None where there were none."""

    backup: Path
    aside: Path | None


@dataclass(frozen=True, slots=True)
class Chosen:
    """A backup that has passed its check, and the newer ones that have not, with the reason."""

    path: Path
    holds: Unfinished
    passed_over: tuple[tuple[Path, str], ...] = ()


def choose(home: Path, given: str | None) -> Chosen:
    """The backup that is meant: a name in `backups/`, a path, or the newest that can be used.

    Raises `NotFound`; for a named one, or where none can be used, what `unfinished` raises.
    """
    directory = home / "backups"
    if given is not None:
        path = _named(directory, given)
        return Chosen(path, unfinished(path))
    failed: list[tuple[Path, AgentsupError]] = []
    for path in reversed(backup.backups(directory)):
        try:
            holds = unfinished(path)
        except AgentsupError as error:
            failed.append((path, error))
            continue
        return Chosen(path, holds, tuple((each, str(why)) for each, why in failed))
    if failed:
        raise failed[0][1]
    raise NotFound(f"there is no backup in {directory}; name a file to restore")


def _named(directory: Path, given: str) -> Path:
    for path in (directory / given, Path(given).expanduser().absolute()):
        if path.is_file():
            return path
    known = ", ".join(path.name for path in reversed(backup.backups(directory))) or "none"
    raise NotFound(f"there is no backup {given}; in {directory} there are: {known}")


def unfinished(chosen: Path) -> Unfinished:
    """Check the backup at `chosen` and say what it holds.

    Raises `StoreCorrupt` where it is damaged, `SchemaTooNew` and `StoreUnavailable` where this version
    can't use it.
    """
    log = chosen.with_name(chosen.name + "-wal")
    if log.exists() and log.stat().st_size:
        raise StoreCorrupt(
            f"{chosen} is no backup: {log.name} beside it holds a part of it. Copy the store with "
            "`agentsup backup`",
            path=str(chosen),
        )
    try:
        with closing(connect_unlogged(chosen)) as connection:
            version = migrate.refuse_unknown(connection, chosen, len(migrate.packaged()))
            complaint = integrity.findings(connection)
            if complaint or not version:
                raise StoreCorrupt(
                    f"{chosen} can't be restored: {complaint or 'there is nothing in it'}",
                    path=str(chosen),
                )
            total, ended = connection.execute(
                "SELECT count(*), coalesce(sum(state IN ('done', 'dead', 'cancelled')), 0)"
                " FROM messages"
            ).fetchone()
            made_at = record.describe(connection).copied_at or backup.taken_at(chosen)
            return Unfinished(made_at, total, total - ended)
    except sqlite3.Error as error:
        raise condition_of(error, chosen, lambda: None) or error from error


def restore(store: Path, chosen: Path, *, at_ms: int) -> Restored:
    """Put a copy of the backup at `chosen` in the place of `store`; `unfinished` has checked it.

    A log and an index beside the store are moved away with it: they belong to that file alone. May be
    repeated after it was cut off. Raises `OSError`, `StoreUnavailable`; then the old files stand, or lie aside together.
    """
    past = record.remembered(record.path_beside(store))
    fresh = store.with_name(store.name + ".restoring")
    with contextlib.suppress(FileNotFoundError):
        fresh.unlink()
    descriptor = os.open(fresh, os.O_CREAT | os.O_EXCL | os.O_RDWR | os.O_CLOEXEC, 0o600)
    try:
        with os.fdopen(descriptor, "wb") as target, chosen.open("rb") as source:
            shutil.copyfileobj(source, target)
        written = _adopt(fresh, past, at_ms)
        backup.sync(fresh)
    except BaseException as error:
        fresh.unlink(missing_ok=True)
        full = condition_of(error, fresh, lambda: None)
        if full is not None:
            raise full from error
        raise
    beside = [store.with_name(store.name + suffix) for suffix in ("", "-wal", "-shm")]
    aside = record.put_aside(beside, at_ms)
    fresh.replace(store)
    backup.sync(store.parent)
    record.write(store, written)
    return Restored(chosen, aside)


def _adopt(fresh: Path, past: Remembered | None, at_ms: int) -> Remembered:
    """Let the copy go on as the store: newer than all that was noted, so that nothing older passes for
    it, and with event numbers that no client has seen."""
    with closing(sqlite3.connect(fresh, isolation_level=None)) as connection:
        connection.execute("PRAGMA journal_mode = DELETE")
        found = record.describe(connection)
        generation = 1 + max(found.generation, past.generation if past else 0)
        sequence = max(found.sequence, past.sequence if past else 0)
        store_id = past.store_id if past and past.store_id else found.store_id
        connection.execute("BEGIN IMMEDIATE")
        connection.executemany(
            "INSERT INTO store_meta (key, value) VALUES (?, ?)"
            " ON CONFLICT (key) DO UPDATE SET value = excluded.value",
            [("generation", str(generation)), ("store_id", store_id), ("clean", "0")],
        )
        connection.execute("DELETE FROM store_meta WHERE key = 'copied_at'")
        connection.execute(
            "UPDATE sqlite_sequence SET seq = ? WHERE name = 'events' AND seq < ?",
            (sequence, sequence),
        )
        connection.execute("COMMIT")
    return Remembered(store_id, generation, generation, sequence, Condition.CLOSED, at_ms)


def copy_to(store: Path, target: Path, *, at_ms: int) -> None:
    """Write a checked copy of the store, whoever uses it, to the new file `target`.

    The file takes its name when it is whole and on the disk. Raises `FileExistsError`, `OSError`,
    `StoreCorrupt`, `StoreUnavailable`.
    """
    if target.exists():
        raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), str(target))
    partial = target.with_name(target.name + backup.PARTIAL)
    partial.unlink(missing_ok=True)  # of a command that was killed
    try:
        os.close(os.open(partial, os.O_CREAT | os.O_EXCL | os.O_RDWR | os.O_CLOEXEC, 0o600))
        with closing(connect_reader(store, busy_timeout_ms=_PATIENCE_MS)) as connection:
            backup.write_copy(connection, store, partial, at_ms=at_ms)
        partial.replace(target)
        backup.sync(target.parent)
    except BaseException as error:
        with contextlib.suppress(OSError):
            partial.unlink()
        found: AgentsupError | None = condition_of(error, store, lambda: None)
        if found is not None:
            raise found from error
        raise
