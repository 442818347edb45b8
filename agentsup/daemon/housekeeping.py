"""Housekeeping: deadlines, retention, backups. Small work on a slow beat."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from agentsup.kit.clock import Clock
from agentsup.kit.files import HomeLocked
from agentsup.model.errors import StoreUnavailable
from agentsup.observe.logging import get_logger

_log = get_logger(__name__)

EXPIRE_EVERY_S = 1.0
KEEP_EVERY_S = 60.0
LOOK_EVERY_S = 60.0
LOOK_FIRST_S = 5.0
PRUNE_EVERY_S = 3600.0
BACKUP_EVERY_S = 24 * 3600.0


@dataclass(frozen=True, slots=True)
class Chore:
    """Something to do every ``every_s`` seconds, the first time after ``first_s``."""

    name: str
    every_s: float
    first_s: float
    run: Callable[[], Awaitable[object]]


class Housekeeper:
    """Runs its chores one after another; a failing one is logged and tried at its next time."""

    def __init__(self, chores: tuple[Chore, ...], clock: Clock) -> None:
        self._chores = chores
        self._clock = clock
        self.last_failure = ""

    async def run(self, ready: Callable[[], None], draining: asyncio.Event) -> None:
        """A supervised child's life."""
        # Whole seconds, as other beats keep: what is due at the same moment costs one wake.
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
            try:
                async with asyncio.timeout(pause_s):
                    await draining.wait()
            except TimeoutError:
                continue

    async def _do(self, chore: Chore) -> None:
        try:
            await chore.run()
        except StoreUnavailable as error:
            self.last_failure = f"{chore.name}: {error.message}"
            _log.warning("chore put off", chore=chore.name, reason=error.message)


def lock_chore(keep_lock: Callable[[], bool]) -> Chore:
    """Looks each minute whether the home is still the one that is locked."""

    async def look() -> None:
        try:
            is_ours = await asyncio.to_thread(keep_lock)
        except (OSError, HomeLocked) as error:
            _log.warning("the lock file of the home can't be put back", reason=str(error))
            return
        if not is_ours:
            _log.error("the home was moved or replaced while the daemon runs: restart it")

    return Chore("lock", KEEP_EVERY_S, KEEP_EVERY_S, look)


def _next(due: float, every_s: float, now: float) -> float:
    """The first time after ``now`` on the beat that ``due`` is on: missed ones are made up for once."""
    return due + every_s * (math.floor((now - due) / every_s) + 1)
