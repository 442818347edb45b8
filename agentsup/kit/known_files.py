"""Small files that people keep and that are read again and again: each version is read once.

A look at a file is made before each use, so an edit counts at once. Where a disk may not answer, the
look is a step of a pool, which costs two changes of threads. A plain file on the disk of the home is
looked at in line, in a few microseconds: if that disk does not answer, nothing of the daemon works.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Callable, Hashable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Final, Generic, TypeVar

from agentsup.kit.clock import SystemClock
from agentsup.kit.pool import BoundedPool

T = TypeVar("T")
_Version = tuple[int, ...]

MOST: Final = 2048
"""The most files that are known at a time."""
SETTLED_MS: Final = 2000
"""A file that was written less than this before it was read may be written again within the same
tick of the disk's clock, which its version would not show. So it is read once more."""


@dataclass(frozen=True, slots=True)
class _Known(Generic[T]):
    """A version of a file, and what was made of it."""

    path: Path
    version: _Version | None
    """None: there was no file."""
    value: T | None
    is_settled: bool
    is_near: bool
    """It is no link, and on the disk of the home."""

    def is_current(self) -> bool:
        """Whether a look in line shows that the file is the same; False also if it can't tell."""
        if not (self.is_near and self.is_settled):
            return False
        try:
            return _version(os.lstat(self.path)) == self.version
        except FileNotFoundError:
            return self.version is None
        except OSError:
            return False


class KnownFiles(Generic[T]):
    """A cache of values made of files, by a key of the caller's."""

    def __init__(self, files: BoundedPool) -> None:
        """``files`` is the pool in which they are read."""
        self._files = files
        self._known: dict[Hashable, _Known[T]] = {}

    async def get(
        self,
        key: Hashable,
        find: Callable[[], Path],
        load: Callable[[Path], T],
        *,
        home: str,
        slot: str,
    ) -> T:
        """The value that ``load`` makes of the file at ``find()``, as it is now.

        ``load`` runs in the pool, under the key ``slot``. ``find`` must give the same path for the
        same key. Raises ``OSError`` and what ``load`` raises; such a failure is not remembered,
        except that there is no file.
        """
        known = self._known.get(key)
        if known is None or not known.is_current():
            path = find() if known is None else known.path
            step = partial(_read, path, load, home, known)
            self._known.pop(key, None)
            fresh: _Known[T] = await self._files.run(step, key=slot)
            if len(self._known) >= MOST:
                del self._known[next(iter(self._known))]
            known = self._known[key] = fresh
        if known.version is None:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), str(known.path))
        return known.value  # type: ignore[return-value]  # a version has a value


def _read(path: Path, load: Callable[[Path], T], home: str, known: _Known[T] | None) -> _Known[T]:
    """The file as it is now: ``known`` if that is still true. Blocks."""
    now_ms = SystemClock().now_ms()
    is_near = path.parent.stat().st_dev == Path(home).stat().st_dev
    try:
        status, own = path.stat(), path.lstat()
    except FileNotFoundError:
        return _Known(path, None, None, True, is_near)
    version = _version(status)
    if known is not None and known.is_settled and known.version == version:
        return known
    is_near = is_near and stat.S_ISREG(own.st_mode) and own.st_dev == path.parent.stat().st_dev
    is_settled = now_ms - status.st_mtime_ns // 1_000_000 > SETTLED_MS
    return _Known(path, version, load(path), is_settled, is_near)


def _version(status: os.stat_result) -> _Version:
    return (
        status.st_mode,
        status.st_dev,
        status.st_ino,
        status.st_size,
        status.st_mtime_ns,
        status.st_ctime_ns,
    )
