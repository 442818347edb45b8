"""The one door to files below what an agent can write, where anything may stand under any name.

A pipe keeps its reader for ever, a link leads out of the folder or to a device without end, a file
has a terabyte, a directory stands where a file should be. So nothing here follows a link, also not
one that is put in place between a look and a step; only plain files are opened, without waiting for
anybody; what is read, listed and removed is bounded. All of it blocks: code on the event loop calls
it in a ``kit.pool.BoundedPool``, which adds the limit of time.
"""

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

__all__ = ["Folder", "LeadsOut", "NotPlain", "TooLong", "kind_of", "names_of", "read_plain"]

_DIRECTORY: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_FILE: Final = os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
_PIECE: Final = 1024 * 1024
_LOOKED_AT: Final = 100_000
"""Entries of one directory that are looked at, however many there are."""
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


class NotPlain(OSError):
    """Something else stands where a plain file should be."""

    def __init__(self, name: str, mode: int) -> None:
        super().__init__(errno.EINVAL, f"{name} is {kind_of(mode)}, not a plain file")


class TooLong(OSError):
    """The file has more bytes than are taken."""

    def __init__(self, name: str, limit: int) -> None:
        super().__init__(errno.EFBIG, f"{name} has more than {limit} bytes")
        self.limit = limit


class LeadsOut(PermissionError):
    """A path that is not relative to the folder, or leads out of it."""

    def __init__(self, path: str) -> None:
        super().__init__(errno.EACCES, f"{path[:200]!r} is no path inside the folder")


def kind_of(mode: int) -> str:
    """What a thing of that mode is, in words."""
    return next((words for test, words in _KINDS if test(mode)), "a device")


def names_of(path: str) -> tuple[str, ...]:
    """The names on a relative path. Raises ``LeadsOut``."""
    if "\0" in path or len(path) > _MAX_PATH or path.startswith(("/", "~")):
        raise LeadsOut(path)
    names = tuple(name for name in path.split("/") if name not in ("", "."))
    if ".." in names:
        raise LeadsOut(path)
    return names


def read_plain(path: Path, limit: int) -> bytes:
    """The first ``limit`` bytes of a file that people keep, where links are followed; a pipe or a
    device in its place is refused instead of waited for.

    Raises ``OSError``: ``NotPlain`` among others.
    """
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC)
    try:
        mode = os.fstat(descriptor).st_mode
        if not stat.S_ISREG(mode):
            raise NotPlain(path.name, mode)
        return _read(descriptor, limit)
    finally:
        os.close(descriptor)


