"""A file to be sent somewhere: what is checked is what was opened."""

from __future__ import annotations

import errno
import os
import stat
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path
from typing import IO

__all__ = ["UploadFile", "open_upload"]


@dataclass(frozen=True, slots=True)
class UploadFile:
    """A file to upload: one on disk, read while it is sent, or `data`."""

    path: Path | None
    name: str
    data: bytes = b""
    within: Path | None = None
    """The opened file must lie in this (resolved) directory, wherever links lead to."""


def open_upload(file: UploadFile) -> IO[bytes]:
    """Open a regular file; what is checked is what was opened, so nobody can change it between.

    Blocks. Raises ``OSError``.
    """
    if file.path is None:
        return BytesIO(file.data)
    # Without waiting for the other end, should it be a pipe.
    descriptor = os.open(file.path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise OSError(errno.EINVAL, "not a regular file")
        opened = Path(f"/proc/self/fd/{descriptor}")
        if file.within is not None and opened.exists():
            opened = opened.resolve()
            if not opened.is_relative_to(file.within):
                raise PermissionError(errno.EACCES, "it lies outside the workspace")
        return os.fdopen(descriptor, "rb")
    except BaseException:
        os.close(descriptor)
        raise
