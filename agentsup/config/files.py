"""Reading of files that people keep in the home, with a time limit.

A pipe instead of a file is refused. A network share that does not answer costs a thread of the pool
and the time limit once: while that file hangs, further reads of it fail at once. A file that
replaces it is read.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import cache, partial
from pathlib import Path
from typing import TypeVar

from agentsup.kit.pool import BoundedPool, PoolTimeout, TimedSteps
from agentsup.kit.safe_files import read_plain

T = TypeVar("T")
LIMIT_S = 5.0
"""The time limit of a read in seconds; such a file has only a few kilobytes."""


@cache
def timed_reads() -> TimedSteps:
    """The one reader of this process for code that can't await. A file that hangs holds one thread
    only, however many callers ask for it."""
    return TimedSteps("reads")


class ConfigFiles:
    """Reads these files. Every method raises ``OSError``, which includes ``PoolTimeout``."""

    def __init__(self) -> None:
        """Of each file, one read runs at a time."""
        self.pool = BoundedPool("config", threads=8, per_key=1, limit_s=LIMIT_S)

    async def read(self, path: Path, limit: int) -> bytes:
        """The content of the file, cut after ``limit`` + 1 bytes."""
        return await self._of(path, partial(read_plain, path, limit + 1))

    async def signature(self, path: Path) -> tuple[int, int, int]:
        """Inode, size (bytes) and modification time (ns) of the file, which change when it does."""
        return await self._of(path, partial(_signature, path))

    async def run(self, step: Callable[[], T], *, key: str, limit_s: float = LIMIT_S) -> T:
        """Run a step that reads several files, or similar work."""
        return await self.pool.run(step, key=key, limit_s=limit_s)

    async def probe(self) -> str | None:
        """The files that do not answer, or None."""
        hanging = sorted({key.partition(" ")[0] for key in self.pool.stuck})
        if hanging:
            return f"no answer from {', '.join(hanging[:5])}"
        return await self.pool.probe()

    async def _of(self, path: Path, step: Callable[[], T]) -> T:
        # The path itself, not the target of a symbolic link: that may hang.
        now = await self.pool.run(partial(os.lstat, path), key=f"{path}")
        key = f"{path} {now.st_ino} {now.st_ctime_ns}"
        try:
            return await self.pool.run(step, key=key)
        except PoolTimeout:
            raise PoolTimeout(f"no answer within {LIMIT_S:g} s") from None


def _signature(path: Path) -> tuple[int, int, int]:
    status = path.stat()
    return status.st_ino, status.st_size, status.st_mtime_ns
