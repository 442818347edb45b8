"""The modes of what is the daemon's in its home: looked at, and put right.

The kernel's fence does not cover them: a fenced program can open the home to other users, or take a
file from the daemon itself (``chmod 000``). So they are put right at the start, before anything is
read, and about every minute.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import stat
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass
from itertools import chain, islice
from pathlib import Path
from typing import Final

from agentsup.config.home import Home
from agentsup.daemon.tokens import TokenBook, is_loose, renewed_token
from agentsup.kit.entropy import Entropy
from agentsup.observe.logging import get_logger
from agentsup.observe.redact import Redactor
from agentsup.store import record

_log = get_logger(__name__)

_OWN: Final = 0o700
_OTHERS: Final = 0o077
_ACL: Final = "system.posix_acl_"
_ENTRIES: Final = 5000
"""Looked at in one folder, however many there are."""
_SHOWN: Final = 5
_OF_AGENT: Final = ("workspace", "engine-turns", "mcp", "persons", "removed")
_HOMES: Final = ("engine-home", "engine-settings", "exec-home")
"""In an agent's folder, and for each other person in one below ``persons``."""
_PER_KIND: Final = ("engine-settings", "engine-home", "mcp")
"""What is in these is a folder for each kind of program."""


@dataclass(frozen=True, slots=True)
class Restored:
    """One thing that had another mode than it should."""

    path: Path
    was: int
    now: int

    @property
    def was_taken(self) -> bool:
        """Its owner lacked a right, which nobody forgets to give."""
        return bool(self.now & 0o700 & ~self.was)

    def __str__(self) -> str:
        return f"{self.path} ({self.was:o}, now {self.now:o})"


def restore(home: Home) -> list[Restored]:
    """Give what is the daemon's the modes that it needs, and the home itself to nobody else; blocks.

    Directories are put right before what lies in them is looked at. Links are left alone. What is
    another user's can't be changed and is passed over. The operator's token is ``tokens``' affair.
    """
    return [
        found
        for path, needed in _places(home)
        if (found := _put_right(path, needed, _OTHERS if path == home.root else 0)) is not None
    ]


def _places(home: Home) -> Iterator[tuple[Path, int]]:
    """Each with the bits that its owner needs."""
    root = home.root
    folders = (home.logs, home.backups, home.agents, home.tasks, home.roles, root / "applied")
    for folder in (root, *folders):
        yield folder, _OWN
    for folder in (home.logs, home.backups, home.roles, root / "applied"):
        for path in _entries(folder):
            yield path, _needed(path)
    yield record.path_beside(home.state_db), 0o600
    for path in (home.state_db, home.daemon_json, home.lock, *home.watched):
        for end in ("", "-wal", "-shm"):
            yield path.with_name(f"{path.name}{end}"), 0o600
    for agent in _entries(home.agents):
        yield agent, _OWN
        yield agent / "MEMORY.md", 0o600
        for name in _OF_AGENT:
            yield agent / name, _OWN
        persons = _entries(agent / "persons")
        for each in persons:
            yield each, _OWN
        for each in (agent, *persons):
            for name in _HOMES:
                yield each / name, _OWN
            for kind in chain.from_iterable(_entries(each / name) for name in _PER_KIND):
                yield kind, _needed(kind)
    for task in _entries(home.tasks):
        yield task, _needed(task)


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


def _put_right(path: Path, needed: int, refused: int) -> Restored | None:
    try:
        # A descriptor that needs no right to read, and is of what was looked at.
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
        # Rights of single users hide behind the bits of the group.
        for name in (f"{_ACL}access", f"{_ACL}default"):
            with contextlib.suppress(OSError):
                os.removexattr(way, name)
        return Restored(path, was, now)
    except OSError as error:
        _log.error("a mode can't be put right", path=str(path), reason=str(error))
        return None
    finally:
        os.close(descriptor)


@dataclass(frozen=True, slots=True)
class StartModes:
    """What was put right at the start, when nobody could be told yet."""

    restored: tuple[Restored, ...] = ()
    has_new_token: bool = False


class ModeKeeper:
    """Looks at the modes about every minute, and tells what it has put right."""

    def __init__(
        self,
        home: Home,
        tokens: TokenBook,
        entropy: Entropy,
        redactor: Redactor,
        tell: Callable[[str], Awaitable[None]],
        at_start: StartModes,
    ) -> None:
        """``at_start``: what was done before anybody could be told. A home that somebody made with
        the usual mode is put right without a word."""
        self._home = home
        self._tokens = tokens
        self._entropy = entropy
        self._redactor = redactor
        self._tell = tell
        self._restored = [each for each in at_start.restored if each.was_taken]
        self._has_new_token = at_start.has_new_token

    async def look(self) -> None:
        """Put right what is wrong. Raises ``StoreUnavailable`` where it can't be told; it is told
        at the next look then."""
        self._restored += await asyncio.to_thread(restore, self._home)
        await self._look_at_token()
        if text := told(self._restored, has_new_token=self._has_new_token):
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


def told(restored: list[Restored], *, has_new_token: bool) -> str:
    """What people read; empty where there is nothing."""
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
