"""What SQLite's errors mean for us: the condition, a sentence with a remedy, and an error type.

A *condition* (disk full, read-only, broken disk) concerns everyone who writes, so it becomes
`StoreUnavailable` or `StoreCorrupt`. Everything else (a violated constraint, wrong SQL) is the
mistake of the function that ran it and is passed on unchanged. Serves P1 and P9.
"""

import errno
import sqlite3
from collections.abc import Callable
from enum import StrEnum
from pathlib import Path

from agentsup.model.errors import AgentsupError, StoreCorrupt, StoreUnavailable

__all__ = ["Trouble", "again", "condition_of", "corrupt", "of_system", "unavailable"]


class Trouble(StrEnum):
    """Why the store can't work now; stands in the fact `reason` of `StoreUnavailable`."""

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


_SENTENCES: dict[Trouble, str] = {
    Trouble.FULL: (
        "The disk that holds {path} is full; nothing was stored. "
        "Free some space there: writing resumes by itself."
    ),
    Trouble.READ_ONLY: (
        "{path} can't be written (read-only file, directory or file system); nothing was stored. "
        "Make it writable for this user: writing resumes by itself."
    ),
    Trouble.NOT_OPENED: (
        "{path} can't be opened. Check that its directory exists and that this user may read and "
        "write there."
    ),
    Trouble.IO_ERROR: (
        "The disk reported an error on {path}; nothing was stored. "
        "Look at the system log for this disk; writing resumes when it works again."
    ),
    Trouble.BUSY: (
        "Another program holds a lock on {path}; nothing was stored. "
        "Close it (often a database browser or a second daemon): writing resumes by itself."
    ),
    Trouble.MEMORY: (
        "The system has no memory left to write {path}; nothing was stored. Free some memory."
    ),
    Trouble.REPLACED: (
        "{path} was removed or replaced while it was open; nothing was stored. "
        "Put the original file back, or restart the daemon to use the file that is there now."
    ),
    Trouble.FOREIGN: (
        "{path} is a database of another program: it has tables but no schema version of ours. "
        "Use another home or move that file away."
    ),
    Trouble.BROKEN_BATCH: (
        "A function ended the shared transaction on {path}; nothing of its batch is confirmed."
    ),
    Trouble.CLOSED: "{path} is closed: the daemon is shutting down. Try again after its restart.",
    Trouble.STOPPED: (
        "The writer of {path} has stopped: the last change may or may not stand, later ones don't. "
        "Restart the daemon and report this."
    ),
}

_CONDITIONS: dict[int, Trouble] = {
    sqlite3.SQLITE_FULL: Trouble.FULL,
    # No room for the memory that the WAL's readers share: by its primary code a broken disk.
    sqlite3.SQLITE_IOERR_SHMSIZE: Trouble.FULL,
    sqlite3.SQLITE_READONLY: Trouble.READ_ONLY,
    sqlite3.SQLITE_PERM: Trouble.READ_ONLY,
    sqlite3.SQLITE_CANTOPEN: Trouble.NOT_OPENED,
    sqlite3.SQLITE_IOERR: Trouble.IO_ERROR,
    sqlite3.SQLITE_BUSY: Trouble.BUSY,
    sqlite3.SQLITE_LOCKED: Trouble.BUSY,
    sqlite3.SQLITE_PROTOCOL: Trouble.BUSY,
    sqlite3.SQLITE_NOMEM: Trouble.MEMORY,
}

_DAMAGE = frozenset({sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB})

_PRIMARY_CODE = 0xFF  # the low byte of an extended result code


def unavailable(trouble: Trouble, path: Path, detail: str = "") -> StoreUnavailable:
    """A `StoreUnavailable` for `trouble` with its remedy; `detail` is SQLite's own wording."""
    sentence = _SENTENCES[trouble].format(path=path)
    if detail:
        sentence = f"{sentence} ({detail})"
    return StoreUnavailable(sentence, reason=trouble.value, path=str(path))


def of_system(
    error: OSError, path: Path, otherwise: Trouble = Trouble.IO_ERROR
) -> StoreUnavailable:
    """The `StoreUnavailable` for an error of the system on `path`: a full disk, or `otherwise`."""
    is_full = error.errno in {errno.ENOSPC, errno.EDQUOT}
    return unavailable(Trouble.FULL if is_full else otherwise, path, str(error))


def corrupt(path: Path, findings: str, last_good: Path | None) -> StoreCorrupt:
    """A `StoreCorrupt` that says how to go on from the newest backup, if there is one."""
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
    """The store-wide condition behind `error`, or None if it is the caller's own mistake.

    `last_good` finds the newest backup; it is called only for a damaged file.
    """
    if not isinstance(error, sqlite3.Error):
        return None
    code: int | None = getattr(error, "sqlite_errorcode", None)
    if code is None:
        return None
    primary = code & _PRIMARY_CODE
    if primary in _DAMAGE:
        return corrupt(path, str(error), last_good())
    trouble = _CONDITIONS.get(code) or _CONDITIONS.get(primary)
    return None if trouble is None else unavailable(trouble, path, str(error))


def again(error: AgentsupError) -> AgentsupError:
    """The same error for another caller: one instance raised twice would mix their tracebacks."""
    copy = type(error)(error.message, **error.facts)
    copy.__cause__ = error.__cause__
    return copy
