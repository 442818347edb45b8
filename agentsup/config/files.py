"""Files that people keep in the home, read without ever waiting for one for long.

A pipe in a file's place is refused; a network share that does not answer costs a thread of the pool
and its limit, once: as long as that very file hangs, it is answered for at once. A file that takes
its place is read.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import cache, partial
from pathlib import Path
from typing import TypeVar

from agentsup.kit.planted import read_plain
from agentsup.kit.pool import BoundedPool, NoAnswer, TimedSteps

__all__ = ["LIMIT_S", "ConfigFiles", "config_pool", "timed_reads"]

T = TypeVar("T")
LIMIT_S = 5.0
"""A file of a few kilobytes that takes longer is not there."""


def config_pool() -> BoundedPool:
    """A pool for files that people keep: one place for each file."""
    return BoundedPool("config", threads=8, per_key=1, limit_s=LIMIT_S)


@cache
def timed_reads() -> TimedSteps:
    """The one reader of this process for code that can't await: a file that hangs has one thread,
    whoever asks for it."""
    return TimedSteps("reads")


class ConfigFiles:
    """Reads them; every method raises ``OSError``, ``NoAnswer`` among others."""

    def __init__(self, pool: BoundedPool | None = None) -> None:
        """``pool`` as ``config_pool`` makes it."""
        self.pool = pool or config_pool()

    async def read(self, path: Path, limit: int) -> bytes:
        """The file, cut after ``limit`` + 1 bytes."""
        return await self._of(path, partial(read_plain, path, limit + 1))

    async def signature(self, path: Path) -> tuple[int, int, int]:
        """What changes when the file does: its number, size and time."""
        return await self._of(path, partial(_signature, path))

    async def run(self, step: Callable[[], T], *, key: str, limit_s: float = LIMIT_S) -> T:
        """A step that reads several files, or the like."""
        return await self.pool.run(step, key=key, limit_s=limit_s)

    async def probe(self) -> str | None:
        """What does not answer, or None."""
        hanging = sorted({key.partition(" ")[0] for key in self.pool.stuck})
        if hanging:
            return f"no answer from {', '.join(hanging[:5])}"
        return await self.pool.probe()

    async def _of(self, path: Path, step: Callable[[], T]) -> T:
        # What stands there now, not where it leads: that may hang.
        now = await self.pool.run(partial(os.lstat, path), key=f"{path}")
        key = f"{path} {now.st_ino} {now.st_ctime_ns}"
        try:
            return await self.pool.run(step, key=key)
        except NoAnswer:
            raise NoAnswer(f"no answer within {LIMIT_S:g} s") from None


def _signature(path: Path) -> tuple[int, int, int]:
    status = path.stat()
    return status.st_ino, status.st_size, status.st_mtime_ns
