"""A file that an agent hands over: from its workspace only, by its real path."""

from __future__ import annotations

import errno
from pathlib import Path

from agentsup.catalogue import Words
from agentsup.channels.upload import UploadFile

__all__ = ["attached", "unreadable"]

_ERRNO = {
    errno.ENOENT: "file.missing",
    errno.EACCES: "file.forbidden",
    errno.EPERM: "file.forbidden",
}


def attached(
    path_text: str, name: str, workspace: Path, *, max_bytes: int, say: Words
) -> tuple[UploadFile, str]:
    """The file to send, and why it can't be, if so. Blocks."""
    path = workspace / path_text
    file = UploadFile(path, name or path.name)
    try:
        within = workspace.resolve()
        resolved = path.resolve(strict=True)
        size = resolved.stat().st_size
    except OSError as error:
        return file, unreadable(error, say)
    file = UploadFile(resolved, name or path.name, within=within)
    if not resolved.is_relative_to(within):
        return file, say("file.outside")
    if not resolved.is_file():
        return file, say("file.irregular")
    if size == 0:
        return file, say("file.empty")
    if size > max_bytes:
        return file, say("file.too_large", mb=max_bytes // (1024 * 1024))
    return file, ""


def unreadable(error: OSError, say: Words) -> str:
    """Why a file can't be read, in words."""
    return say(_ERRNO.get(error.errno or 0, "file.unreadable"))
