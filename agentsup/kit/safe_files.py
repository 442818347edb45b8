"""Safe access to files in folders that an agent can write, where any kind of file may be planted.

A pipe would block its reader for ever; a link may lead out of the folder or to an endless device; a
file may have a terabyte; a directory may stand in place of a file. So nothing here follows a link,
not even one that is put in place between a check and a step. Only plain files are opened, without
blocking on a pipe or device. Reading, listing and removing are bounded. Everything blocks on the
disk: code on the event loop calls it in a ``kit.pool.BoundedPool``, which adds a time limit.
"""

from __future__ import annotations

import contextlib
import errno
import os
import stat
import threading
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from typing import IO, Final

from agentsup.kit import removal

_DIRECTORY: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_FILE: Final = os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
_PIECE: Final = 1024 * 1024
_LOOKED_AT: Final = 100_000
"""The most entries of one directory that are read."""
_ASIDE: Final = ".set-aside"
_TRIES: Final = 100
_MAX_PATH: Final = 4096
_KINDS: Final = (
    (stat.S_ISREG, "a file"),
    (stat.S_ISDIR, "a directory"),
    (stat.S_ISLNK, "a link"),
    (stat.S_ISFIFO, "a pipe"),
    (stat.S_ISSOCK, "a socket"),
)


class NotRegularFile(OSError):
    """There is something else in place of a plain file."""

    def __init__(self, name: str, mode: int) -> None:
        super().__init__(errno.EINVAL, f"{name} is {kind_of(mode)}, not a plain file")


class FileTooLong(OSError):
    """The file has more bytes than the limit."""

    def __init__(self, name: str, limit: int) -> None:
        super().__init__(errno.EFBIG, f"{name} has more than {limit} bytes")
        self.limit = limit


class PathEscapes(PermissionError):
    """The path is not relative to the folder, or leads out of it."""

    def __init__(self, path: str) -> None:
        super().__init__(errno.EACCES, f"{path[:200]!r} is no path inside the folder")


def kind_of(mode: int) -> str:
    """The kind of file with that mode, in words."""
    return next((words for test, words in _KINDS if test(mode)), "a device")


def names_of(path: str) -> tuple[str, ...]:
    """The names on a relative path. Raises ``PathEscapes``."""
    if "\0" in path or len(path) > _MAX_PATH or path.startswith(("/", "~")):
        raise PathEscapes(path)
    names = tuple(name for name in path.split("/") if name not in ("", "."))
    if ".." in names:
        raise PathEscapes(path)
    return names


def read_plain(path: Path, limit: int) -> bytes:
    """The first ``limit`` bytes of a file that people keep; links are followed.

    A pipe or a device in its place is refused, so that it can't block. Raises ``OSError``, such as
    ``NotRegularFile``.
    """
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC)
    try:
        mode = os.fstat(descriptor).st_mode
        if not stat.S_ISREG(mode):
            raise NotRegularFile(path.name, mode)
        return _read(descriptor, limit)
    finally:
        os.close(descriptor)


