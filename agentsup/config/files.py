"""Reads files that people edit in the home, each within a time limit.

Only plain files are read; a pipe is refused. If a network share does not answer, the first read of
a file occupies one thread and fails at the time limit. Until that thread returns, further reads of
the same file fail at once. A new file under the same path can be read.
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
    """Timed reads for code that can't await; this process has one instance. A file that hangs
    occupies one thread, however many callers read it."""
    return TimedSteps("reads")


class ConfigFiles:
    """Reads files that people edit. Every method raises ``OSError``, which includes
    ``PoolTimeout``."""

    def __init__(self) -> None:
        """Of each file, one read runs at a time."""
        self.pool = BoundedPool("config", threads=8, per_key=1, limit_s=LIMIT_S)

    async def read(self, path: Path, limit: int) -> bytes:
        """The content of the file, at most ``limit`` + 1 bytes, so that the caller notices a longer
        one."""
        return await self._of(path, partial(read_plain, path, limit + 1))

    async def signature(self, path: Path) -> tuple[int, int, int]:
        """Inode, size (bytes) and modification time (ns) of the file, which change when it does."""
        return await self._of(path, partial(_signature, path))

    async def run(self, step: Callable[[], T], *, key: str, limit_s: float = LIMIT_S) -> T:
        """Run a step that reads several files, or similar work."""
        return await self.pool.run(step, key=key, limit_s=limit_s)

    async def probe(self) -> str | None:
        """The health check of these reads: a text that names the files that do not answer, or a
        problem of the pool; None if there is none."""
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
