"""A file to be sent somewhere: what is checked is what was opened."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from io import BytesIO
from pathlib import Path
from typing import IO

from agentsup.kit.planted import Folder, LeadsOut, TooLong
from agentsup.kit.pool import BoundedPool

__all__ = ["UploadFile", "inside", "open_upload"]


@dataclass(frozen=True, slots=True)
class UploadFile:
    """A file to upload: one of a workspace, read while it is sent, or `data`."""

    path: Path | None
    name: str
    data: bytes = b""
    workspace: Path | None = None
    """The file lies below it, and no link is on its way; None: in the directory of `path`."""
    size: int = 0
    """Bytes, when it was looked at."""
    max_bytes: int = 2**40
    """A file that has grown beyond this is not opened."""
    files: BoundedPool | None = field(default=None, compare=False)
    """Where it is opened."""

    async def opened(self) -> IO[bytes]:
        """``open_upload``, in the pool. Raises ``OSError``."""
        files = self.files or BoundedPool("files")
        key = self.workspace.parent.name if self.workspace is not None else ""
        closing: Callable[[IO[bytes]], object] = lambda handle: handle.close()  # noqa: E731 - typed
        return await files.run(partial(open_upload, self), key=key, undo=closing)


def open_upload(file: UploadFile) -> IO[bytes]:
    """Open a regular file; what is checked is what was opened, so nobody can change it between.

    Blocks. Raises ``OSError``.
    """
    if file.path is None:
        return BytesIO(file.data)
    workspace = file.workspace or file.path.parent
    handle = Folder(workspace).open(inside(workspace, file.path))
    if os.fstat(handle.fileno()).st_size > file.max_bytes:
        handle.close()
        raise TooLong(file.name, file.max_bytes)
    return handle


def inside(workspace: Path, path: Path | str) -> str:
    """A path as it is named inside a workspace, by its words alone. Raises ``LeadsOut``."""
    words = os.path.normpath(workspace / path)
    try:
        return str(Path(words).relative_to(workspace))
    except ValueError:
        raise LeadsOut(str(path)) from None
