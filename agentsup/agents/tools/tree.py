"""Files of one workspace, reached so that nothing can lead out of it.

A path is walked name by name from the open root with ``O_NOFOLLOW``, so no link is ever followed,
also not one that is put in place between a look and a step. All functions block.
"""

from __future__ import annotations

import contextlib
import errno
import os
import stat
import threading
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from agentsup.model.errors import BadRequest, Conflict, NotFound, TooLarge

MAX_FILE_BYTES = 8 * 1024 * 1024
MAX_ENTRIES = 2_000
_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_PROTECTED = frozenset(
    (".git", ".claude", ".codex", ".gemini", ".opencode", ".cursor", ".mcp.json", ".envrc")
)


def protected(names: Sequence[str]) -> str | None:
    """The name on the way that programs take orders from, and that no tool writes; or None."""
    return next((name for name in names if name.casefold() in _PROTECTED), None)


def names_of(path: str) -> tuple[str, ...]:
    """The names on a relative path. Raises ``BadRequest`` for one that leaves the workspace."""
    if "\0" in path or len(path) > 4096:
        raise BadRequest("this is no path", field="path")
    if path.startswith(("/", "~")):
        raise BadRequest(f"{path!r} is not relative to the workspace", field="path")
    names = tuple(name for name in path.split("/") if name not in ("", "."))
    if ".." in names:
        raise BadRequest(f"{path!r} leads out of the workspace", field="path")
    return names


@dataclass(frozen=True, slots=True)
class Entry:
    """One thing in a directory. ``kind``: file | directory | link | other."""

    name: str
    kind: str
    size: int
    changed_at: int
    mode: int


