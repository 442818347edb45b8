"""Backups: a consistent copy by ``VACUUM INTO``, checked before it gets its final name.

A file with a backup's final name is complete, passed ``quick_check`` and is flushed to the disk.
Older ones are removed only after a newer one is complete. Everything here blocks and runs off the
loop.
"""

from __future__ import annotations

import contextlib
import os
import re
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path

from agentsup.store import migrate
from agentsup.store.failures import corrupt
from agentsup.store.migrate import PUT_META

_STAMP = "%Y%m%dT%H%M%S.%f"
_NAME = re.compile(r"(?:state|hand)-([0-9T.]+)Z(?:-([0-9]+))?\.db")
_DAILY = "state-"
_BY_HAND = "hand-"
PARTIAL = ".partial"
"""The suffix of a backup that is being written."""


def backups(directory: Path) -> list[Path]:
    """The finished backups in ``directory``, daily and manual ones, in order of creation.

    The order is that of their numbers, whatever the clock said; backups of older versions of
    agentsup have no number and come first.
    """
    found = [path for path in directory.glob("*.db") if taken_at(path) is not None]
    return sorted(found, key=lambda path: (_number_of(path), path.name))


def latest(directory: Path) -> Path | None:
    """The newest finished backup, or None."""
    return next(reversed(backups(directory)), None)


def taken_at(backup: Path) -> int | None:
    """The wall time in ms at which ``backup`` was taken, read from its name; None if unreadable."""
    match = _NAME.fullmatch(backup.name)
    if match is None:
        return None
    try:
        moment = datetime.strptime(match[1], _STAMP).replace(tzinfo=UTC)
    except ValueError:
        return None
    return round(moment.timestamp() * 1000)


def stamp(at_ms: int) -> str:
    """A wall time in ms in the form used in file names."""
    return datetime.fromtimestamp(at_ms / 1000, UTC).strftime(_STAMP)[:-3] + "Z"


def by_hand(directory: Path, at_ms: int) -> Path:
    """The path for a backup that a person asked for. It is never removed for a newer one."""
    return _next(directory, _BY_HAND, at_ms)


def _next(directory: Path, kind: str, at_ms: int) -> Path:
    number = 1 + max(map(_number_of, backups(directory)), default=0)
    return directory / f"{kind}{stamp(at_ms)}-{number:06}.db"


def _number_of(backup: Path) -> int:
    match = _NAME.fullmatch(backup.name)
    return int(match[2] or 0) if match is not None else 0


def copy_into(
    connection: sqlite3.Connection, source: Path, directory: Path, *, at_ms: int, keep: int
) -> Path:
    """Write a backup named after ``at_ms``, keep the newest ``keep``, and return its path.

    ``connection`` must be outside a transaction and not ``query_only``; it is only read from.
    Raises ``OSError`` or ``sqlite3.Error`` if the copy could not be written and ``StoreCorrupt`` if
    it failed its check; then the copy is removed and the older backups stay. Only daily backups
    count for ``keep``.
    """
    directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    for leftover in directory.glob(f"*{PARTIAL}*"):
        leftover.unlink()  # of a process that was killed while it wrote
    target = _next(directory, _DAILY, at_ms)
    with whole_file(target) as partial:
        write_copy(connection, source, partial, at_ms=at_ms, last_good=latest(directory))
    daily = [path for path in backups(directory) if path.name.startswith(_DAILY)]
    for old in daily[: -max(1, keep)]:
        old.unlink()
    return target


@contextlib.contextmanager
def whole_file(target: Path, suffix: str = PARTIAL) -> Iterator[Path]:
    """An empty file beside ``target`` for the block, which becomes ``target`` at its end.

    It is removed if the block raises. Raises ``OSError``.
    """
    partial = target.with_name(target.name + suffix)
    partial.unlink(missing_ok=True)  # of a process that was killed
    try:
        # Created empty first: VACUUM INTO accepts that and would otherwise use the umask.
        os.close(os.open(partial, os.O_CREAT | os.O_EXCL | os.O_RDWR | os.O_CLOEXEC, 0o600))
        yield partial
        partial.replace(target)
        sync(target.parent)
    except BaseException:
        with contextlib.suppress(OSError):
            partial.unlink()
        raise


def write_copy(
    connection: sqlite3.Connection,
    source: Path,
    copy: Path,
    *,
    at_ms: int,
    last_good: Path | None = None,
) -> None:
    """Write a checked copy of the database of ``connection`` to the empty file ``copy``.

    Flushes it to the disk. The copy is marked as a copy, so that it is not used as the store by
    mistake. Raises as ``copy_into`` does; the caller must remove the file then.
    """
    connection.execute("VACUUM INTO ?", (str(copy),))
    with closing(sqlite3.connect(copy, isolation_level=None)) as written:
        complaint = migrate.findings(written)
        if complaint:
            raise corrupt(source, f"its backup failed the check: {complaint}", last_good)
        written.execute("PRAGMA journal_mode = DELETE")
        written.execute(PUT_META, ("copied_at", str(at_ms)))
    sync(copy)


def sync(path: Path) -> None:
    """Flush a file, or the entries of a directory, to the disk."""
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
