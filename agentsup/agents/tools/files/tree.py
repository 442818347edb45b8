"""The files of one workspace, opened so that no path leads out of it. All functions block."""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from agentsup.kit import safe_files
from agentsup.kit.safe_files import GuardedFolder, PathEscapes
from agentsup.model.errors import BadRequest, Conflict, NotFound, TooLarge

MAX_FILE_BYTES = 8 * 1024 * 1024
MAX_ENTRIES = 2_000
_PROTECTED = frozenset(
    (".git", ".claude", ".codex", ".gemini", ".opencode", ".cursor", ".mcp.json", ".envrc")
)


def protected(names: Sequence[str]) -> str | None:
    """The first name that no tool may write, since programs run commands from it; or None."""
    return next((name for name in names if name.casefold() in _PROTECTED), None)


def names_of(path: str) -> tuple[str, ...]:
    """The names on a relative path. Raises ``BadRequest`` for one that leaves the workspace."""
    try:
        return safe_files.names_of(path)
    except PathEscapes:
        text = "this is no path relative to the workspace, or it leads out of it"
        raise BadRequest(f"{path[:200]!r}: {text}", field="path") from None


@dataclass(frozen=True, slots=True)
class TreeEntry:
    """One entry of a directory. ``kind``: file | directory | link | other. Times are wall ms."""

    name: str
    kind: str
    size: int
    changed_at: int
    mode: int


class WorkspaceTree:
    """The files under one root directory. Errors of the system become errors for the model."""

    def __init__(self, root: str) -> None:
        self._folder = GuardedFolder(root)

    def read(self, path: str, *, offset: int = 0, limit: int = MAX_FILE_BYTES) -> tuple[bytes, int]:
        """Bytes of a file from ``offset``, at most ``limit``; and its size."""
        if not names_of(path):
            raise BadRequest("the path names no file", field="path")
        with _tool_errors(path):
            return self._folder.head(path, limit, offset=offset)

    def write(self, path: str, data: bytes) -> bool:
        """Write a file atomically, and create its parent directories; True if it is new.

        The old file stays until the new one is safe. Raises ``TooLarge``, and ``Conflict`` if the
        path exists and is no file.
        """
        if len(data) > MAX_FILE_BYTES:
            raise TooLarge(
                f"{path} would have {len(data)} bytes; at most {MAX_FILE_BYTES} are written"
            )
        names = _writable(path)
        with _tool_errors(path):
            if names[:-1]:
                self._folder.make("/".join(names[:-1]))
            try:
                known = self._folder.stat(path)
            except FileNotFoundError:
                known = None
            if known is not None and not stat.S_ISREG(known.st_mode):
                raise Conflict(f"{path} is there and no file")
            mode = 0o644 if known is None else stat.S_IMODE(known.st_mode) & 0o777
            self._folder.write(path, data, mode=mode)
            return known is None

    def delete(self, path: str) -> bool:
        """Remove a file, a link or an empty directory; False if there was none."""
        _writable(path)
        with _tool_errors(path):
            return self._folder.remove(path)

    def make(self, path: str) -> None:
        """Create a directory and its parents. It may exist already."""
        _writable(path)
        with _tool_errors(path):
            self._folder.make(path)

    def list(self, path: str) -> tuple[list[TreeEntry], bool]:
        """The entries of a directory by name, and whether there are more than are returned."""
        names_of(path)
        with _tool_errors(path):
            found, is_more = self._folder.list(path, MAX_ENTRIES)
        return [_entry(name, known) for name, known in found], is_more

    def stat(self, path: str) -> TreeEntry:
        """The entry at a path. A link is not followed."""
        names = names_of(path)
        with _tool_errors(path):
            return _entry(names[-1] if names else ".", self._folder.stat(path))


@contextmanager
def _tool_errors(path: str) -> Generator[None]:
    try:
        yield
    except OSError as error:
        raise _tool_error(error, path) from None


def _writable(path: str) -> tuple[str, ...]:
    names = names_of(path)
    if not names:
        raise BadRequest("the path names no file", field="path")
    if (found := protected(names)) is not None:
        raise BadRequest(f"{found} is not written by tools: programs take orders from it")
    return names


def _entry(name: str, known: os.stat_result) -> TreeEntry:
    kinds = ((stat.S_ISREG, "file"), (stat.S_ISDIR, "directory"), (stat.S_ISLNK, "link"))
    kind = next((kind for test, kind in kinds if test(known.st_mode)), "other")
    mode = stat.S_IMODE(known.st_mode)
    return TreeEntry(name, kind, known.st_size, known.st_mtime_ns // 1_000_000, mode)


def _tool_error(error: OSError, path: str) -> BadRequest | NotFound | Conflict:
    where = path or "the workspace"
    if error.errno == errno.ENOENT:
        return NotFound(f"there is no {where} in the workspace")
    if error.errno in (errno.ELOOP, errno.ENOTDIR):
        return BadRequest(f"{where} is a link or no directory; links are not followed")
    if error.errno == errno.ENOTEMPTY:
        return Conflict(f"{where} is not empty; delete what is in it first")
    return Conflict(f"{where} can't be used: {error.strerror or error}")
