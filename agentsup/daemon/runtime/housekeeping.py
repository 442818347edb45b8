"""Housekeeping: small periodic jobs, such as deadlines, retention, backups and looks at files."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Final

from agentsup.channels.core.files import remove_received
from agentsup.kit import installation
from agentsup.kit.clock import Clock
from agentsup.kit.files import HomeLocked
from agentsup.kit.log import get_logger
from agentsup.kit.pool import BoundedPool
from agentsup.kit.tasks import is_set_within
from agentsup.model.errors import StoreUnavailable

_log = get_logger(__name__)
EXPIRE_EVERY_S = 1.0
KEEP_EVERY_S = 60.0
LOOK_EVERY_S = 60.0
LOOK_FIRST_S = 5.0
PRUNE_EVERY_S = 3600.0
BACKUP_EVERY_S = 24 * 3600.0
_LIMIT_S: Final = 5.0
_DAY_S: Final = 86_400


@dataclass(frozen=True, slots=True)
class Chore:
    """A job to run every ``every_s`` seconds, the first time after ``first_s``."""

    name: str
    every_s: float
    first_s: float
    run: Callable[[], Awaitable[object]]


class Housekeeper:
    """Runs its jobs one after another. A job that fails because of the store is logged and runs at
    its next time."""

    def __init__(self, chores: tuple[Chore, ...], clock: Clock) -> None:
        self._chores = chores
        self._clock = clock

    async def run(self, ready: Callable[[], None], draining: asyncio.Event) -> None:
        """Implements the life of a supervised child."""
        # Whole seconds, as other periodic jobs: what is due at the same moment costs one wake-up.
        now: float = math.ceil(self._clock.monotonic())
        due = {chore.name: now + chore.first_s for chore in self._chores}
        ready()
        while not draining.is_set():
            now = self._clock.monotonic()
            for chore in self._chores:
                if due[chore.name] <= now:
                    due[chore.name] = _next(due[chore.name], chore.every_s, now)
                    await self._do(chore)
            pause_s = max(0.0, min(due.values()) - self._clock.monotonic())
            await is_set_within(draining, pause_s)

    async def _do(self, chore: Chore) -> None:
        try:
            await chore.run()
        except StoreUnavailable as error:
            _log.warning("chore put off", chore=chore.name, reason=error.message)


def lock_chore(keep_lock: Callable[[], bool]) -> Chore:
    """A check once a minute that the home is still the directory that is locked."""

    async def look() -> None:
        try:
            is_ours = await asyncio.to_thread(keep_lock)
        except (OSError, HomeLocked) as error:
            _log.warning("the lock file of the home can't be put back", reason=str(error))
            return
        if not is_ours:
            _log.error("the home was moved or replaced while the daemon runs: restart it")

    return Chore("lock", KEEP_EVERY_S, KEEP_EVERY_S, look)


class ReplacedFiles:
    """Notices that the installed packages were replaced under the process, says so, and asks for a
    restart once nothing runs."""

    def __init__(
        self,
        look: Callable[[], Awaitable[str]],
        tell: Callable[[str], Awaitable[None]],
        is_quiet: Callable[[], Awaitable[bool]],
        restart: Callable[[str], None] | None,
    ) -> None:
        """``look`` returns what has changed, or an empty string. Without ``restart`` nothing would
        start the process again, so it only says what to do."""
        self._look, self._tell, self._is_quiet, self._restart = look, tell, is_quiet, restart
        self._seen = self._notified = ""

    @property
    def warnings(self) -> tuple[str, ...]:
        """A line for ``status``, if something was replaced."""
        return (self._text(),) if self._seen else ()

    async def keep_up(self) -> None:
        """Look, and act on a change that two looks have found: an installer may be at work."""
        before, self._seen = self._seen, await self._look()
        if not self._seen or self._seen != before or installation.is_partial(self._seen):
            return
        if self._notified != self._seen:
            text = self._text()
            await self._tell(f"{text[0].upper()}{text[1:]}.")
            self._notified = self._seen
        if self._restart is not None and await self._is_quiet():
            self._restart("the installation changed")

    def _text(self) -> str:
        cure = (
            "restart it: `agentsup restart`"
            if self._restart is None
            else "it restarts when nothing runs"
        )
        return f"{self._seen}: {cure}"


def _next(due: float, every_s: float, now: float) -> float:
    """The first due time after ``now``; times that were missed are made up for once."""
    return due + every_s * (math.floor((now - due) / every_s) + 1)


class ReceivedFiles:
    """Looks through the inboxes of all agents."""

    def __init__(
        self,
        names: Callable[[], Iterable[str]],
        workspace: Callable[[str], Path],
        files: BoundedPool,
        days: Callable[[], int],
    ) -> None:
        """``names`` are those of the agents; ``days`` of 0 keep all files for ever."""
        self._names = names
        self._workspace = workspace
        self._files = files
        self._days = days

    async def purge(self, now_ms: int) -> None:
        """Remove what came more than those days before ``now_ms``; a failure is only logged."""
        days = self._days()
        if not days:
            return
        for name in tuple(self._names()):
            step = partial(
                remove_received, self._workspace(name), before_s=now_ms / 1000 - days * _DAY_S
            )
            try:
                gone = await self._files.run(step, key=name, limit_s=_LIMIT_S)
            except OSError as error:
                _log.warning(
                    "old received files could not be removed", agent=name, reason=str(error)
                )
                continue
            if gone:
                _log.info("removed old received files", agent=name, files=gone, days=days)
