"""A file that reserves disk space, and is removed on a full disk so that work can be ended.

Everything here blocks on the disk and runs in the writer's thread. Serves P1 on a full disk.
"""

from __future__ import annotations

import contextlib
import os
from pathlib import Path


class DiskReserve:
    """``size_bytes`` of allocated space at ``path``; a size of 0 switches the reserve off."""

    def __init__(self, path: Path, size_bytes: int) -> None:
        """Prepare a reserve; nothing is created yet."""
        self.path = path
        self.size_bytes = size_bytes
        self._is_allocated = False

    @property
    def is_allocated(self) -> bool:
        """Whether the space is reserved now (always, if the reserve is off)."""
        return self._is_allocated or self.size_bytes == 0

    def allocate(self) -> bool:
        """Reserve the space unless the disk is nearly full; True if it is reserved afterwards.

        It is reserved only if twice its size is free. Otherwise a nearly full disk would make the
        store release and reserve it with every write.
        """
        if self.is_allocated:
            return True
        try:
            if self.path.exists() and self.path.stat().st_size == self.size_bytes:
                self._is_allocated = True  # left by a process that was killed
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
        self._is_allocated = True
        return True

    def free(self) -> None:
        """Release the space."""
        self._is_allocated = False
        with contextlib.suppress(OSError):
            self.path.unlink()
