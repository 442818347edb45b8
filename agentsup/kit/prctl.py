"""What a process asks of the kernel for itself: to adopt, to close its memory, to give up rights."""

import ctypes
import os
import signal
import sys
from collections.abc import Callable
from typing import Final

from agentsup.kit import seccomp
from agentsup.kit.descriptors import lower_limit
from agentsup.kit.fence import stay_inside

__all__ = ["become_subreaper", "before_exec", "close_memory"]

_PR_SET_PDEATHSIG = 1
_PR_SET_DUMPABLE = 4
_PR_SET_CHILD_SUBREAPER = 36
_PR_SET_NO_NEW_PRIVS = 38
_libc = ctypes.CDLL(None, use_errno=True) if sys.platform == "linux" else None


def become_subreaper() -> bool:
    """Make orphaned descendants our children, so that they can be found and reaped.

    Returns False where the system cannot do it. To be called once at the start of the daemon.
    """
    return _libc is not None and _libc.prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) == 0


def close_memory() -> bool:
    """Keep this process's memory and environment from programs of the same user (`/proc`, ptrace).

    What it starts is open again, by its own `exec`. Who has the rights of root still gets in, and
    there are no crash dumps. Returns False where the system cannot do it.
    """
    return _libc is not None and _libc.prctl(_PR_SET_DUMPABLE, 0, 0, 0, 0) == 0


_TAKEN_BACK: Final = (signal.SIGINT, signal.SIGQUIT, signal.SIGHUP, signal.SIGTERM, signal.SIGCHLD)
"""Signals whose effect programs rely on; an ignored one stays ignored across exec."""


def before_exec(*, gains_rights: bool, fence: int | None) -> Callable[[], None] | None:
    """What the child runs between fork and exec: take the usual limit of descriptors and the usual
    effect of signals, which a shell in the background or `nohup` has changed for us, ask to be killed when this thread dies, give up what rights there are to gain, and go behind the fence, with
    the filter of system calls where the system has one."""
    if _libc is None:
        return None
    prctl, daemon_pid = _libc.prctl, os.getpid()
    refuse_calls = seccomp.installer() if fence is not None else None

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
        if refuse_calls is not None:
            refuse_calls()
        if os.getppid() != daemon_pid:  # it died between fork and prctl
            os._exit(1)

    return ask
