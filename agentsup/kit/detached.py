"""Starting a program that is to outlive us: a session of its own, nothing shared but a log file.

The other door for processes, `kit.procgroup`, is for children that must not outlive us.
"""

import os
from collections.abc import Mapping, Sequence
from pathlib import Path

__all__ = ["exit_code_of", "start_detached"]


def start_detached(argv: Sequence[str], *, env: Mapping[str, str], log: Path) -> int:
    """Start `argv` with an empty standard input and its output appended to `log`; returns its pid.

    `env` is its whole environment. Raises `OSError` where it can't be started.
    """
    flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND
    actions = [
        (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0),
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
