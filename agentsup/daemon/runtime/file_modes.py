"""Modes of the daemon's own files in its home: checked and corrected at the start.

The program fence does not cover modes: a fenced program can open the home to other users, or take a
file from the daemon itself (``chmod 000``). So modes are corrected before anything is read.
"""

from __future__ import annotations

import contextlib
import os
import stat
from collections import deque
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Final

from agentsup.config import Home
from agentsup.kit.clock import SystemClock
from agentsup.kit.log import get_logger
from agentsup.kit.pool import PoolTimeout, in_time

_log = get_logger(__name__)

_OTHERS: Final = 0o077
_ACL: Final = "system.posix_acl_"
_ENTRIES: Final = 5000
"""The number of entries that are checked at most, and in one folder."""
_SHOWN: Final = 5
_PER_KIND: Final = ("engine-settings", "engine-home", "mcp")
"""In an agent's folder, and in the folder of each other person below ``persons``: these hold one
folder for each kind of program."""
_OURS: Final = frozenset(
    (
        *("logs", "backups", "agents", "tasks", "roles", "applied"),
        *("store.json", "state.db", "state.db-wal", "state.db-shm"),
        *("agentsup.lock", "agentsup.keeper", "daemon.json"),
        *("config.toml", "agents.json", "SHAREDMEMORY.md"),
    )
)
"""Names in the home below which the daemon must be able to write."""
_WALK_S: Final = 2.0
LIMIT_S: Final = 10.0
"""The time in seconds for the whole check; a network share in the home may not answer."""


@dataclass(frozen=True, slots=True)
class RestoredMode:
    """One file or folder whose mode was wrong."""

    path: Path
    was: int
    now: int

    @property
    def was_taken(self) -> bool:
        """Whether its owner lacked a right, which does not happen by mistake."""
        return bool(self.now & 0o700 & ~self.was)

    def __str__(self) -> str:
        return f"{self.path} ({self.was:o}, now {self.now:o})"


def restore_at_start(home: Home) -> list[RestoredMode]:
    """As ``restore``, but return nothing if a part of the home does not answer in ``LIMIT_S``.

    The start goes on then. Raises ``OSError``.
    """
    try:
        return in_time(partial(restore, home), LIMIT_S)
    except PoolTimeout:
        return []


def restore(home: Home) -> list[RestoredMode]:
    """Give the daemon's files the modes that they need, and nobody else access to the home, its
    file ``environment`` and its secrets; blocks.

    Directories are corrected before their entries are checked. Symbolic links, other file systems,
    the files of other users, which can't be changed, and what programs have in their own folders
    are skipped. The walk ends after ``_ENTRIES`` entries or ``_WALK_S`` seconds. The operator's
    token is checked by ``daemon.runtime.tokens``.
    """
    found = []
    for path, needed in _needed_modes(home):
        is_closed = path in {home.root, home.environment, home.secrets} or (
            path.parent == home.secrets
        )
        found.append(_put_right(path, needed, _OTHERS if is_closed else 0))
    return [each for each in found if each is not None]


def _needed_modes(home: Home) -> Iterator[tuple[Path, int]]:
    """Each path with the mode bits that its owner needs."""
    root, clock = home.root, SystemClock()
    yield root, 0o700
    try:
        device = root.stat().st_dev
    except OSError:
        return
    until, left, waiting = clock.monotonic() + _WALK_S, _ENTRIES, deque([root])
    while waiting:
        for path in _entries(waiting.popleft()):
            left -= 1
            if left < 0 or clock.monotonic() > until:
                return
            try:
                known = path.lstat()
            except OSError:
                continue
            parts = path.relative_to(root).parts
            is_ours = parts[0] in _OURS
            if stat.S_ISDIR(known.st_mode):
                yield path, 0o700 if is_ours else 0o500
                if known.st_dev == device and not _is_of_programs(parts):
                    waiting.append(path)
            elif stat.S_ISREG(known.st_mode) and path != home.api_token:
                yield path, 0o600 if is_ours else 0o400


def _is_of_programs(parts: tuple[str, ...]) -> bool:
    """Whether the content of this folder, by its path in the home, belongs to a program or task."""
    if parts[0] != "agents":
        return parts[0] == "tasks" and len(parts) == 2
    below = parts[4:] if parts[2:3] == ("persons",) else parts[2:]
    return len(below) == 2 or (len(below) == 1 and below[0] not in _PER_KIND)


def _entries(folder: Path) -> list[Path]:
    try:
        with os.scandir(folder) as found:
            return sorted(Path(entry.path) for entry in islice(found, _ENTRIES))
    except OSError:
        return []


def _put_right(path: Path, needed: int, refused: int) -> RestoredMode | None:
    try:
        # O_PATH needs no right to read; the descriptor is of the file that was checked.
        descriptor = os.open(path, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        known = os.fstat(descriptor)
        if stat.S_ISLNK(known.st_mode) or known.st_uid != os.geteuid():
            return None
        was = stat.S_IMODE(known.st_mode)
        now = (was | needed) & ~refused
        if was == now:
            return None
        way = f"/proc/self/fd/{descriptor}"
        os.chmod(way, now)  # noqa: PTH101 - a descriptor
        # ACL entries of single users are limited by the group bits, so they are removed as well.
        for name in (f"{_ACL}access", f"{_ACL}default"):
            with contextlib.suppress(OSError):
                os.removexattr(way, name)
        return RestoredMode(path, was, now)
    except OSError as error:
        _log.error("a mode can't be put right", path=str(path), reason=str(error))
        return None
    finally:
        os.close(descriptor)


@dataclass(slots=True)
class StartModes:
    """Corrections at the start, before anybody could be notified."""

    restored: tuple[RestoredMode, ...] = ()
    has_new_token: bool = False

    async def report(self, tell: Callable[[str], Awaitable[None]]) -> None:
        """Report it once. Of ``restored`` only lost owner rights are reported: a home that somebody
        made with the usual mode is corrected silently.

        Raises ``StoreUnavailable`` if it can't be reported; the next call reports it then.
        """
        taken = [each for each in self.restored if each.was_taken]
        if text := report_text(taken, has_new_token=self.has_new_token):
            _log.error("modes of the home were changed, and are put right", what=text)
            await tell(text)
            self.restored, self.has_new_token = (), False


def report_text(restored: list[RestoredMode], *, has_new_token: bool) -> str:
    """The text for people; empty if there is nothing to report."""
    parts: list[str] = []
    if restored:
        shown = ", ".join(map(str, restored[:_SHOWN]))
        more = f" and {len(restored) - _SHOWN} more" if len(restored) > _SHOWN else ""
        parts.append(
            f"Modes of this daemon's files and folders were changed: {shown}{more}. They are put "
            "right. A program that an agent runs can do this; see which ones ran."
        )
    if has_new_token:
        parts.append(
            "The operator's token could be read by other users of this machine. There is a new one; "
            "whoever used the old one must sign in again."
        )
    return " ".join(parts)
