"""A file that an agent sends: from its workspace only, and no link."""

from __future__ import annotations

import errno
import stat
from pathlib import Path

from agentsup.catalogue import LocalizedTexts
from agentsup.channels.core.files.upload import UploadFile, inside
from agentsup.kit.pool import BoundedPool
from agentsup.kit.safe_files import GuardedFolder, PathEscapes

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
