"""What the programs of agents can't reach, whoever's rights they run with: the kernel's own fence.

A program runs as the daemon's user, so file modes keep nothing of that user from it. Linux offers
an unprivileged program to give up access to files for itself and all it starts (Landlock, see
``landlock(7)``). Its rules only open; what is closed is what no rule reaches. So a fence opens what
lies beside the way to a closed place, as it is there at that moment, then the places inside it that
belong to this program. Directories on the way themselves can be passed, but not listed, and nothing
new can be made in them. A fenced program also can't signal or trace a process outside its fence.

Closed stays closed for all descendants, through links, mounts and descriptors of ``/proc``.
"""

import ctypes
import os
import platform
import stat
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from typing import Final

__all__ = ["Fence", "FenceUnavailable", "gaps", "rules_of", "stay_inside", "version"]

_CREATE_RULESET: Final = 444  # the same number on every architecture that Linux knows
_ADD_RULE: Final = 445
RESTRICT_SELF: Final = 446
_ASK_VERSION: Final = 1
_PATH_BENEATH: Final = 1

# Rights by the version that brought them (linux/landlock.h).
_OF_FILES: Final = {1: 0b111, 3: 1 << 14, 5: 1 << 15}
"""Execute, write, read; truncate; device control: what a rule for a file may say."""
_OF_DIRECTORIES: Final = {1: 0b1_1111_1111_1000, 2: 1 << 13}
"""List, remove, make; move between directories."""
_SCOPE_SIGNAL: Final = {6: 1 << 1}
OLDEST: Final = 2
"""Version 1 forbids every move between directories, which breaks what programs do all day."""
WHOLE: Final = 3
"""Before it, a closed file could still be cut to nothing (Linux 6.2)."""


class FenceUnavailable(OSError):
    """The kernel has no such fence, or an older one than is needed."""


@dataclass(frozen=True, slots=True)
class Fence:
    """Absolute paths: ``closed`` to a program, but for what lies in ``opened``."""

    closed: tuple[str, ...]
    opened: tuple[str, ...] = ()


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
    """The version of the kernel's fence; 0: there is none."""
    libc = _libc()
    if libc is None:
        return 0
    return max(0, int(libc.syscall(_CREATE_RULESET, None, 0, _ASK_VERSION)))


def rules_of(fence: Fence) -> int:
    """A descriptor of the fence's rules for ``ProcessGroup.spawn``, the caller's to close.

    Blocks for a millisecond or, where thousands of files lie beside the way to a closed place,
    some more. What is made there later is closed too, and so is what can't be opened. Raises
    ``FenceUnavailable`` where the system has none, ``OSError`` where it has and this one can't be.
    """
    libc, known = _libc(), version()
    if libc is None or known < OLDEST:
        raise FenceUnavailable(
            f"this system ({platform.system()} {platform.release()}) can't keep programs from "
            "files: it takes Linux 5.19 or newer with Landlock"
        )
    files, directories = _upto(_OF_FILES, known), _upto(_OF_DIRECTORIES, known)
    wanted = _Attributes(files | directories, 0, _upto(_SCOPE_SIGNAL, known))
    ruleset = libc.syscall(
        _CREATE_RULESET, ctypes.byref(wanted), ctypes.c_size_t(ctypes.sizeof(wanted)), 0
    )
    if ruleset < 0:
        raise OSError(ctypes.get_errno(), "the kernel refuses to make a fence")
    try:
        for path in gaps(fence):
            _open_beneath(libc, ruleset, path, files, directories)
    except BaseException:
        os.close(ruleset)
        raise
    return int(ruleset)


def stay_inside(rules: int) -> None:
    """Fence in this very process for good, and all it starts. For the moment before ``exec``, with
    nothing allocated but what a call takes. Raises ``OSError``."""
    libc = _libc()
    if libc is None or libc.syscall(RESTRICT_SELF, rules, 0) != 0:
        raise OSError(ctypes.get_errno(), "the fence can't be closed")


def gaps(fence: Fence) -> Iterator[str]:
    """The highest paths that lie in no closed place, and those of what is opened inside one."""
    closed = {os.path.realpath(path) for path in fence.closed}
    opened = [os.path.realpath(path) for path in fence.opened]
    # What holds a closed place is opened around it; one inside what is opened stays closed.
    yield from _around(os.sep, closed)
    for path in opened:
        if any(_is_in(path, each) for each in closed):
            yield from _around(path, {each for each in closed if _is_in(each, path)} - {path})


def _around(path: str, closed: set[str]) -> Iterator[str]:
    if path in closed:
        return
    if not any(_is_in(each, path) for each in closed):
        yield path
        return
    try:
        with os.scandir(path) as entries:
            names = [entry.path for entry in entries if not entry.is_symlink()]
    except OSError:
        return  # what can't be listed by us stays closed
    for each in names:
        yield from _around(each, closed)


def _is_in(path: str, folder: str) -> bool:
    return path == folder or path.startswith(folder.rstrip(os.sep) + os.sep)


def _open_beneath(libc: ctypes.CDLL, ruleset: int, path: str, files: int, directories: int) -> None:
    try:
        descriptor = os.open(path, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError:
        return  # gone since it was seen
    try:
        mode = os.fstat(descriptor).st_mode
        rights = files | directories if stat.S_ISDIR(mode) else files
        rule = _Beneath(rights, descriptor)
        # What the kernel has no rule for stays closed, rather than all being open for its sake.
        libc.syscall(_ADD_RULE, ruleset, _PATH_BENEATH, ctypes.byref(rule), 0)
    finally:
        os.close(descriptor)


def _upto(rights: dict[int, int], known: int) -> int:
    return sum(bits for since, bits in rights.items() if since <= known)


@cache
def _libc() -> ctypes.CDLL | None:
    return ctypes.CDLL(None, use_errno=True) if sys.platform == "linux" else None
