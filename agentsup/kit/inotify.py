"""Changes of the files in one directory, as Linux tells them (``inotify(7)``).

A file is told of when it is closed after writing, not at each write: a file that is kept open and
written all the time, as the log of a database, wakes nobody.
"""

from __future__ import annotations

import ctypes
import os
import sys
from pathlib import Path
from struct import Struct
from typing import Final, NamedTuple

_libc = ctypes.CDLL(None, use_errno=True) if sys.platform == "linux" else None

# linux/inotify.h
_ATTRIBUTES: Final = 0x4
_CLOSED: Final = 0x8  # after writing
_MOVED: Final = 0x40 | 0x80  # from here, to here
_CREATED: Final = 0x100
_DELETED: Final = 0x200
_SELF_GONE: Final = (
    0x400 | 0x800 | 0x2000 | 0x8000
)  # deleted, moved, unmounted, not watched any more
_ONLY_A_DIRECTORY: Final = 0x01000000
_WANTED: Final = (
    _ATTRIBUTES | _CLOSED | _MOVED | _CREATED | _DELETED | (0x400 | 0x800) | _ONLY_A_DIRECTORY
)
_EVENT: Final = Struct("iIII")
"""struct inotify_event without the name: watch, mask, cookie, length of the name."""
_MOST_BYTES: Final = 64 * 1024


class Change(NamedTuple):
    """One change: the name of the file, empty for the directory itself or for anything at all."""

    name: str
    is_lost: bool
    """Whether the directory is no longer there; nothing more is told."""


class DirectoryChanges:
    """The changes of the files in one directory, not below it, since it was made."""

    def __init__(self, directory: Path) -> None:
        """Raises ``OSError`` if it can't be watched. Blocks as long as the disk does."""
        assert _libc is not None
        self._descriptor = _checked(_libc.inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC))
        try:
            _checked(_libc.inotify_add_watch(self._descriptor, os.fsencode(directory), _WANTED))
        except OSError:
            self.close()
            raise

    def fileno(self) -> int:
        """It is readable when there is something to read."""
        return self._descriptor

    def read(self) -> list[Change]:
        """Return the changes since the last call. Does not block."""
        try:
            data = os.read(self._descriptor, _MOST_BYTES)
        except BlockingIOError:
            return []
        found, offset = [], 0
        while offset < len(data):
            _, mask, _, length = _EVENT.unpack_from(data, offset)
            offset += _EVENT.size + length
            name = os.fsdecode(data[offset - length : offset].rstrip(b"\0"))
            found.append(Change(name, bool(mask & _SELF_GONE)))
        return found

    def close(self) -> None:
        """Tell no more."""
        os.close(self._descriptor)


def is_here() -> bool:
    """Whether this system tells of changes in this way."""
    return _libc is not None


def _checked(answer: int) -> int:
    if answer < 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
    return answer
