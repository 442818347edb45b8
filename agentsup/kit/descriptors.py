"""File descriptors: how many this process may open, how many are open, and errors from a shortage.

The soft limit of most systems is 1,024, for programs that use ``select``; the hard limit is far
higher. The daemon raises its own, and gives the usual one to the programs that it starts.
"""

from __future__ import annotations

import errno
import os
import resource
from typing import Final

_MOST: Final = 65_536
_USUAL: Final = 1_024
_SHORTAGE: Final = frozenset((errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.ENOBUFS))


def raise_limit() -> int:
    """Raise the soft limit as far as possible; returns the new limit."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = _MOST if hard == resource.RLIM_INFINITY else min(hard, _MOST)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
    return limit()


def lower_limit() -> None:
    """Set the usual soft limit for a program: one that uses ``select`` can't handle more."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY or soft > _USUAL:
        resource.setrlimit(resource.RLIMIT_NOFILE, (_USUAL, hard))


def limit() -> int:
    """The number of descriptors that may be open."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return _MOST if soft == resource.RLIM_INFINITY else soft


def used() -> int:
    """The number of open descriptors."""
    with os.scandir("/dev/fd") as found:  # on Linux a link to /proc/self/fd
        return sum(1 for _ in found)


def is_shortage(error: BaseException | None) -> bool:
    """Whether the error comes from a lack of descriptors or memory, not from the work itself."""
    seen: set[int] = set()
    while error is not None and id(error) not in seen:
        seen.add(id(error))
        if isinstance(error, MemoryError):
            return True
        if isinstance(error, OSError) and error.errno in _SHORTAGE:
            return True
        error = error.__cause__ or error.__context__
    return False
