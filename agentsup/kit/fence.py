"""The program fence: what the kernel keeps agents' programs from, whatever rights they have.

A program runs as the daemon's user, so file modes do not keep it from that user's files. Linux lets
an unprivileged program give up access to files for itself and all its descendants (Landlock, see
``landlock(7)``). Its rules only open; a path that no rule covers is closed. So a fence names the
few places in which the program may write. For reading it has rules for everything beside the way to
a closed path, as it exists at that moment, and for the paths inside it that belong to this program.
The directories on the way themselves can be passed, but not listed. A fenced program also can't
signal or trace a process outside its fence, nor reach its abstract sockets.

The fence holds for all descendants, through links, other mounts of the same file system and
descriptors of ``/proc``. Landlock has no right for some actions, which stay possible: to read a
file's status (``stat``), to change its mode, times and extended attributes, to watch its changes
(inotify), and, before version 9, to connect to a socket by its path.
"""

from __future__ import annotations

import ctypes
import os
import platform
import re
import stat
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Final, NamedTuple

_CREATE_RULESET: Final = 444  # the same number on every architecture that Linux knows
_ADD_RULE: Final = 445
RESTRICT_SELF: Final = 446
_ASK_VERSION: Final = 1
_PATH_BENEATH: Final = 1

# Rights by the Landlock version that introduced them (linux/landlock.h).
_OF_FILES: Final = {1: 0b111, 3: 1 << 14, 5: 1 << 15}
"""Execute, write, read; truncate; device control: the rights that a rule for a file may have."""
_OF_DIRECTORIES: Final = {1: 0b1_1111_1111_1000, 2: 1 << 13}
"""List, remove, make; move between directories."""
_OF_SOCKETS: Final = {9: 1 << 16}
"""Connect to a socket by its path."""
_READ_FILES: Final = {1: 0b101}
_READ_DIRECTORIES: Final = {1: 0b1000}
_OCTAL: Final = re.compile(r"\\([0-7]{3})")
_LINKS: Final = 40
"""The most links that the kernel follows."""
_SCOPE_SOCKETS: Final = {6: 1 << 0}
"""Abstract sockets that were made outside the fence."""
SCOPE_SIGNAL: Final = {6: 1 << 1}
"""Signals to processes outside the fence."""
OLDEST: Final = 2
"""Version 1 forbids every move between directories, which programs need all the time."""
WHOLE: Final = 3
"""Before it, a closed file could still be truncated (Linux 6.2)."""
SCOPED: Final = 6
"""Before it, signals and abstract sockets cross the fence (Linux 6.12)."""
SOCKETS: Final = 9
"""Before it, a program can connect to any socket with a path (Linux 7.1)."""
_EVERY_PROGRAMS: Final = (
    *("/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom"),
    *("/dev/tty", "/dev/ptmx", "/dev/pts", "/dev/shm", "/dev/dri", "/dev/kfd"),  # noqa: S108 - fixed
    *(f"/dev/nvidia{each}" for each in ("ctl", "-uvm", "-uvm-tools", "-modeset", *range(16))),
    "/proc",
)
"""Paths to which every program may write: devices that hold no data, terminals, shared memory,
graphics processors. The kernel itself decides who may write which file of a process; sandboxes of
browsers write there."""


class FenceUnavailable(OSError):
    """The kernel has no Landlock, or an older version than needed."""


@dataclass(frozen=True, slots=True)
class Fence:
    """The absolute paths of a fence; links that lead to a closed one can't be replaced.

    ``closed`` is inaccessible, except what lies in ``opened`` (to read and write) and in ``shown``
    (to read). Everything else can be read, and only ``opened``, ``writable`` and what every program
    needs can be written. ``writable`` opens nothing that is closed. ``sockets``: paths of sockets
    it may connect to, besides those in ``opened``.
    """

    closed: tuple[str, ...]
    opened: tuple[str, ...] = ()
    writable: tuple[str, ...] = ()
    shown: tuple[str, ...] = ()
    sockets: tuple[str, ...] = ()


class Gap(NamedTuple):
    """A path that a rule opens, with everything below it."""

    path: str
    is_writable: bool = True


class _Attributes(ctypes.Structure):
    _fields_ = (
        ("handled_access_fs", ctypes.c_uint64),
        ("handled_access_net", ctypes.c_uint64),
        ("scoped", ctypes.c_uint64),
    )