class GuardedFolder:
    """The files below one directory, by relative paths. Every method raises ``OSError``."""

    def __init__(self, root: Path | str) -> None:
        """``root`` is the whole directory of an agent's programs: they can write below it, but not
        change its own name."""
        self.root = Path(root)

    # -- files -------------------------------------------------------------------------------------

    def head(self, path: str, limit: int, *, offset: int = 0) -> tuple[bytes, int]:
        """At most ``limit`` bytes of a file from ``offset`` on, and its size."""
        with self._opened(path, os.O_RDONLY) as descriptor:
            return _read(descriptor, limit, offset), os.fstat(descriptor).st_size

    def open(self, path: str) -> IO[bytes]:
        """A file object to read in pieces, each in a pool."""
        with self._opened(path, os.O_RDONLY) as descriptor:
            return os.fdopen(os.dup(descriptor), "rb")

    def write(self, path: str, data: bytes, *, mode: int = 0o644) -> None:
        """Replace a whole file, durably; the old file stays until the new one is safe.

        A link with this name is replaced, not followed; a directory gives ``IsADirectoryError``.
        """
        names = _file_names(path)
        with self.directory(names[:-1]) as parent:
            _put(parent, names[-1], data, mode)

    def renew(self, path: str, data: bytes, *, mode: int = 0o644) -> str:
        """As ``write``, unless the file has that content already; makes missing directories.
        Something that is no plain file is renamed first. Returns its new name, or an empty
        string."""
        names = _file_names(path)
        with self.directory(names[:-1], make=True) as parent:
            known = removal.status(parent, names[-1])
            aside = ""
            if known is not None and not stat.S_ISREG(known.st_mode):
                aside = _set_aside(parent, names[-1])
            elif known is not None and known.st_size == len(data):
                with contextlib.suppress(OSError), _plain(parent, names[-1], os.O_RDONLY) as now:
                    if _read(now, len(data) + 1) == data:
                        return ""
            _put(parent, names[-1], data, mode)
            return aside

    def create(self, path: str, data: bytes, *, mode: int = 0o644) -> bool:
        """Make a file unless the name exists. Returns whether it was made."""
        names = _file_names(path)
        with self.directory(names[:-1]) as parent:
            flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
            try:
                descriptor = os.open(names[-1], flags, mode, dir_fd=parent)
            except FileExistsError:
                return False
            try:
                _write(descriptor, data)
            finally:
                os.close(descriptor)
            return True

    def append(self, path: str, data: bytes, limit: int, *, mode: int | None = None) -> None:
        """Append to a file, durably. Raises ``FileTooLong`` if it would have more than ``limit``
        bytes. With ``mode`` a missing file is made."""
        flags = os.O_WRONLY | os.O_APPEND | (0 if mode is None else os.O_CREAT)
        with self._opened(path, flags, mode or 0) as descriptor:
            if os.fstat(descriptor).st_size + len(data) > limit:
                raise FileTooLong(path, limit)
            _write(descriptor, data)
            os.fsync(descriptor)

    # -- names -------------------------------------------------------------------------------------

    def stat(self, path: str) -> os.stat_result:
        """The status of one file; a link's own status, not its target's."""
        names = names_of(path)
        if not names:
            with self.directory(()) as directory:
                return os.fstat(directory)
        with self.directory(names[:-1]) as parent:
            return os.stat(names[-1], dir_fd=parent, follow_symlinks=False)

    def list(self, path: str, limit: int) -> tuple[list[tuple[str, os.stat_result]], bool]:
        """The entries of a directory by name, at most ``limit``, and whether there are more."""
        with self.directory(names_of(path)) as directory:
            with os.scandir(directory) as entries:
                names = sorted(entry.name for entry in islice(entries, _LOOKED_AT))
            found = [(name, removal.status(directory, name)) for name in names[:limit]]
        return [(name, known) for name, known in found if known is not None], len(names) > limit

    def remove(self, path: str) -> bool:
        """Remove a file, a link or an empty directory; False if there was none."""
        names = _file_names(path)
        try:
            with self.directory(names[:-1]) as parent:
                known = removal.status(parent, names[-1])
                if known is None:
                    return False
                if stat.S_ISDIR(known.st_mode):
                    os.rmdir(names[-1], dir_fd=parent)
                else:
                    os.unlink(names[-1], dir_fd=parent)
                return True
        except FileNotFoundError:
            return False

    def has(self, path: str) -> bool:
        """Whether the name exists."""
        try:
            self.stat(path)
        except FileNotFoundError:
            return False
        return True

    def move(self, path: str, to: str) -> None:
        """Rename something within the folder; a directory replaces no other file."""
        names, new = _file_names(path), _file_names(to)
        with self.directory(names[:-1]) as before, self.directory(new[:-1]) as after:
            os.rename(names[-1], new[-1], src_dir_fd=before, dst_dir_fd=after)

    def move_out(self, path: str, to: GuardedFolder, name: str) -> None:
        """Move something into another folder on the same disk, even a directory whose mode forbids
        it. Raises ``OSError`` with ``EXDEV`` if that folder is on another disk."""
        names = _file_names(path)
        with self.directory(names[:-1]) as parent, to.directory(()) as other:
            known = removal.status(parent, names[-1])
            is_directory = known is not None and stat.S_ISDIR(known.st_mode)
            # Moving a directory updates its ".." entry, so it must be writable.
            with removal.opened(parent, names[-1]) if is_directory else contextlib.nullcontext():
                os.rename(names[-1], name, src_dir_fd=parent, dst_dir_fd=other)

    def set_aside(self, path: str) -> str:
        """Rename something to a free name beside it, and return that name."""
        names = _file_names(path)
        with self.directory(names[:-1]) as parent:
            return "/".join((*names[:-1], _set_aside(parent, names[-1])))

    def make(self, path: str = "", *, mode: int = 0o755) -> None:
        """Make a directory and its missing parents, including the folder itself; it may exist."""
        with self.directory(names_of(path), make=True, mode=mode):
            return

    def clear(self, path: str, *, mode: int = 0o755) -> str:
        """As ``make`` for one directory; something else with that name is renamed first. Returns
        its new name, or an empty string."""
        names, aside = _file_names(path), ""
        with self.directory(names[:-1], make=True, mode=mode) as parent:
            known = removal.status(parent, names[-1])
            if known is not None and not stat.S_ISDIR(known.st_mode):
                aside = _set_aside(parent, names[-1])
            with contextlib.suppress(FileExistsError):
                os.mkdir(names[-1], mode, dir_fd=parent)
        return aside

    def remove_tree(self, path: str, goes_on: Callable[[], bool]) -> bool:
        """Remove a directory with all its content, or any other file.

        ``goes_on()`` is asked before each step. Returns False if it stopped the work; another call
        continues it.
        """
        names = _file_names(path)
        with self.directory(names[:-1]) as parent:
            return removal.remove(parent, names[-1], goes_on)

    # -- directories -------------------------------------------------------------------------------

    @contextmanager
    def directory(
        self, names: Sequence[str], *, make: bool = False, mode: int = 0o755
    ) -> Generator[int]:
        """A descriptor of the directory below, opened without following links; with ``make``,
        missing directories are made, including the folder itself."""
        descriptor = self._open_root(mode if make else None)
        try:
            for name in names:
                if make:
                    with contextlib.suppress(FileExistsError):
                        os.mkdir(name, mode, dir_fd=descriptor)
                below = os.open(name, _DIRECTORY, dir_fd=descriptor)
                os.close(descriptor)
                descriptor = below
            yield descriptor
        finally:
            os.close(descriptor)

    @contextmanager
    def _opened(self, path: str, flags: int, mode: int = 0) -> Generator[int]:
        names = _file_names(path)
        with (
            self.directory(names[:-1]) as parent,
            _plain(parent, names[-1], flags, mode) as descriptor,
        ):
            yield descriptor

    def _open_root(self, mode: int | None) -> int:
        flags = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
        try:
            return os.open(self.root, flags)
        except FileNotFoundError:
            if mode is None:
                raise
        # There may be a link to nothing instead of a directory; opening it raises then.
        with contextlib.suppress(FileExistsError):
            _make(self.root, mode)
        return os.open(self.root, flags)


