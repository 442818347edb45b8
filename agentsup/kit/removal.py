"""Removing a directory that somebody hostile has filled: as deep, as large and as closed as it is.

Directories inside are first moved up to the top of what is removed, so that a deep tree needs
neither a deep stack nor a descriptor for each level: three directories are open at a time.
"""

import os
import stat
from collections.abc import Callable, Generator
from contextlib import contextmanager, suppress
from itertools import count, islice
from pathlib import Path
from typing import Final

__all__ = ["opened", "remove"]

GoesOn = Callable[[], bool]
_AT_ONCE: Final = 1000
"""Names that are held in memory at a time."""


def remove(parent: int, name: str, goes_on: GoesOn) -> bool:
    """Remove what has that name in an open directory; False if ``goes_on`` ended the work first.

    Blocks; raises ``OSError``. No link is followed.
    """
    known = _stat(parent, name)
    if known is None:
        return True
    if not stat.S_ISDIR(known.st_mode):
        os.unlink(name, dir_fd=parent)
        return True
    with opened(parent, name) as top:
        numbers = count(1)
        while found := _some(top):
            for each in found:
                if not goes_on() or not _removed(top, each, numbers, goes_on):
                    return False
    os.rmdir(name, dir_fd=parent)
    return True


def _removed(top: int, name: str, numbers: "count[int]", goes_on: GoesOn) -> bool:
    """Remove one thing in ``top``; the directories in it are moved to ``top`` instead."""
    if not _is_directory(top, name):
        with suppress(FileNotFoundError):
            os.unlink(name, dir_fd=top)
        return True
    with opened(top, name) as inner:
        while found := _some(inner):
            for each in found:
                if not goes_on():
                    return False
                if _is_directory(inner, each):
                    _move_up(inner, each, top, numbers)
                else:
                    with suppress(FileNotFoundError):
                        os.unlink(each, dir_fd=inner)
    os.rmdir(name, dir_fd=top)
    return True


def _move_up(inner: int, name: str, top: int, numbers: "count[int]") -> None:
    to = next(free for number in numbers if _stat(top, free := f".removed-{number}") is None)
    with opened(inner, name):  # a move writes its "..": it must be writable
        os.rename(name, to, src_dir_fd=inner, dst_dir_fd=top)


def _some(directory: int) -> list[str]:
    with os.scandir(directory) as entries:
        return [entry.name for entry in islice(entries, _AT_ONCE)]


@contextmanager
def opened(parent: int, name: str) -> Generator[int]:
    """Open a directory, also one whose mode forbids it: it is ours to remove."""
    with suppress(OSError):
        handle = os.open(name, os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW, dir_fd=parent)
        try:
            Path(f"/proc/self/fd/{handle}").chmod(0o700)
        finally:
            os.close(handle)
    descriptor = os.open(name, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW, dir_fd=parent)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def _is_directory(parent: int, name: str) -> bool:
    known = _stat(parent, name)
    return known is not None and stat.S_ISDIR(known.st_mode)


def _stat(parent: int, name: str) -> os.stat_result | None:
    try:
        return os.stat(name, dir_fd=parent, follow_symlinks=False)
    except FileNotFoundError:
        return None
