"""A file that holds disk space back, given up when the disk is full so that work can be closed.

Everything here blocks on the disk and runs in the writer's thread. Serves P1 on a full disk.
"""

import contextlib
import os
from pathlib import Path

__all__ = ["DiskReserve"]


class DiskReserve:
    """`size_bytes` of allocated space at `path`; a size of 0 switches the reserve off."""

    def __init__(self, path: Path, size_bytes: int) -> None:
        """Prepare a reserve; nothing is created yet."""
        self.path = path
        self.size_bytes = size_bytes
        self._is_held = False

    @property
    def is_held(self) -> bool:
        """Whether the space is held back now (always, if the reserve is off)."""
        return self._is_held or self.size_bytes == 0

    def hold(self) -> bool:
        """Take the space unless the disk is nearly full; True if it is held afterwards.

        It is taken only where twice its size is free, so that a disk at its limit does not make
        the store give the reserve up and take it back with every write.
        """
        if self.is_held:
            return True
        try:
            if self.path.exists() and self.path.stat().st_size == self.size_bytes:
                self._is_held = True  # left by a process that was killed
                return True
            disk = os.statvfs(self.path.parent)
            if disk.f_bavail * disk.f_frsize < 2 * self.size_bytes:
                return False
            descriptor = os.open(self.path, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600)
            try:
                os.posix_fallocate(descriptor, 0, self.size_bytes)
            finally:
                os.close(descriptor)
        except OSError:
            self.free()
            return False
        self._is_held = True
        return True

    def free(self) -> None:
        """Give the space back to the file system."""
        self._is_held = False
        with contextlib.suppress(OSError):
            self.path.unlink()
