"""The state file of a daemon's small parent (``kit.keeper``), and the way to start it."""

from __future__ import annotations

import contextlib
import fcntl
import os
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from agentsup.kit import keeper
from agentsup.kit.detached import start_detached


@dataclass(frozen=True, slots=True)
class KeeperStatus:
    """A keeper's present action, or its last one when it ended."""

    pid: int
    child: int
    """The daemon that it runs; 0 between two of them."""
    state: str
    code: int
    """With which the daemon before this one ended; 0 if there was none."""
    failures: int
    """Within the window; at most ``keeper.MAX_RESTARTS`` are followed by a start."""
    until_s: float
    """When it starts the next one, in wall time; 0 unless it waits."""
    is_alive: bool

    @property
    def is_waiting(self) -> bool:
        """Whether no daemon runs, but one will be started."""
        return self.is_alive and self.state == keeper.WAITING


def start_keeper(status: Path, command: Sequence[str], env: Mapping[str, str], log: Path) -> int:
    """Start a keeper of ``command`` that outlives us; returns its pid. Raises ``OSError``."""
    bare = [sys.executable, "-I", "-S", keeper.__file__, os.fspath(status)]
    return start_detached([*bare, *command], env=env, log=log)


def read_status(path: Path) -> KeeperStatus | None:
    """The status in ``path``; None if no keeper was there, or it ended as was wanted."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
    except OSError:
        return None
    try:
        is_alive = False
        with contextlib.suppress(OSError):
            try:
                fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
            except BlockingIOError:
                is_alive = True
        found = _parsed(os.pread(descriptor, keeper.LINE_BYTES, 0), is_alive=is_alive)
    except OSError:
        found = None
    finally:
        os.close(descriptor)
    return found


def _parsed(line: bytes, *, is_alive: bool) -> KeeperStatus | None:
    words = line.decode("ascii", "replace").split()
    try:
        pid, child, state, code, failures, until_s = words
        return KeeperStatus(
            int(pid), int(child), state, int(code), int(failures), float(until_s), is_alive
        )
    except ValueError:
        return None


def restarted_by(path: Path, environ: Mapping[str, str]) -> str:
    """The name of the thing that restarts this process: ``systemd``, ``container``, ``parent`` (the
    keeper whose status is in ``path``) or ``nothing``."""
    if "INVOCATION_ID" in environ or "NOTIFY_SOCKET" in environ:
        return "systemd"
    # In the session of process 1 we are what the container runs; elsewhere nobody watches us.
    if os.getpid() == 1 or os.getsid(0) == 1:
        return "container"
    return "parent" if has_keeper(path) else "nothing"


def has_keeper(path: Path) -> bool:
    """Whether our own parent is the keeper whose status is in ``path``."""
    found = read_status(path)
    return found is not None and found.is_alive and found.pid == os.getppid()