class Tree:
    """The files under one root directory."""

    def __init__(self, root: str) -> None:
        self._root = root

    def read(self, path: str, *, offset: int = 0, limit: int = MAX_FILE_BYTES) -> tuple[bytes, int]:
        """Bytes of a file from ``offset``, at most ``limit``; and its size."""
        with self._file(path) as descriptor:
            size = os.fstat(descriptor).st_size
            data = bytearray()
            while len(data) < limit:
                piece = os.pread(descriptor, limit - len(data), offset + len(data))
                if not piece:
                    break
                data += piece
            return bytes(data), size

    def write(self, path: str, data: bytes) -> bool:
        """Put a file in place as a whole, with the directories on its way; True if it is new.

        What stood there is there until the new one is safe; a link is replaced, not followed.
        """
        if len(data) > MAX_FILE_BYTES:
            raise TooLarge(
                f"{path} would have {len(data)} bytes; at most {MAX_FILE_BYTES} are written"
            )
        names = _writable(path)
        with self._directory(names[:-1], create=True) as parent:
            known = _stat(parent, names[-1])
            if known is not None and not stat.S_ISREG(known.st_mode):
                raise Conflict(f"{path} is there and no file")
            mode = 0o644 if known is None else stat.S_IMODE(known.st_mode) & 0o777
            _put(parent, names[-1], data, mode)
            return known is None

    def delete(self, path: str) -> bool:
        """Remove a file, a link or an empty directory; False if there was none."""
        names = _writable(path)
        try:
            with self._directory(names[:-1]) as parent:
                known = _stat(parent, names[-1])
                if known is None:
                    return False
                if stat.S_ISDIR(known.st_mode):
                    os.rmdir(names[-1], dir_fd=parent)
                else:
                    os.unlink(names[-1], dir_fd=parent)
                return True
        except NotFound:
            return False
        except OSError as error:
            raise _told(error, path) from None

    def make(self, path: str) -> None:
        """A directory, with those on its way; it may be there."""
        with self._directory(_writable(path), create=True):
            return

    def list(self, path: str) -> tuple[list[Entry], bool]:
        """What is in a directory, by name; and whether there is more than is told."""
        with self._directory(names_of(path)) as directory:
            names = sorted(os.listdir(directory))  # noqa: PTH208 - Path knows no descriptors
            found = [(name, _stat(directory, name)) for name in names[:MAX_ENTRIES]]
        entries = [_entry(name, known) for name, known in found if known is not None]
        return entries, len(names) > MAX_ENTRIES

    def stat(self, path: str) -> Entry:
        """What one thing is; a link is told as a link."""
        names = names_of(path)
        if not names:
            with self._directory(()) as directory:
                return _entry(".", os.fstat(directory))
        with self._directory(names[:-1]) as parent:
            known = _stat(parent, names[-1])
        if known is None:
            raise NotFound(f"there is no {path} in the workspace")
        return _entry(names[-1], known)

    # -- inside ------------------------------------------------------------------------------------

    @contextmanager
    def _directory(self, names: Sequence[str], *, create: bool = False) -> Generator[int]:
        descriptor = os.open(self._root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        walked: list[str] = []
        try:
            for name in names:
                walked.append(name)
                if create:
                    with contextlib.suppress(FileExistsError):
                        os.mkdir(name, 0o755, dir_fd=descriptor)
                below = os.open(name, _DIRECTORY, dir_fd=descriptor)
                os.close(descriptor)
                descriptor = below
            yield descriptor
        except OSError as error:
            raise _told(error, "/".join(walked)) from None
        finally:
            os.close(descriptor)

    @contextmanager
    def _file(self, path: str) -> Generator[int]:
        names = names_of(path)
        if not names:
            raise BadRequest("the path names no file", field="path")
        with self._directory(names[:-1]) as parent:
            flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
            try:
                descriptor = os.open(names[-1], flags, dir_fd=parent)
            except OSError as error:
                raise _told(error, path) from None
            try:
                if not stat.S_ISREG(os.fstat(descriptor).st_mode):
                    raise Conflict(f"{path} is no file")
                yield descriptor
            finally:
                os.close(descriptor)


def _writable(path: str) -> tuple[str, ...]:
    names = names_of(path)
    if not names:
        raise BadRequest("the path names no file", field="path")
    if (found := protected(names)) is not None:
        raise BadRequest(f"{found} is not written by tools: programs take orders from it")
    return names


def _put(parent: int, name: str, data: bytes, mode: int) -> None:
    temporary = f".{name[:100]}.{os.getpid()}-{threading.get_native_id()}.part"
    with contextlib.suppress(FileNotFoundError):
        os.unlink(temporary, dir_fd=parent)
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    descriptor = os.open(temporary, flags, mode, dir_fd=parent)
    try:
        try:
            view = memoryview(data)
            while view:
                view = view[os.write(descriptor, view) :]
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
        os.rename(temporary, name, src_dir_fd=parent, dst_dir_fd=parent)
        os.fsync(parent)
    except BaseException:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(temporary, dir_fd=parent)
        raise


def _stat(parent: int, name: str) -> os.stat_result | None:
    try:
        return os.stat(name, dir_fd=parent, follow_symlinks=False)
    except FileNotFoundError:
        return None


def _entry(name: str, known: os.stat_result) -> Entry:
    kinds = ((stat.S_ISREG, "file"), (stat.S_ISDIR, "directory"), (stat.S_ISLNK, "link"))
    kind = next((kind for test, kind in kinds if test(known.st_mode)), "other")
    mode = stat.S_IMODE(known.st_mode)
    return Entry(name, kind, known.st_size, known.st_mtime_ns // 1_000_000, mode)


def _told(error: OSError, path: str) -> BadRequest | NotFound | Conflict:
    where = path or "the workspace"
    if error.errno == errno.ENOENT:
        return NotFound(f"there is no {where} in the workspace")
    if error.errno in (errno.ELOOP, errno.ENOTDIR):
        return BadRequest(f"{where} is a link or no directory; links are not followed")
    if error.errno == errno.ENOTEMPTY:
        return Conflict(f"{where} is not empty; delete what is in it first")
    return Conflict(f"{where} can't be used: {error.strerror or error}")
