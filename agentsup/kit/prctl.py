"""Kernel settings of this process: adoption of orphans, protection of its memory, dropping of
rights."""

from __future__ import annotations

import ctypes
import os
import signal
import sys
from collections.abc import Callable
from typing import Final

from agentsup.kit.descriptors import lower_limit
from agentsup.kit.fence import stay_inside

_PR_SET_PDEATHSIG = 1
_PR_SET_DUMPABLE = 4
_PR_SET_CHILD_SUBREAPER = 36
_PR_SET_NO_NEW_PRIVS = 38
_libc = ctypes.CDLL(None, use_errno=True) if sys.platform == "linux" else None


def become_subreaper() -> bool:
    """Make orphaned descendants our children, so that they can be found and reaped.

    Returns False if the system cannot do it. Called once at the start of the daemon.
    """
    return _libc is not None and _libc.prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) == 0


def close_memory() -> bool:
    """Protect this process's memory and environment from the same user (``/proc``, ptrace).

    Its child programs are open again, by their own ``exec``. A program with root's rights still has
    access, and there are no crash dumps. Returns False if the system cannot do it.
    """
    return _libc is not None and _libc.prctl(_PR_SET_DUMPABLE, 0, 0, 0, 0) == 0


_TAKEN_BACK: Final = (signal.SIGINT, signal.SIGQUIT, signal.SIGHUP, signal.SIGTERM, signal.SIGCHLD)
"""Signals whose effect programs rely on; an ignored one stays ignored across exec."""


def before_exec(*, gains_rights: bool, fence: int | None) -> Callable[[], None] | None:
    """The function that the child runs between fork and exec.

    It sets the usual limit of descriptors and the usual effect of signals, which a shell in the
    background or ``nohup`` has changed for the daemon. It asks the kernel for a kill when the
    daemon's thread dies, gives up the gaining of rights (if ``gains_rights`` is false, or with a
    fence), and enters the ``fence``. None if the system is not Linux.
    """
    if _libc is None:
        return None
    prctl, daemon_pid = _libc.prctl, os.getpid()

    def ask() -> None:
        lower_limit()
        for number in _TAKEN_BACK:
            signal.signal(number, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_SETMASK, ())
        prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
        if not gains_rights or fence is not None:
            prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
        if fence is not None:
            stay_inside(fence)
        if os.getppid() != daemon_pid:  # it died between fork and prctl
            os._exit(1)

    return ask