class _Beneath(ctypes.Structure):
    _pack_ = 1
    _fields_ = (("allowed_access", ctypes.c_uint64), ("parent_fd", ctypes.c_int32))


@cache
def version() -> int:
    """The version of the kernel's Landlock; 0: there is none."""
    libc = _libc()
    if libc is None:
        return 0
    return max(0, int(libc.syscall(_CREATE_RULESET, None, 0, _ASK_VERSION)))


def rules_of(fence: Fence) -> int:
    """A descriptor of the fence's rules for ``ProcessGroup.spawn``; the caller must close it.

    Blocks for a millisecond, or longer if thousands of files lie beside the way to a closed path.
    Files made there later are closed too, and so are those that can't be opened. Raises
    ``FenceUnavailable`` if the system has no Landlock, ``OSError`` if it refuses this fence.
    """
    libc, known = _libc(), version()
    if libc is None or known < OLDEST:
        raise FenceUnavailable(
            f"this system ({platform.system()} {platform.release()}) can't keep programs from "
            "files: it takes Linux 5.19 or newer with Landlock"
        )
    rights = _Rights.of(known)
    wanted = _Attributes(
        rights.handled, 0, _upto(SCOPE_SIGNAL, known) | _upto(_SCOPE_SOCKETS, known)
    )
    ruleset = libc.syscall(
        _CREATE_RULESET, ctypes.byref(wanted), ctypes.c_size_t(ctypes.sizeof(wanted)), 0
    )
    if ruleset < 0:
        raise OSError(ctypes.get_errno(), "the kernel refuses to make a fence")
    try:
        for gap in gaps(fence):
            _open_beneath(libc, ruleset, gap.path, *rights.of_gap(gap))
        if rights.sockets:
            for path in (*fence.opened, *fence.sockets):
                _open_beneath(libc, ruleset, os.path.realpath(path), rights.sockets, rights.sockets)
    except BaseException:
        os.close(ruleset)
        raise
    return int(ruleset)


def stay_inside(rules: int) -> None:
    """Fence in this process and its descendants, irrevocably.

    For the moment before ``exec``: allocates only what a call needs. Raises ``OSError``.
    """
    libc = _libc()
    if libc is None or libc.syscall(RESTRICT_SELF, rules, 0) != 0:
        raise OSError(ctypes.get_errno(), "the fence can't be closed")


def gaps(fence: Fence) -> Iterator[Gap]:
    """The paths to open. A directory that contains a closed path is opened around it; a closed path
    inside an opened one stays closed."""
    known = mounts()
    real = {each for path in fence.closed for each in _on_the_way(path)}
    closed = real.union(*(second_paths(path, known) for path in real))
    yield from (Gap(path, is_writable=False) for path in _around(os.sep, closed))
    for path in map(os.path.realpath, fence.shown):
        yield from (Gap(each, is_writable=False) for each in _around(path, _inside(closed, path)))
    opened = [os.path.realpath(path) for path in fence.opened]
    for path in (*opened, *_writable(fence, closed)):
        yield from map(Gap, _around(path, _inside(closed, path)))


def _writable(fence: Fence, closed: set[str]) -> Iterator[str]:
    """The paths to which programs may write beside what is opened, without links.

    A link that programs could have made, since it lies where they write, is not followed.
    """
    named = (*_EVERY_PROGRAMS, *fence.writable)
    areas = {os.path.realpath(path) for path in named}
    for name in named:
        path, *links = _on_the_way(name)
        is_covered = any(path != area and is_in(path, area) for area in areas)
        is_theirs = any(is_in(link, area) for link in links for area in (*areas, *closed))
        if not (is_covered or is_theirs or any(is_in(path, each) for each in closed)):
            yield path


def _on_the_way(path: str) -> Iterator[str]:
    """The target of ``path`` (absolute), and each link on the way: replacing such a link would
    redirect ``path``. A link is named by the real path of its directory."""
    yield os.path.realpath(path)
    here, names, followed = os.sep, list(reversed(Path(path).parts)), 0
    while names and followed < _LINKS:
        # An absolute name starts again at the root.
        here = os.path.normpath(os.path.join(here, names.pop()))  # noqa: PTH118 - no links before it
        try:
            target = os.readlink(here)  # noqa: PTH115 - as above
        except OSError:
            continue
        yield here
        followed += 1
        here = os.path.dirname(here)  # noqa: PTH120 - as above
        names += reversed(Path(target).parts)


