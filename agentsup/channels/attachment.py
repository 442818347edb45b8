"""A file that an agent hands over: from its workspace only, and no link."""

from __future__ import annotations

import errno
import stat
from pathlib import Path

from agentsup.catalogue import Words
from agentsup.channels.upload import UploadFile, inside
from agentsup.kit.planted import Folder, LeadsOut
from agentsup.kit.pool import BoundedPool

__all__ = ["attached", "unreadable"]

_ERRNO = {
    errno.ENOENT: "file.missing",
    errno.EACCES: "file.forbidden",
    errno.EPERM: "file.forbidden",
    errno.ELOOP: "file.irregular",
    errno.EINVAL: "file.irregular",
    errno.ENOTDIR: "file.missing",
}


def attached(
    path_text: str,
    name: str,
    workspace: Path,
    *,
    max_bytes: int,
    say: Words,
    files: BoundedPool | None = None,
) -> tuple[UploadFile, str]:
    """The file to send, and why it can't be, if so; ``files`` is where it will be opened. Blocks."""
    path = workspace / path_text
    shown = name or path.name
    try:
        below = inside(workspace, path_text)
        known = Folder(workspace).stat(below)
    except LeadsOut:
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


def unreadable(error: OSError, say: Words) -> str:
    """Why a file can't be read, in words."""
    return say(_ERRNO.get(error.errno or 0, "file.unreadable"))
