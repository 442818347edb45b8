"""Starting a program that is to outlive us: a session of its own, nothing shared but a log file.

The other door for processes, `kit.procgroup`, is for children that must not outlive us.
"""

import os
from collections.abc import Mapping, Sequence
from pathlib import Path

__all__ = ["exit_code_of", "start_detached"]


def start_detached(
    argv: Sequence[str], *, env: Mapping[str, str], log: Path, stdin: int | None = None
) -> int:
    """Start `argv` with its output appended to `log`; returns its pid.

    `env` is its whole environment, `stdin` a descriptor for its standard input, which is empty
    without one. Raises `OSError` where it can't be started.
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
    """How the child `pid` of ours ended; None while it runs."""
    try:
        found, status = os.waitpid(pid, os.WNOHANG)
    except ChildProcessError:
        return None
    return os.waitstatus_to_exitcode(status) if found else None
