"""Prepares the homes of programs before each turn.

This runs in the pool for files, for one home of an agent at a time, and within a time limit,
whatever programs have left in the homes.
"""

from __future__ import annotations

import asyncio
import errno
from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path
from typing import TypeVar
from weakref import WeakValueDictionary

from agentsup.engines.failures import EnginesBusy, NotConfigured, SettingsPlanted
from agentsup.engines.process.homes import EngineHome, Removed
from agentsup.kit.log import get_logger
from agentsup.kit.pool import BoundedPool
from agentsup.kit.tasks import TaskOwner
from agentsup.model.engine import EngineNotice

T = TypeVar("T")
_log = get_logger(__name__)
_REMOVED_AT_ONCE = 1000
"""Files and directories removed in one step of the pool, so that other work runs in between."""
_CLOSE_S = 2.0
_IN_THE_WAY = (errno.ENOTDIR, errno.EEXIST, errno.ELOOP)
"""A link or a file is where one of our directories belongs: another attempt does not help."""


class HomePreparer:
    """Prepares the homes of all agents. ``close`` it last."""

    def __init__(self, files: BoundedPool) -> None:
        """``files``: the pool in which the work is done, with the agent's name as the key."""
        self._files = files
        self._locks: WeakValueDictionary[Path, asyncio.Lock] = WeakValueDictionary()
        self._begun: set[Path] = set()
        self._purging: set[Path] = set()
        self._owner = TaskOwner("homes of programs")

    async def prepare(self, home: EngineHome, title: str) -> list[EngineNotice]:
        """Prepare the home for a turn. Returns notices of settings that were removed or renamed.

        Raises ``EnginesBusy`` if settings that are not ours can't be removed now, and
        ``NotConfigured`` if a person must remove something first. The program must not run then.
        """

        def step() -> tuple[list[str], bool]:
            if home.workspace not in self._begun:
                home.clear_turn_files()  # of an earlier life of the daemon
            return home.lay(), home.removed.is_empty()

        texts, is_clean = await self._run(home, title, step)
        self._begun.add(home.workspace)
        if not is_clean:
            self._purge_later(home.removed, home.agent)
        return _notices_of(texts, title)

    async def check_again(self, home: EngineHome, title: str) -> None:
        """Look for settings that were planted in the workspace since ``prepare``.

        Raises ``SettingsPlanted`` with the files that were renamed: the program may have read them.
        Raises ``EnginesBusy`` and ``NotConfigured`` as ``prepare`` does.
        """
        if texts := await self._run(home, title, home.set_aside):
            raise SettingsPlanted(
                f"{title} was ended, as settings appeared in its workspace while it started: "
                f"{'; '.join(texts)}"
            )

    async def close(self) -> None:
        """Stop removing files; the next turn continues."""
        await self._owner.close(_CLOSE_S)

    # -- inside ------------------------------------------------------------------------------------

    async def _run(self, home: EngineHome, title: str, step: Callable[[], T]) -> T:
        # Two at once would take each other's files away and both fail.
        lock = self._locks.setdefault(home.workspace, asyncio.Lock())
        try:
            async with lock:
                return await self._files.run(step, key=home.agent)
        except OSError as error:
            texts = (
                f"{title} is not started, as its settings can't be put in order: "
                f"{error.strerror or error} ({error.filename or home.path})"
            )
            if error.errno in _IN_THE_WAY:
                raise NotConfigured(
                    f"{texts}. Something else stands where its directory belongs: remove that"
                ) from error
            raise EnginesBusy(texts) from error

    def _purge_later(self, removed: Removed, agent: str) -> None:
        if removed.path not in self._purging:
            self._purging.add(removed.path)
            self._owner.spawn(self._purge(removed, agent), name=f"purge:{agent}")

    async def _purge(self, removed: Removed, agent: str) -> None:
        try:
            while await self._files.run(partial(removed.purge, _REMOVED_AT_ONCE), key=agent):
                pass
        except OSError as error:
            _log.warning(f"what was removed from the homes of {agent} stays: {error}")
        finally:
            self._purging.discard(removed.path)


def _notices_of(texts: Iterable[str], title: str) -> list[EngineNotice]:
    """Log what was removed or renamed, and return it as notices for people."""
    found = [f"{title} takes no settings from there: {each}." for each in texts]
    for text in found:
        _log.warning(text)
    return list(map(EngineNotice, found))
