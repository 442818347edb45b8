"""Restoring a backup: it is checked before any change, and no file is deleted.

The present files are moved to a directory of their own below ``backups/``. Everything here blocks,
and needs the home's lock.
"""

from __future__ import annotations

import contextlib
import errno
import os
import shutil
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

from agentsup.model.errors import AgentsupError, NotFound, StoreCorrupt
from agentsup.store import backup, identity, migrate
from agentsup.store.connection import connect_reader, connect_unlogged
from agentsup.store.failures import condition_of
from agentsup.store.identity import RecordedIdentity

_PATIENCE_MS = 2_000


@dataclass(frozen=True, slots=True)
class Unfinished:
    """The content of a backup: when it was made (ms, or None if unknown), its number of messages,
    and how many of them have not ended."""

    made_at: int | None
    messages: int
    unfinished: int


def schema_of(store: Path) -> int:
    """The schema of a store that nobody has open. Raises ``SchemaTooNew`` if this version does not
    know it, ``StoreUnavailable``."""
    with _conditions_of(store), closing(connect_reader(store, busy_timeout_ms=0)) as connection:
        return migrate.refuse_unknown(connection, store, len(migrate.packaged()))


@dataclass(frozen=True, slots=True)
class Chosen:
    """A backup that passed its check, and the newer ones that failed it, with the reason."""

    path: Path
    holds: Unfinished
    passed_over: tuple[tuple[Path, str], ...] = ()


def choose(home: Path, given: str | None) -> Chosen:
    """The chosen backup: a name in ``backups/``, a path, or the newest that can be used.

    Raises ``NotFound``. For a given one, or if none can be used, also what ``unfinished`` raises.
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
    """Check the backup at ``chosen`` and return its content.

    Raises ``StoreCorrupt`` if it is damaged, ``SchemaTooNew`` and ``StoreUnavailable`` if this
    version can't use it.
    """
    log = chosen.with_name(chosen.name + "-wal")
    if log.exists() and log.stat().st_size:
        raise StoreCorrupt(
            f"{chosen} is no backup: {log.name} beside it holds a part of it. Copy the store with "
            "`agentsup backup`",
            path=str(chosen),
        )
    with _conditions_of(chosen), closing(connect_unlogged(chosen)) as connection:
        version = migrate.refuse_unknown(connection, chosen, len(migrate.packaged()))
        complaint = migrate.findings(connection)
        if complaint or not version:
            raise StoreCorrupt(
                f"{chosen} can't be restored: {complaint or 'there is nothing in it'}",
                path=str(chosen),
            )
        total, ended = connection.execute(
            "SELECT count(*), coalesce(sum(state IN ('done', 'dead', 'cancelled')), 0)"
            " FROM messages"
        ).fetchone()
        made_at = identity.describe(connection).copied_at or backup.taken_at(chosen)
        return Unfinished(made_at, total, total - ended)


def restore(store: Path, chosen: Path, *, at_ms: int) -> Path | None:
    """Replace ``store`` by a copy of the backup at ``chosen``, which ``unfinished`` has checked.

    Returns the directory of the old files; None if there were none.

    A log and an index beside the store are moved away with it, since they belong to that file
    alone. May be repeated after an interruption. Raises ``OSError``, ``StoreUnavailable``; then the
    old files are still in place, or together in ``backups/``.
    """
    past = identity.read_record(identity.path_beside(store))
    with _conditions_of(store), backup.whole_file(store, ".restoring") as fresh:
        shutil.copyfile(chosen, fresh)
        written = adopt(fresh, past, at_ms)
        backup.sync(fresh)
        beside = [store.with_name(store.name + suffix) for suffix in ("", "-wal", "-shm")]
        aside = identity.move_to_backups(beside, at_ms)
    identity.write(store, written)
    return aside


@contextlib.contextmanager
def _conditions_of(path: Path) -> Iterator[None]:
    """Raise a condition of the disk or the file as what it is, not as SQLite's error."""
    try:
        yield
    except sqlite3.Error as error:
        raise condition_of(error, path, lambda: None) or error from error


def adopt(fresh: Path, past: RecordedIdentity | None, at_ms: int) -> RecordedIdentity:
    """Turn the copy into the store; returns what ``identity.write`` must record of it.

    It gets a higher generation than any recorded one, so that no older file is taken for it, and
    event numbers that no client has seen.
    """
    with closing(sqlite3.connect(fresh, isolation_level=None)) as connection:
        connection.execute("PRAGMA journal_mode = DELETE")
        found = identity.describe(connection)
        generation = 1 + max(found.generation, past.generation if past else 0)
        sequence = max(found.sequence, past.sequence if past else 0)
        store_id = past.store_id if past and past.store_id else found.store_id
        connection.execute("BEGIN IMMEDIATE")
        connection.executemany(
            migrate.PUT_META,
            [("generation", str(generation)), ("store_id", store_id), ("clean", "0")],
        )
        connection.execute("DELETE FROM store_meta WHERE key = 'copied_at'")
        connection.execute(
            "UPDATE sqlite_sequence SET seq = ? WHERE name = 'events' AND seq < ?",
            (sequence, sequence),
        )
        connection.execute("COMMIT")
    return RecordedIdentity(store_id, generation, generation, sequence, at=at_ms)


def copy_to(store: Path, target: Path, *, at_ms: int) -> None:
    """Write a checked copy of the store, which may be in use, to the new file ``target``.

    The file gets its final name when it is complete and on the disk. Raises ``FileExistsError``,
    ``OSError``, ``StoreCorrupt``, ``StoreUnavailable``.
    """
    if target.exists():
        raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), str(target))
    with (
        _conditions_of(store),
        backup.whole_file(target) as partial,
        closing(connect_reader(store, busy_timeout_ms=_PATIENCE_MS)) as connection,
    ):
        backup.write_copy(connection, store, partial, at_ms=at_ms)
