"""Exit codes of our children from the kernel, without waiting."""

from __future__ import annotations

import os

_LOST_EXIT_CODE = 255


def peek_exit(pid: int) -> int | None:
    """The exit code of a child that has ended; it stays a zombie if the system supports that."""
    if not hasattr(os, "waitid"):
        return collect(pid)
    try:
        found = os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    except ChildProcessError:
        return _LOST_EXIT_CODE
    if found is None:
        return None
    return found.si_status if found.si_code == os.CLD_EXITED else -found.si_status


def collect(pid: int) -> int | None:
    """Collect one dead child (``-pgid``: of that group); its exit code, None if there is none."""
    try:
        found, status = os.waitpid(pid, os.WNOHANG)
    except ChildProcessError:
        # Not our child, or someone else collected it and its code is lost.
        return _LOST_EXIT_CODE if pid > 0 else None
    return os.waitstatus_to_exitcode(status) if found else None
