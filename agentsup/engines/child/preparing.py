"""Homes of programs are put in order before each turn: in the pool for files, one of an agent at a
time, and within a time limit, whatever programs have left in them."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path
from typing import TypeVar
from weakref import WeakValueDictionary

from agentsup.engines.child.homes import EngineHome
from agentsup.engines.child.removed import Removed
from agentsup.engines.failures import EnginesBusy, SettingsPlanted
from agentsup.kit.pool import BoundedPool
from agentsup.kit.tasks import TaskOwner
from agentsup.model.engine import Notice

__all__ = ["HomePreparer"]

T = TypeVar("T")
_log = logging.getLogger(__name__)
_REMOVED_AT_ONCE = 1000
"""Files and directories in one step of the pool, so that others have their turn in between."""
_CLOSE_S = 2.0


class HomePreparer:
    """Prepares the homes of all agents. ``close`` it last."""

    def __init__(self, files: BoundedPool) -> None:
        """``files``: the pool in which the work is done, with the agent's name as the key."""
        self._files = files
        self._locks: WeakValueDictionary[Path, asyncio.Lock] = WeakValueDictionary()
        self._begun: set[Path] = set()
        self._purging: set[Path] = set()
        self._owner = TaskOwner("homes of programs")

    async def prepare(self, home: EngineHome, title: str) -> list[Notice]:
        """Put the home in order for a turn; what was taken away, for people. Raises ``EnginesBusy``
        where settings that are not ours can't be taken away: the program must not run then."""

        def step() -> tuple[list[str], bool]:
            if home.workspace not in self._begun:
                home.clear_turn_files()  # of an earlier life of the daemon
            return home.lay(), home.removed.is_empty()

        told, is_clean = await self._run(home, title, step)
        self._begun.add(home.workspace)
        if not is_clean:
            self._purge_later(home.removed, home.agent)
        return _notices_of(told, title)

    async def look_again(self, home: EngineHome, title: str) -> None:
        """Look for settings that were planted in the workspace since ``prepare``. Raises
        ``SettingsPlanted`` with what was set aside: it may have counted. Raises ``EnginesBusy``."""
        if told := await self._run(home, title, home.set_aside):
            raise SettingsPlanted(
                f"{title} was ended, as settings appeared in its workspace while it started: "
                f"{'; '.join(told)}"
            )

    async def close(self) -> None:
        """Stop removing; the next turn goes on with it."""
        await self._owner.close(_CLOSE_S)

    # -- inside ------------------------------------------------------------------------------------

    async def _run(self, home: EngineHome, title: str, step: Callable[[], T]) -> T:
        # Two at once would take each other's files away and both fail.
        lock = self._locks.setdefault(home.workspace, asyncio.Lock())
        try:
            async with lock:
                return await self._files.run(step, key=home.agent)
        except OSError as error:
            raise EnginesBusy(
                f"{title} is not started, as its settings can't be put in order: "
                f"{error.strerror or error} ({error.filename or home.path})"
            ) from error

    def _purge_later(self, removed: Removed, agent: str) -> None:
        if removed.path not in self._purging:
            self._purging.add(removed.path)
            self._owner.spawn(self._purge(removed, agent), name=f"purge:{agent}")

    async def _purge(self, removed: Removed, agent: str) -> None:
        try:
            while await self._files.run(partial(removed.purge, _REMOVED_AT_ONCE), key=agent):
                pass
        except OSError as error:
            _log.warning("what was removed from the homes of %s stays: %s", agent, error)
        finally:
            self._purging.discard(removed.path)


def _notices_of(told: Iterable[str], title: str) -> list[Notice]:
    """What was taken away, as the log and people read it."""
    found = [f"{title} takes no settings from there: {each}." for each in told]
    for text in found:
        _log.warning("%s", text)
    return list(map(Notice, found))
