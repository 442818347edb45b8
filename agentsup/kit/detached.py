"""Start of a program that outlives us: it has its own session and shares only a log file. And of one
that has our terminal meanwhile.

Programs that must not outlive us are started by ``kit.procgroup``.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Mapping, Sequence
from pathlib import Path


def start_detached(
    argv: Sequence[str], *, env: Mapping[str, str], log: Path, stdin: int | None = None
) -> int:
    """Start ``argv`` with its output appended to ``log``; returns its pid.

    ``env`` is its whole environment; ``stdin`` is a descriptor for its standard input, which is
    empty without one. Raises ``OSError`` if it can't be started.
    """
    flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND
    nothing = (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0)
    actions = [
        nothing if stdin is None else (os.POSIX_SPAWN_DUP2, stdin, 0),
        (os.POSIX_SPAWN_OPEN, 1, os.fspath(log), flags, 0o600),
        (os.POSIX_SPAWN_DUP2, 1, 2),
    ]
    return os.posix_spawn(argv[0], list(argv), dict(env), file_actions=actions, setsid=True)


def exit_code_of(pid: int) -> int | None:
    """The exit code of our child ``pid``; None while it runs, or if it is not our child."""
    try:
        found, status = os.waitpid(pid, os.WNOHANG)
    except ChildProcessError:
        return None
    return os.waitstatus_to_exitcode(status) if found else None


def run_in_terminal(argv: Sequence[str]) -> int:
    """Run a program that has the terminal, such as an editor; returns its exit code. Blocks.

    It gets all of our environment. Ctrl-C is for it alone. Raises ``OSError`` if it can't be started.
    """
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        pid = os.posix_spawnp(argv[0], list(argv), os.environ, setsigdef=[signal.SIGINT])
        return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    finally:
        signal.signal(signal.SIGINT, before)
