"""How many files and sockets this process may have open, how many it has, and what lacks one.

The soft limit of most systems is 1,024, for programs that can't count further; the hard one is far
above it. The daemon raises its own, and gives the programs it starts the usual one.
"""

import errno
import os
import resource
from typing import Final

__all__ = ["is_shortage", "limit", "lower_limit", "raise_limit", "used"]

_MOST: Final = 65_536
_USUAL: Final = 1_024
_SHORTAGE: Final = frozenset((errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.ENOBUFS))


def raise_limit() -> int:
    """Raise the soft limit as far as it goes; what it is now."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = _MOST if hard == resource.RLIM_INFINITY else min(hard, _MOST)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
    return limit()


def lower_limit() -> None:
    """Set the soft limit that programs expect: one that uses ``select`` can't count further."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY or soft > _USUAL:
        resource.setrlimit(resource.RLIMIT_NOFILE, (_USUAL, hard))


def limit() -> int:
    """How many may be open."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return _MOST if soft == resource.RLIM_INFINITY else soft


def used() -> int:
    """How many are open."""
    with os.scandir("/dev/fd") as found:  # on Linux a link to /proc/self/fd
        return sum(1 for _ in found)


def is_shortage(error: BaseException | None) -> bool:
    """Whether this machine lacked descriptors or memory: no fault of what was being worked on."""
    seen: set[int] = set()
    while error is not None and id(error) not in seen:
        seen.add(id(error))
        if isinstance(error, MemoryError):
            return True
        if isinstance(error, OSError) and error.errno in _SHORTAGE:
            return True
        error = error.__cause__ or error.__context__
    return False