def _inside(paths: set[str], folder: str) -> set[str]:
    return {each for each in paths if each != folder and is_in(each, folder)}


def _around(path: str, closed: set[str]) -> Iterator[str]:
    """The highest paths in ``path`` that contain nothing closed, and itself if it contains none."""
    if path in closed:
        return
    closed = _inside(closed, path)
    if not closed:
        yield path
        return
    try:
        with os.scandir(path) as entries:
            names = [entry.path for entry in entries if not entry.is_symlink()]
    except OSError:
        return  # what we can't list stays closed
    for each in names:
        yield from _around(each, closed)


class _Rights(NamedTuple):
    """The bits of one Landlock version."""

    files: int
    directories: int
    read_files: int
    read_directories: int
    sockets: int

    @classmethod
    def of(cls, known: int) -> _Rights:
        return cls(
            _upto(_OF_FILES, known),
            _upto(_OF_DIRECTORIES, known),
            _upto(_READ_FILES, known),
            _upto(_READ_DIRECTORIES, known),
            _upto(_OF_SOCKETS, known),
        )

    @property
    def handled(self) -> int:
        """The rights that are refused unless a rule allows them."""
        return self.files | self.directories | self.sockets

    def of_gap(self, gap: Gap) -> tuple[int, int]:
        """The rights of a rule for this path: for a file, and for a directory with everything below
        it."""
        if gap.is_writable:
            return self.files, self.files | self.directories
        return self.read_files, self.read_files | self.read_directories


def _open_beneath(libc: ctypes.CDLL, ruleset: int, path: str, files: int, directories: int) -> None:
    """Add a rule with the rights ``files`` for a file, ``directories`` for a directory."""
    try:
        descriptor = os.open(path, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError:
        return  # gone since it was seen
    try:
        mode = os.fstat(descriptor).st_mode
        rule = _Beneath(directories if stat.S_ISDIR(mode) else files, descriptor)
        # A rule that the kernel refuses is left out: its path stays closed.
        libc.syscall(_ADD_RULE, ruleset, _PATH_BENEATH, ctypes.byref(rule), 0)
    finally:
        os.close(descriptor)


def _upto(rights: dict[int, int], known: int) -> int:
    return sum(bits for since, bits in rights.items() if since <= known)


@cache
def _libc() -> ctypes.CDLL | None:
    return ctypes.CDLL(None, use_errno=True) if sys.platform == "linux" else None


# -- the other paths to a file: a bind mount, a subvolume, a second mount of the same disk ----------


class Mount(NamedTuple):
    """One line of ``/proc/self/mountinfo``: the directory ``root`` of ``device`` is at ``point``."""

    device: str
    root: str
    point: str


def mounts(table: Path = Path("/proc/self/mountinfo")) -> tuple[Mount, ...]:
    """The mounts that this process sees; empty if the system does not list them."""
    try:
        lines = table.read_bytes().decode("utf-8", "surrogateescape").splitlines()
    except OSError:
        return ()
    rows = (line.split(" ") for line in lines)
    return tuple(Mount(row[2], _plain(row[3]), _plain(row[4])) for row in rows if len(row) > 5)


def second_paths(path: str, known: Iterable[Mount]) -> set[str]:
    """The other paths to ``path`` (absolute, without links), or to a part of what is below it."""
    table = tuple(known)
    # Of several mounts at one point the last one is visible.
    points = [each for each in reversed(table) if is_in(path, each.point)]
    if not points:
        return set()
    own = max(points, key=lambda each: len(each.point))
    inner = _joined(own.root, os.path.relpath(path, own.point))
    same = [each for each in table if each.device == own.device]
    found = {_joined(m.point, os.path.relpath(inner, m.root)) for m in same if is_in(inner, m.root)}
    return (found | {m.point for m in same if is_in(m.root, inner)}) - {path}


def _joined(folder: str, below: str) -> str:
    return os.path.normpath(os.path.join(folder, below))  # noqa: PTH118 - words, no files


def is_in(path: str, folder: str) -> bool:
    """Whether ``path`` is ``folder`` or lies below it; both are whole paths without links."""
    return path == folder or path.startswith(folder.rstrip(os.sep) + os.sep)


def _plain(word: str) -> str:
    """A path of the table, with octal numbers decoded (for blanks and similar characters)."""
    return _OCTAL.sub(lambda found: chr(int(found[1], 8)), word)
