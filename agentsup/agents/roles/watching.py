"""Sees edits of roles. An event only means "look now"; a slow look finds what no event told."""

from __future__ import annotations

import asyncio
from contextlib import aclosing, suppress
from pathlib import Path

from watchfiles import awatch

from agentsup.agents.roles.book import RoleShelf
from agentsup.config.watch import DEBOUNCE_MS, REREAD_S, STEP_MS, StopSeen
from agentsup.observe.logging import get_logger

_log = get_logger(__name__)

MISSING_S = 3.0
"""How long until a directory that is not there is looked for again."""


async def watch_roles(shelf: RoleShelf, *, stop: asyncio.Event) -> None:
    """Keep the shelf as the files are until ``stop`` is set. A directory that can't be watched is
    looked at every few seconds all the same."""
    while not stop.is_set():
        await shelf.refresh()
        identity = await asyncio.to_thread(_identity, shelf.directory)
        if identity is None:
            await _pause(MISSING_S, stop)
            continue
        try:
            await _while_same(shelf, identity, stop)
        except (OSError, RuntimeError) as error:
            _log.warning("roles can't be watched; they are looked at", reason=str(error))
            await _pause(REREAD_S, stop)


async def _while_same(shelf: RoleShelf, identity: tuple[int, int], stop: asyncio.Event) -> None:
    """Look at each event, and every so often, while the directory is the same one."""
    ended = StopSeen(stop)
    changes = awatch(
        shelf.directory,
        watch_filter=None,
        debounce=DEBOUNCE_MS,
        step=STEP_MS,
        stop_event=ended,
        rust_timeout=int(REREAD_S * 1000),
        yield_on_timeout=True,
        recursive=True,
    )
    try:
        async with aclosing(changes) as looks:
            async for _ in looks:
                await shelf.refresh()
                if await asyncio.to_thread(_identity, shelf.directory) != identity:
                    return
    finally:
        ended.set()


async def _pause(seconds: float, stop: asyncio.Event) -> None:
    """Wait, but no longer than until ``stop`` is set."""
    with suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            await stop.wait()


def _identity(path: Path) -> tuple[int, int] | None:
    try:
        status = path.stat()
    except OSError:
        return None
    return status.st_dev, status.st_ino
