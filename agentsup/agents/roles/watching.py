"""Sees edits of roles. An event only means "look now"; a slow look finds what no event told."""

from __future__ import annotations

import asyncio
from contextlib import aclosing

from agentsup.agents.roles.book import RoleShelf
from agentsup.config.watch import REREAD_S, WatchedDirectory, wait_for_stop
from agentsup.kit.clock import Clock
from agentsup.observe.logging import get_logger

_log = get_logger(__name__)

MISSING_S = 3.0
"""How long until a directory that is not there is looked for again: most homes have none."""


async def watch_roles(shelf: RoleShelf, *, stop: asyncio.Event, clock: Clock) -> None:
    """Keep the shelf as the files are until ``stop`` is set. A directory that can't be watched is
    looked at every few seconds all the same."""
    directory = WatchedDirectory(shelf.directory, clock, missing_s=MISSING_S, files=shelf.files)
    while not stop.is_set():
        try:
            async with aclosing(directory.looks(stop)) as looks:
                async for _ in looks:
                    await shelf.refresh()
        except (OSError, RuntimeError) as error:
            _log.warning("roles can't be watched; they are looked at", reason=str(error))
            await wait_for_stop(stop, REREAD_S)
