"""Watches the files of roles for edits.

An event only causes a check; a slow periodic check finds edits for which no event came.
"""

from __future__ import annotations

import asyncio
from contextlib import aclosing

from agentsup.agents.roles.registry import LiveRoleRegistry
from agentsup.config import REREAD_S, WatchedDirectory
from agentsup.kit.clock import Clock
from agentsup.kit.log import get_logger
from agentsup.kit.tasks import is_set_within

_log = get_logger(__name__)

MISSING_S = 3.0
"""Seconds between checks for a directory that does not exist; most homes have none."""


async def watch_roles(shelf: LiveRoleRegistry, *, stop: asyncio.Event, clock: Clock) -> None:
    """Refresh the roles when their files change, until ``stop`` is set.

    A directory that can't be watched is checked every ``REREAD_S`` seconds.
    """
    directory = WatchedDirectory(shelf.directory, clock, missing_s=MISSING_S, files=shelf.files)
    while not stop.is_set():
        try:
            async with aclosing(directory.looks(stop)) as looks:
                async for _ in looks:
                    await shelf.follow()
        except (OSError, RuntimeError) as error:
            _log.warning("roles can't be watched; they are looked at", reason=str(error))
            await is_set_within(stop, REREAD_S)