class Folder:
    """What lies below one directory. Every path is relative to it; everything raises ``OSError``."""

    def __init__(self, root: Path | str) -> None:
        """``root`` is what an agent's programs are given as a whole: what is below is theirs to
        write, its own name is not."""
        self.root = Path(root)

    # -- files -------------------------------------------------------------------------------------

    def read(self, path: str, limit: int) -> bytes:
        """A whole file. Raises ``TooLong`` beyond ``limit`` bytes, also if it grows meanwhile."""
        with self._opened(path, os.O_RDONLY) as descriptor:
            if os.fstat(descriptor).st_size > limit:
                raise TooLong(path, limit)
            data = _read(descriptor, limit + 1)
        if len(data) > limit:
            raise TooLong(path, limit)
        return data

    def head(self, path: str, limit: int, *, offset: int = 0) -> tuple[bytes, int]:
        """At most ``limit`` bytes of a file from ``offset`` on, and its size."""
        with self._opened(path, os.O_RDONLY) as descriptor:
            return _read(descriptor, limit, offset), os.fstat(descriptor).st_size

    def open(self, path: str) -> IO[bytes]:
        """A file to be read piece by piece, each piece in a pool."""
        with self._opened(path, os.O_RDONLY) as descriptor:
            return os.fdopen(os.dup(descriptor), "rb")

    def write(self, path: str, data: bytes, *, mode: int = 0o644) -> None:
        """Put a whole file in place, durably; what stood there is there until it is safe.

        A link under its name is replaced, not followed; a directory is ``IsADirectoryError``.
        """
        names = _file_names(path)
        with self.directory(names[:-1]) as parent:
            _put(parent, names[-1], data, mode)

    def renew(self, path: str, data: bytes, *, mode: int = 0o644) -> str:
        """As ``write``, unless the file has that content; with the directories on its way. What
        stands there and is no plain file is set aside; the new name of that, or empty."""
        names = _file_names(path)
        with self.directory(names[:-1], make=True) as parent:
            known = _stat(parent, names[-1])
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
        """Make a file unless something has its name; whether it was made."""
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
        """Add to a file, durably. Raises ``TooLong`` where it would have more than ``limit`` bytes.
        With ``mode`` it is made if it is not there."""
        flags = os.O_WRONLY | os.O_APPEND | (0 if mode is None else os.O_CREAT)
        with self._opened(path, flags, mode or 0) as descriptor:
            if os.fstat(descriptor).st_size + len(data) > limit:
                raise TooLong(path, limit)
            _write(descriptor, data)
            os.fsync(descriptor)

    # -- names -------------------------------------------------------------------------------------

    def stat(self, path: str) -> os.stat_result:
        """What one thing is; a link is told as a link."""
        names = names_of(path)
        if not names:
            with self.directory(()) as directory:
                return os.fstat(directory)
        with self.directory(names[:-1]) as parent:
            return os.stat(names[-1], dir_fd=parent, follow_symlinks=False)

    def list(self, path: str, limit: int) -> tuple[list[tuple[str, os.stat_result]], bool]:
        """What is in a directory, by name, at most ``limit``; and whether there is more."""
        with self.directory(names_of(path)) as directory:
            with os.scandir(directory) as entries:
                names = sorted(entry.name for entry in islice(entries, _LOOKED_AT))
            found = [(name, _stat(directory, name)) for name in names[:limit]]
        return [(name, known) for name, known in found if known is not None], len(names) > limit

    def remove(self, path: str) -> bool:
        """Remove a file, a link or an empty directory; False if there was none."""
        names = _file_names(path)
        try:
            with self.directory(names[:-1]) as parent:
                known = _stat(parent, names[-1])
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
        """Whether anything has that name."""
        try:
            self.stat(path)
        except FileNotFoundError:
            return False
        return True

    def move(self, path: str, to: str) -> None:
        """Give something another name in the folder; a directory takes no other's place."""
        names, new = _file_names(path), _file_names(to)
        with self.directory(names[:-1]) as before, self.directory(new[:-1]) as after:
            os.rename(names[-1], new[-1], src_dir_fd=before, dst_dir_fd=after)

    def move_out(self, path: str, to: "Folder", name: str) -> None:
        """Move something into another folder on the same disk, also a directory whose mode forbids
        it. Raises ``OSError`` with ``EXDEV`` where that is on another one."""
        names = _file_names(path)
        with self.directory(names[:-1]) as parent, to.directory(()) as other:
            known = _stat(parent, names[-1])
            is_directory = known is not None and stat.S_ISDIR(known.st_mode)
            # A move writes the directory's entry for what it lies in: it must be writable.
            with removal.opened(parent, names[-1]) if is_directory else contextlib.nullcontext():
                os.rename(names[-1], name, src_dir_fd=parent, dst_dir_fd=other)

    def set_aside(self, path: str) -> str:
        """Give what stands there another name beside it, and return that."""
        names = _file_names(path)
        with self.directory(names[:-1]) as parent:
            return "/".join((*names[:-1], _set_aside(parent, names[-1])))

    def make(self, path: str = "", *, mode: int = 0o755) -> None:
        """A directory with those on its way, the folder itself among them; it may be there."""
        with self.directory(names_of(path), make=True, mode=mode):
            return

    def clear(self, path: str, *, mode: int = 0o755) -> str:
        """As ``make`` for one directory; what stands there and is none is set aside. The new name
        of that, or empty."""
        names, aside = _file_names(path), ""
        with self.directory(names[:-1], make=True, mode=mode) as parent:
            known = _stat(parent, names[-1])
            if known is not None and not stat.S_ISDIR(known.st_mode):
                aside = _set_aside(parent, names[-1])
            with contextlib.suppress(FileExistsError):
                os.mkdir(names[-1], mode, dir_fd=parent)
        return aside

    def remove_tree(self, path: str, goes_on: Callable[[], bool]) -> bool:
        """Remove a directory with all that is in it, or any other thing. ``goes_on`` is asked
        before each step; False if it ended the work first: a next call takes it up."""
        names = _file_names(path)
        with self.directory(names[:-1]) as parent:
            return removal.remove(parent, names[-1], goes_on)

    # -- directories -------------------------------------------------------------------------------

    @contextmanager
    def directory(
        self, names: Sequence[str], *, make: bool = False, mode: int = 0o755
    ) -> Generator[int]:
        """A descriptor of the directory below, reached without a link; ``make`` what is missing,
        the folder itself among it."""
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
        # A link to nothing is there, and no directory: opening it says so.
        with contextlib.suppress(FileExistsError):
            self.root.mkdir(mode=mode, parents=True)
        return os.open(self.root, flags)


@contextmanager
def _plain(parent: int, name: str, flags: int, mode: int = 0) -> Generator[int]:
    """Open a plain file; what is checked is what was opened."""
    try:
        descriptor = os.open(name, flags | _FILE, mode, dir_fd=parent)
    except OSError as error:
        known = _stat(parent, name)
        if known is not None and not stat.S_ISREG(known.st_mode):
            raise NotPlain(name, known.st_mode) from error
        raise
    try:
        found = os.fstat(descriptor).st_mode
        if not stat.S_ISREG(found):
            raise NotPlain(name, found)
        yield descriptor
    finally:
        os.close(descriptor)


def _file_names(path: str) -> tuple[str, ...]:
    names = names_of(path)
    if not names:
        raise LeadsOut(path)
    return names


def _stat(parent: int, name: str) -> os.stat_result | None:
    try:
        return os.stat(name, dir_fd=parent, follow_symlinks=False)
    except FileNotFoundError:
        return None


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
    """A new file beside ``name``; a name that is taken, by whatever was planted there, is passed."""
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
        if _stat(parent, aside) is None:
            os.rename(name, aside, src_dir_fd=parent, dst_dir_fd=parent)
            return aside
    raise FileExistsError(errno.EEXIST, f"too many things were set aside for {name}")
