"""Files that are either the old or the new version, never half of one, and the lock on a home.

Everything here blocks on the disk; code on the event loop calls it through `asyncio.to_thread`.
"""

import contextlib
import fcntl
import os
import tempfile
from pathlib import Path
from types import TracebackType
from typing import Self

__all__ = ["HomeLock", "HomeLocked", "write_atomic"]


def write_atomic(
    path: Path, data: bytes, *, mode: int = 0o600, follow_symlink: bool = False
) -> None:
    """Replace the file at `path` by `data`, durably, so that no reader ever sees a part of it.

    The new content is written beside it, flushed to disk and renamed over it; then the directory
    entry is flushed too. `mode` is the permission of the result. A symbolic link at `path` is
    itself replaced, because a program with write access there could have planted it;
    `follow_symlink=True` writes to its target instead, for files that a person linked.
    Raises `OSError` (disk full, no permission); then the old file stands and nothing is left over.
    """
    target = Path(os.path.realpath(path)) if follow_symlink else path
    descriptor, temp_name = tempfile.mkstemp(
        prefix=f".{target.name}.", suffix=".tmp", dir=target.parent
    )
    try:
        with os.fdopen(descriptor, "wb") as temp:
            os.fchmod(temp.fileno(), mode)
            temp.write(data)
            temp.flush()
            os.fsync(temp.fileno())
        Path(temp_name).replace(target)
    except BaseException:
        with contextlib.suppress(OSError):
            Path(temp_name).unlink()
        raise
    _sync_directory(target.parent)


def _sync_directory(path: Path) -> None:
    """Flush the directory's entries to disk, where the file system can do that."""
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        # Some network file systems refuse to sync a directory; the rename itself has happened.
        with contextlib.suppress(OSError):
            os.fsync(descriptor)
    finally:
        os.close(descriptor)


class HomeLocked(Exception):
    """Another process holds the lock. `pid` is its process id where it could be read."""

    def __init__(self, path: Path, pid: int | None) -> None:
        """Remember which lock and, if known, who holds it."""
        holder = f"process {pid}" if pid is not None else "another process"
        super().__init__(f"{path} is held by {holder}; stop it first or use another home")
        self.path = path
        self.pid = pid


class HomeLock:
    """At most one process per home, by `flock` on a small file that names the holder.

    The kernel drops the lock when the holder dies, however it dies; the file itself stays.
    """

    def __init__(self, path: Path) -> None:
        """Prepare a lock on the file `path`; nothing is opened yet."""
        self.path = path
        self._descriptor: int | None = None

    def acquire(self) -> None:
        """Take the lock or raise `HomeLocked` at once; taking it twice is an error."""
        if self._descriptor is not None:
            raise RuntimeError(f"{self.path} is already locked by this object")
        descriptor = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            os.ftruncate(descriptor, 0)
            os.pwrite(descriptor, f"{os.getpid()}\n".encode("ascii"), 0)
        except BlockingIOError:
            pid = _read_pid(descriptor)
            os.close(descriptor)
            raise HomeLocked(self.path, pid) from None
        except BaseException:
            os.close(descriptor)
            raise
        self._descriptor = descriptor

    def release(self) -> None:
        """Give the lock back; does nothing if it is not held."""
        descriptor, self._descriptor = self._descriptor, None
        if descriptor is None:
            return
        try:
            os.ftruncate(descriptor, 0)
        finally:
            os.close(descriptor)

    def __enter__(self) -> Self:
        """Acquire on entry."""
        self.acquire()
        return self

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Release on exit."""
        self.release()


def _read_pid(descriptor: int) -> int | None:
    """The process id written into a lock file, or None while its holder has not written it."""
    text = os.pread(descriptor, 32, 0).strip()
    return int(text) if text.isdigit() else None
