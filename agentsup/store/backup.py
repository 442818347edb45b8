"""Backups: a consistent copy by `VACUUM INTO`, checked before it takes its name.

A file with a backup's final name is complete, passed `quick_check` and is on the disk. Older ones
are removed only after a newer one stands. Everything here blocks and runs off the loop.
"""

import contextlib
import os
import sqlite3
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path

from agentsup.store import integrity
from agentsup.store.failures import corrupt

__all__ = ["backups", "copy_into", "latest", "taken_at"]

_STAMP = "%Y%m%dT%H%M%S.%f"
_PARTIAL = ".partial"


def backups(directory: Path) -> list[Path]:
    """The finished backups in `directory`, oldest first."""
    return sorted(path for path in directory.glob("state-*.db") if taken_at(path) is not None)


def latest(directory: Path) -> Path | None:
    """The newest finished backup, or None."""
    return next(reversed(backups(directory)), None)


def taken_at(backup: Path) -> int | None:
    """The wall time in ms at which `backup` was taken, read from its name; None if unreadable."""
    text = backup.stem.removeprefix("state-").removesuffix("Z")
    try:
        moment = datetime.strptime(text, _STAMP).replace(tzinfo=UTC)
    except ValueError:
        return None
    return round(moment.timestamp() * 1000)


def copy_into(
    connection: sqlite3.Connection, source: Path, directory: Path, *, at_ms: int, keep: int
) -> Path:
    """Write a backup named after `at_ms`, keep the newest `keep` and return its path.

    `connection` must be outside a transaction and not `query_only`; it is only read from. Raises
    `OSError` or `sqlite3.Error` when the copy could not be written and `StoreCorrupt` when it
    failed its check; then no file of it is left and the older backups stand.
    """
    directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    for leftover in directory.glob(f"*{_PARTIAL}*"):
        leftover.unlink()  # of a process that was killed while it wrote
    stamp = datetime.fromtimestamp(at_ms / 1000, UTC).strftime(_STAMP)[:-3]
    target = directory / f"state-{stamp}Z.db"
    partial = directory / (target.name + _PARTIAL)
    try:
        # Created empty first: VACUUM INTO accepts that and would otherwise use the umask.
        os.close(os.open(partial, os.O_CREAT | os.O_EXCL | os.O_RDWR | os.O_CLOEXEC, 0o600))
        connection.execute("VACUUM INTO ?", (str(partial),))
        _check_copy(partial, source, latest(directory))
        _sync(partial)
        partial.replace(target)
        _sync(directory)
    except BaseException:
        with contextlib.suppress(OSError):
            partial.unlink()
        raise
    for old in backups(directory)[: -max(1, keep)]:
        old.unlink()
    return target


def _check_copy(copy: Path, source: Path, last_good: Path | None) -> None:
    with closing(sqlite3.connect(copy)) as connection:
        complaint = integrity.findings(connection)
    if complaint:
        raise corrupt(source, f"its backup failed the check: {complaint}", last_good)


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