def _make(path: Path, mode: int) -> None:
    """Make a directory. What is missing above it is no agent's: only its owner gets in, whatever the
    umask."""
    try:
        path.mkdir(mode=mode)
    except FileNotFoundError:
        with contextlib.suppress(FileExistsError):
            _make(path.parent, 0o700)
        path.mkdir(mode=mode)


@contextmanager
def _plain(parent: int, name: str, flags: int, mode: int = 0) -> Generator[int]:
    """Open a plain file; the check is made on the opened descriptor."""
    try:
        descriptor = os.open(name, flags | _FILE, mode, dir_fd=parent)
    except OSError as error:
        known = removal.status(parent, name)
        if known is not None and not stat.S_ISREG(known.st_mode):
            raise NotRegularFile(name, known.st_mode) from error
        raise
    try:
        found = os.fstat(descriptor).st_mode
        if not stat.S_ISREG(found):
            raise NotRegularFile(name, found)
        yield descriptor
    finally:
        os.close(descriptor)


def _file_names(path: str) -> tuple[str, ...]:
    names = names_of(path)
    if not names:
        raise PathEscapes(path)
    return names


def _read(descriptor: int, limit: int, offset: int = 0) -> bytes:
    data = bytearray()
    while len(data) < limit:
        piece = os.pread(descriptor, min(_PIECE, limit - len(data)), offset + len(data))
        if not piece:
            break
        data += piece
    return bytes(data)


def _write(descriptor: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(descriptor, view) :]


def _put(parent: int, name: str, data: bytes, mode: int) -> None:
    descriptor, temporary = _temporary(parent, name, mode)
    try:
        try:
            os.fchmod(descriptor, mode)
            _write(descriptor, data)
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
        os.rename(temporary, name, src_dir_fd=parent, dst_dir_fd=parent)
        # Some network file systems refuse to sync a directory; the rename itself has happened.
        with contextlib.suppress(OSError):
            os.fsync(parent)
    except BaseException:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(temporary, dir_fd=parent)
        raise


def _temporary(parent: int, name: str, mode: int) -> tuple[int, str]:
    """A new file beside ``name``; names that exist already, maybe planted, are skipped."""
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    stem = f".{name[:100]}.{os.getpid()}-{threading.get_native_id()}"
    for number in range(_TRIES):
        temporary = f"{stem}-{number}.part"
        with contextlib.suppress(FileExistsError):
            return os.open(temporary, flags, mode, dir_fd=parent), temporary
    raise FileExistsError(errno.EEXIST, f"too many files stand in the way of {name}")


def _set_aside(parent: int, name: str) -> str:
    for number in range(1, _TRIES):
        aside = f"{name[:200]}{_ASIDE}-{number}"
        if removal.status(parent, aside) is None:
            os.rename(name, aside, src_dir_fd=parent, dst_dir_fd=parent)
            return aside
    raise FileExistsError(errno.EEXIST, f"too many things were set aside for {name}")
