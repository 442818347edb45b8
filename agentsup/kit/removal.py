"""Removal of a directory with hostile content: any depth, any size, any mode.

Directories inside are first moved up to the top of the removed one. So a deep tree needs neither a
deep stack nor a descriptor for each level: three directories are open at a time.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Generator
from contextlib import contextmanager, suppress
from itertools import count, islice
from pathlib import Path
from typing import Final

GoesOn = Callable[[], bool]
_AT_ONCE: Final = 1000
"""Names that are held in memory at a time."""


def remove(parent: int, name: str, goes_on: GoesOn) -> bool:
    """Remove a file or directory of an open directory; False if ``goes_on`` stopped the work.

    Blocks; raises ``OSError``. No link is followed.
    """
    known = status(parent, name)
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


def _removed(top: int, name: str, numbers: count[int], goes_on: GoesOn) -> bool:
    """Remove one entry of ``top``; directories inside it are moved to ``top`` instead."""
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


def _move_up(inner: int, name: str, top: int, numbers: count[int]) -> None:
    to = next(free for number in numbers if status(top, free := f".removed-{number}") is None)
    with opened(inner, name):  # moving it updates its "..", so it must be writable
        os.rename(name, to, src_dir_fd=inner, dst_dir_fd=top)


def _some(directory: int) -> list[str]:
    with os.scandir(directory) as entries:
        return [entry.name for entry in islice(entries, _AT_ONCE)]


@contextmanager
def opened(parent: int, name: str) -> Generator[int]:
    """Open a directory, even one whose mode forbids it, since we own it."""
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
    known = status(parent, name)
    return known is not None and stat.S_ISDIR(known.st_mode)


def status(parent: int, name: str) -> os.stat_result | None:
    """The status of an entry of an open directory, of a link itself; None if there is none."""
    try:
        return os.stat(name, dir_fd=parent, follow_symlinks=False)
    except FileNotFoundError:
        return None
