"""The meaning of SQLite's errors: the condition, a sentence with a remedy, and an error type.

A *condition* (disk full, read-only, broken disk) concerns every writer, so it becomes
``StoreUnavailable`` or ``StoreCorrupt``. Everything else (a violated constraint, wrong SQL) is an
error of the function that ran it and is passed on unchanged. Serves P1 and P9.
"""

from __future__ import annotations

import errno
import sqlite3
from collections.abc import Callable
from enum import StrEnum
from pathlib import Path

from agentsup.model.errors import AgentsupError, StoreCorrupt, StoreUnavailable


class StoreFault(StrEnum):
    """Why the store can't work now; the fact ``reason`` of ``StoreUnavailable``."""

    FULL = "disk_full"
    READ_ONLY = "read_only"
    NOT_OPENED = "cannot_open"
    IO_ERROR = "io_error"
    BUSY = "busy"
    MEMORY = "out_of_memory"
    REPLACED = "file_replaced"
    FOREIGN = "foreign_file"
    BROKEN_BATCH = "broken_batch"
    CLOSED = "closed"
    STOPPED = "writer_stopped"


_OVER = frozenset({StoreFault.CLOSED.value, StoreFault.STOPPED.value})


def is_over(error: Exception) -> bool:
    """Whether the store is closed for good, so that waiting for it is of no use."""
    return isinstance(error, AgentsupError) and error.facts.get("reason") in _OVER


_SENTENCES: dict[StoreFault, str] = {
    StoreFault.FULL: (
        "The disk that holds {path} is full; nothing was stored. "
        "Free some space there: writing resumes by itself."
    ),
    StoreFault.READ_ONLY: (
        "{path} can't be written (read-only file, directory or file system); nothing was stored. "
        "Make it writable for this user: writing resumes by itself."
    ),
    StoreFault.NOT_OPENED: (
        "{path} can't be opened. Check that its directory exists and that this user may read and "
        "write there."
    ),
    StoreFault.IO_ERROR: (
        "The disk reported an error on {path}; nothing was stored. "
        "Look at the system log for this disk; writing resumes when it works again."
    ),
    StoreFault.BUSY: (
        "Another program holds a lock on {path}; nothing was stored. "
        "Close it (often a database browser or a second daemon): writing resumes by itself."
    ),
    StoreFault.MEMORY: (
        "The system has no memory left to write {path}; nothing was stored. Free some memory."
    ),
    StoreFault.REPLACED: (
        "{path} was removed or replaced while it was open; nothing was stored. "
        "Put the original file back, or restart the daemon to use the file that is there now."
    ),
    StoreFault.FOREIGN: (
        "{path} is a database of another program: it has tables but no schema version of ours. "
        "Use another home or move that file away."
    ),
    StoreFault.BROKEN_BATCH: (
        "A function ended the shared transaction on {path}; nothing of its batch is confirmed."
    ),
    StoreFault.CLOSED: "{path} is closed: the daemon is shutting down. Try again after its restart.",
    StoreFault.STOPPED: (
        "The writer of {path} has stopped: the last change may be stored or not, later ones are not. "
        "Restart the daemon and report this."
    ),
}

_CONDITIONS: dict[int, StoreFault] = {
    sqlite3.SQLITE_FULL: StoreFault.FULL,
    # No space for the WAL's shared memory; its primary code alone would mean a broken disk.
    sqlite3.SQLITE_IOERR_SHMSIZE: StoreFault.FULL,
    sqlite3.SQLITE_READONLY: StoreFault.READ_ONLY,
    sqlite3.SQLITE_PERM: StoreFault.READ_ONLY,
    sqlite3.SQLITE_CANTOPEN: StoreFault.NOT_OPENED,
    sqlite3.SQLITE_IOERR: StoreFault.IO_ERROR,
    sqlite3.SQLITE_BUSY: StoreFault.BUSY,
    sqlite3.SQLITE_LOCKED: StoreFault.BUSY,
    sqlite3.SQLITE_PROTOCOL: StoreFault.BUSY,
    sqlite3.SQLITE_NOMEM: StoreFault.MEMORY,
}

_DAMAGE = frozenset({sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB})

_PRIMARY_CODE = 0xFF  # the low byte of an extended result code


def unavailable(fault: StoreFault, path: Path, detail: str = "") -> StoreUnavailable:
    """A ``StoreUnavailable`` for ``fault`` with its remedy; ``detail`` is SQLite's own text."""
    sentence = _SENTENCES[fault].format(path=path)
    if detail:
        sentence = f"{sentence} ({detail})"
    return StoreUnavailable(sentence, reason=fault.value, path=str(path))


def of_system(
    error: OSError, path: Path, otherwise: StoreFault = StoreFault.IO_ERROR
) -> StoreUnavailable:
    """The ``StoreUnavailable`` for an OS error on ``path``: a full disk, or ``otherwise``."""
    is_full = error.errno in {errno.ENOSPC, errno.EDQUOT}
    return unavailable(StoreFault.FULL if is_full else otherwise, path, str(error))


def corrupt(path: Path, findings: str, last_good: Path | None) -> StoreCorrupt:
    """A ``StoreCorrupt`` that says how to continue from the newest backup, if there is one."""
    if last_good is None:
        remedy = (
            f"There is no backup. Keep a copy of {path}, try `sqlite3 {path} .recover`, "
            "or move it away to start empty."
        )
    else:
        remedy = (
            f"The last good backup is {last_good}. `agentsup --home {path.parent} restore` goes back "
            "to it."
        )
    return StoreCorrupt(
        f"{path} is damaged and was not opened ({findings}). {remedy}",
        path=str(path),
        findings=findings,
        last_good_backup=None if last_good is None else str(last_good),
    )


def condition_of(
    error: BaseException, path: Path, last_good: Callable[[], Path | None]
) -> AgentsupError | None:
    """The store-wide condition behind ``error``, or None if it is the caller's own error.

    ``last_good`` finds the newest backup; it is called only for a damaged file.
    """
    if not isinstance(error, sqlite3.Error):
        return None
    code: int | None = getattr(error, "sqlite_errorcode", None)
    if code is None:
        return None
    primary = code & _PRIMARY_CODE
    if primary in _DAMAGE:
        return corrupt(path, str(error), last_good())
    fault = _CONDITIONS.get(code) or _CONDITIONS.get(primary)
    return None if fault is None else unavailable(fault, path, str(error))


def again(error: AgentsupError) -> AgentsupError:
    """A copy of the error for another caller: one instance would mix their tracebacks."""
    copy = type(error)(error.message, **error.facts)
    copy.__cause__ = error.__cause__
    return copy
