"""A file that an agent sends: from its workspace only, and no link.

The checks are made on the opened file.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from io import BytesIO
from pathlib import Path
from typing import IO

from agentsup.catalogue import LocalizedTexts
from agentsup.kit.pool import BoundedPool
from agentsup.kit.safe_files import FileTooLong, GuardedFolder, PathEscapes

_ERRNO = {
    errno.ENOENT: "file.missing",
    errno.EACCES: "file.forbidden",
    errno.EPERM: "file.forbidden",
    errno.ELOOP: "file.irregular",
    errno.EINVAL: "file.irregular",
    errno.ENOTDIR: "file.missing",
}


@dataclass(frozen=True, slots=True)
class UploadFile:
    """A file to upload: one of a workspace, read while it is sent, or ``data``."""

    path: Path | None
    name: str
    data: bytes = b""
    workspace: Path | None = None
    """The file must be below it, with no link in its path; None: the directory of ``path``."""
    size: int = 0
    """Its size in bytes when it was checked."""
    max_bytes: int = 2**40
    """A file that has grown beyond this is not opened."""
    files: BoundedPool | None = field(default=None, compare=False)
    """The threads that open it."""

    async def opened(self) -> IO[bytes]:
        """Run ``open_upload`` in the pool. Raises ``OSError``."""
        files = self.files or BoundedPool("files")
        key = self.workspace.parent.name if self.workspace is not None else ""
        closing: Callable[[IO[bytes]], object] = lambda handle: handle.close()  # noqa: E731 - typed
        return await files.run(partial(open_upload, self), key=key, undo=closing)


def open_upload(file: UploadFile) -> IO[bytes]:
    """Open a regular file, and check the opened file, so that it cannot be replaced in between.

    Blocks. Raises ``OSError``.
    """
    if file.path is None:
        return BytesIO(file.data)
    workspace = file.workspace or file.path.parent
    handle = GuardedFolder(workspace).open(inside(workspace, file.path))
    if os.fstat(handle.fileno()).st_size > file.max_bytes:
        handle.close()
        raise FileTooLong(file.name, file.max_bytes)
    return handle


def inside(workspace: Path, path: Path | str) -> str:
    """Return ``path`` relative to the workspace, without a look at the disk.

    Raises ``PathEscapes`` if it is outside.
    """
    words = os.path.normpath(workspace / path)
    try:
        return str(Path(words).relative_to(workspace))
    except ValueError:
        raise PathEscapes(str(path)) from None


def attached(
    path_text: str,
    name: str,
    workspace: Path,
    *,
    max_bytes: int,
    say: LocalizedTexts,
    files: BoundedPool | None = None,
) -> tuple[UploadFile, str]:
    """Return the file to send, and the reason if it cannot be sent, else an empty text. Blocks.

    ``files`` are the threads that will open it.
    """
    path = workspace / path_text
    shown = name or path.name
    try:
        below = inside(workspace, path_text)
        known = GuardedFolder(workspace).stat(below)
    except PathEscapes:
        return UploadFile(path, shown), say("file.outside")
    except OSError as error:
        return UploadFile(path, shown), unreadable(error, say)
    file = UploadFile(
        workspace / below,
        shown,
        workspace=workspace,
        size=known.st_size,
        max_bytes=max_bytes,
        files=files,
    )
    if not stat.S_ISREG(known.st_mode):
        return file, say("file.irregular")
    if known.st_size == 0:
        return file, say("file.empty")
    if known.st_size > max_bytes:
        return file, say("file.too_large", mb=max_bytes // (1024 * 1024))
    return file, ""


def unreadable(error: OSError, say: LocalizedTexts) -> str:
    """Return a text that says why a file cannot be read."""
    return say(_ERRNO.get(error.errno or 0, "file.unreadable"))
