"""Modes of the daemon's own files in its home: checks and corrections.

The program fence does not cover modes: a fenced program can open the home to other users, or take a
file from the daemon itself (``chmod 000``). So modes are corrected at the start, before anything is
read, and about once a minute.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import stat
from collections import deque
from collections.abc import Awaitable, Callable, Collection, Iterator
from dataclasses import dataclass
from functools import partial
from itertools import chain, islice
from pathlib import Path
from typing import Final

from agentsup.config import ConfigFiles, Home
from agentsup.daemon.runtime.tokens import TokenRegistry, is_loose, renewed_token
from agentsup.kit.clock import SystemClock
from agentsup.kit.entropy import Entropy
from agentsup.kit.log import get_logger
from agentsup.kit.pool import PoolTimeout, in_time
from agentsup.observe import Redactor
from agentsup.store import record

_log = get_logger(__name__)

_OWN: Final = 0o700
_OTHERS: Final = 0o077
_ACL: Final = "system.posix_acl_"
_ENTRIES: Final = 5000
"""The number of entries that are checked in one folder at most."""
_SHOWN: Final = 5
_PER_KIND: Final = ("engine-settings", "engine-home", "mcp")
"""In an agent's folder, and in the folder of each other person below ``persons``: these hold one
folder for each kind of program."""
_READ: Final = {True: 0o500, False: 0o400}
"""The bits that a directory (True) and a file (False) need if nothing more is known of them."""
_WALK_S: Final = 2.0
LIMIT_S: Final = 10.0
"""The time in seconds for one whole check; a network share in the home may not answer."""


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

    The start goes on then, and the first periodic check reports it. Raises ``OSError``.
    """
    try:
        return in_time(partial(restore, home), LIMIT_S)
    except PoolTimeout:
        return []


def restore(home: Home) -> list[RestoredMode]:
    """Give the daemon's files the modes that they need, and nobody else access to the home, its
    file ``environment`` and its secrets; blocks.

    Directories are corrected before their entries are checked. Symbolic links are skipped, and so
    are the files of other users, which can't be changed, and the folders of agents' programs. The
    operator's token is checked by ``daemon.runtime.tokens``.
    """
    closed = {home.root, home.environment, home.secrets, *_entries(home.secrets)}
    return [
        found
        for path, needed in _needed_modes(home)
        if (found := _put_right(path, needed, _OTHERS if path in closed else 0)) is not None
    ]


def _needed_modes(home: Home) -> Iterator[tuple[Path, int]]:
    """Each path with the mode bits that its owner needs."""
    root = home.root
    folders = (home.logs, home.backups, home.agents, home.tasks, home.roles, root / "applied")
    for folder in (root, *folders):
        yield folder, _OWN
    for folder in (home.logs, home.backups, home.roles, root / "applied", home.tasks):
        for path in _entries(folder):
            yield path, _needed(path)
    yield record.path_beside(home.state_db), 0o600
    for path in (home.environment, home.secrets, *_entries(home.secrets)):
        yield path, _READ[path.is_dir()]
    for path in (home.state_db, home.daemon_json, home.lock, *home.watched):
        for end in ("", "-wal", "-shm"):
            yield path.with_name(f"{path.name}{end}"), 0o600
    for agent in _entries(home.agents):
        yield agent, _OWN
        for path in _entries(agent):
            yield path, _needed(path)
        persons = _entries(agent / "persons")
        for each in persons:
            yield each, _OWN
            for path in _entries(each):
                yield path, _needed(path)
        # What is deeper belongs to the programs.
        for each in (agent, *persons):
            for kind in chain.from_iterable(_entries(each / name) for name in _PER_KIND):
                yield kind, _needed(kind)
    yield from _others(root, but=(home.agents, home.tasks, home.api_token))


def _others(root: Path, but: Collection[Path]) -> Iterator[tuple[Path, int]]:
    """What people and the daemon put below ``root``, except ``but``.

    Other file systems are skipped. The walk ends after ``_ENTRIES`` entries or ``_WALK_S`` seconds.
    """
    clock, left, waiting = SystemClock(), _ENTRIES, deque([root])
    until = clock.monotonic() + _WALK_S
    try:
        device = root.lstat().st_dev
    except OSError:
        return
    while waiting:
        for path in _entries(waiting.popleft()):
            left -= 1
            if left < 0 or clock.monotonic() > until:
                return
            if path in but:
                continue
            try:
                known = path.lstat()
            except OSError:
                continue
            is_directory = stat.S_ISDIR(known.st_mode)
            if is_directory or stat.S_ISREG(known.st_mode):
                yield path, _READ[is_directory]
            if is_directory and known.st_dev == device:
                waiting.append(path)


def _needed(path: Path) -> int:
    try:
        return _OWN if stat.S_ISDIR(path.lstat().st_mode) else 0o600
    except OSError:
        return 0o600


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


@dataclass(frozen=True, slots=True)
class StartModes:
    """What was corrected at the start, before anybody could be notified."""

    restored: tuple[RestoredMode, ...] = ()
    has_new_token: bool = False


class ModeKeeper:
    """Checks the modes about every minute, and reports what it has corrected."""

    def __init__(
        self,
        home: Home,
        tokens: TokenRegistry,
        entropy: Entropy,
        redactor: Redactor,
        tell: Callable[[str], Awaitable[None]],
        at_start: StartModes,
        files: ConfigFiles,
    ) -> None:
        """``at_start``: what was corrected before anybody could be notified. Of these only lost
        owner rights are reported: a home that somebody made with the usual mode is corrected
        silently."""
        self._home = home
        self._tokens = tokens
        self._entropy = entropy
        self._redactor = redactor
        self._tell = tell
        self._restored = [each for each in at_start.restored if each.was_taken]
        self._has_new_token = at_start.has_new_token
        self._files = files

    async def look(self) -> None:
        """Correct what is wrong, and report it.

        Raises ``StoreUnavailable`` if it can't be reported; the next check reports it then.
        """
        try:
            self._restored += await self._files.run(
                partial(restore, self._home), key=f"{self._home.root} modes", limit_s=LIMIT_S
            )
        except OSError as error:
            _log.error("the modes of the home can't be looked at", reason=str(error))
        await self._look_at_token()
        if text := report_text(self._restored, has_new_token=self._has_new_token):
            _log.error("modes of the home were changed, and are put right", what=text)
            await self._tell(text)
            self._restored, self._has_new_token = [], False

    async def _look_at_token(self) -> None:
        path = self._home.api_token
        try:
            if not await asyncio.to_thread(is_loose, path):
                return
            token = await asyncio.to_thread(renewed_token, path, self._entropy)
        except OSError as error:
            _log.error("the operator's token can't be looked at", reason=str(error))
            return
        self._redactor.add(token)
        self._tokens.replace_operator(token)
        self._has_new_token = True


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
