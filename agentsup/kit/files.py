"""Files that are never half written, and the lock on a home.

Everything here blocks on the disk; code on the event loop calls it through ``asyncio.to_thread``.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import select
import tempfile
from pathlib import Path
from types import TracebackType
from typing import Self

_TRIES = 5
_TRY_AGAIN_S = 0.02

_NO_DIRECTORY_LOCKS = frozenset({errno.EBADF, errno.EINVAL, errno.ENOLCK, errno.EOPNOTSUPP})


def write_atomic(
    path: Path, data: bytes, *, mode: int = 0o600, follow_symlink: bool = False
) -> None:
    """Replace the file at ``path`` by ``data``, durably; no reader ever sees a part of it.

    The new content is written beside it, flushed to disk and renamed over it; then the directory
    entry is flushed too. ``mode`` is the permission of the result. A symbolic link at ``path`` is
    itself replaced, because a program with write access there could have planted it;
    ``follow_symlink=True`` writes to its target instead, for files that a person linked. Raises
    ``OSError`` (disk full, no permission); then the old file stays and no temporary file is left.
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


def overwrite(path: Path, data: bytes) -> None:
    """Write ``data`` over the beginning of the file at ``path``, durably, if there is no room for a
    new file. For data of at most one sector (512 bytes) in a file that is no longer than it.
    Raises ``OSError``."""
    descriptor = os.open(path, os.O_WRONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        os.pwrite(descriptor, data, 0)
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _sync_directory(path: Path) -> None:
    """Flush the directory's entries to disk, if the file system supports that."""
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        # Some network file systems refuse to sync a directory; the rename itself has happened.
        with contextlib.suppress(OSError):
            os.fsync(descriptor)
    finally:
        os.close(descriptor)


class HomeLocked(Exception):
    """Another process holds the lock. ``pid`` is its process id if it could be read."""

    def __init__(self, path: Path, pid: int | None) -> None:
        """``path`` is the lock file, ``pid`` the holder if known."""
        holder = f"process {pid}" if pid is not None else "another process"
        super().__init__(f"{path} is held by {holder}; stop it first or use another home")
        self.path = path
        self.pid = pid


class HomeLock:
    """At most one process per directory: ``flock`` on it and on a small file with the pid.

    The lock on the directory holds even if the file is removed. The kernel drops both when the
    holder dies for any reason; the file itself stays.
    """

    def __init__(self, path: Path) -> None:
        """Prepare a lock on the directory of the file ``path``; nothing is opened yet."""
        self.path = path
        self._descriptor: int | None = None
        self._directory: int | None = None

    def acquire(self) -> None:
        """Take the lock or raise ``HomeLocked`` at once; taking it twice is an error.

        Raises ``OSError`` if the directory or the file can't be used; then nothing is held.
        """
        if self._descriptor is not None:
            raise RuntimeError(f"{self.path} is already locked by this object")
        directory = os.open(self.path.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            self._descriptor = self._take(directory)
        except BaseException:
            os.close(directory)
            raise
        self._directory = directory

    def _take(self, directory: int) -> int:
        """Lock the open directory, then the file; returns the file's descriptor.

        A check of the lock (``is_locked``) holds it for an instant, so a refusal is tried again.
        """
        for tries_left in reversed(range(_TRIES)):
            try:
                _flock(directory, fcntl.LOCK_EX)
                return self._take_file()
            except BlockingIOError:
                if not tries_left:
                    raise HomeLocked(self.path, _pid_in(self.path)) from None
            except HomeLocked:
                if not tries_left:
                    raise
            select.select([], [], [], _TRY_AGAIN_S)
        raise AssertionError("unreachable")

    def _take_file(self) -> int:
        """Open, lock and fill the file; returns its descriptor."""
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
        return descriptor

    def restore(self) -> bool:
        """Restore the file if it was removed or replaced while the lock was held.

        Returns whether the directory at this path is still the locked one. Raises ``OSError`` or
        ``HomeLocked`` if the file can't be restored; the directory stays locked.
        """
        if self._descriptor is None or self._directory is None:
            return False
        if not _is_same(self._directory, self.path.parent):
            return False
        if not _is_same(self._descriptor, self.path):
            fresh = self._take_file()
            os.close(self._descriptor)
            self._descriptor = fresh
        return True

    def release(self) -> None:
        """Release the lock; does nothing if it is not held."""
        descriptor, self._descriptor = self._descriptor, None
        directory, self._directory = self._directory, None
        if descriptor is None or directory is None:
            return
        try:
            os.ftruncate(descriptor, 0)
        finally:
            os.close(descriptor)
            os.close(directory)

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


def _pid_in(path: Path) -> int | None:
    """The process id in the lock file at ``path``, or None."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    except OSError:
        return None
    try:
        return _read_pid(descriptor)
    except OSError:
        return None
    finally:
        os.close(descriptor)


def is_locked(path: Path) -> bool:
    """Whether a process holds the ``HomeLock`` of ``path``. The check itself never takes the lock
    away."""
    for target, flags in ((path.parent, os.O_DIRECTORY), (path, 0)):
        try:
            descriptor = os.open(target, os.O_RDONLY | os.O_CLOEXEC | flags)
        except OSError:
            continue
        try:
            _flock(descriptor, fcntl.LOCK_SH)
        except BlockingIOError:
            return True
        finally:
            os.close(descriptor)
    return False


def _flock(descriptor: int, kind: int) -> None:
    """Lock at once; without locks on directories only the file's lock counts."""
    try:
        fcntl.flock(descriptor, kind | fcntl.LOCK_NB)
    except BlockingIOError:
        raise
    except OSError as error:
        if error.errno not in _NO_DIRECTORY_LOCKS:
            raise


def _is_same(descriptor: int, path: Path) -> bool:
    """Whether ``path`` still names the file that is open as ``descriptor``."""
    try:
        return os.path.samestat(os.fstat(descriptor), path.stat())
    except OSError:
        return False
