"""A bot's life: it ends when it is wanted no longer, whatever it is in the midst of."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any

from agentsup.kit.tasks import TaskOwner
from agentsup.observe.logging import get_logger

__all__ = ["END_S", "LIFE", "escaped", "until"]

_log = get_logger(__name__)
LIFE = "bot:life"
END_S = 8.0
"""More than the lanes' drain; what is not over by then is abandoned."""


def escaped(task: asyncio.Task[Any], error: BaseException) -> None:
    """For a bot's ``TaskOwner``: tell of a task that ended with an error, but for its life."""
    if task.get_name() != LIFE:  # its end is raised by `until`
        _log.error("a task of a bot ended with an error", task=task.get_name(), exc_info=error)


async def until(draining: asyncio.Event, life: Coroutine[Any, Any, None], owner: TaskOwner) -> None:
    """Run ``life`` until it ends or ``draining`` is set; then it is cancelled and waited for.

    Raises what ``life`` raised.
    """
    working = owner.spawn(life, name=LIFE)
    waiting = owner.spawn(draining.wait(), name="drain:bot")
    try:
        await asyncio.wait({working, waiting}, return_when=asyncio.FIRST_COMPLETED)
    finally:
        waiting.cancel()
        if not working.done():
            working.cancel()
            await asyncio.wait({working}, timeout=END_S)
    if working.done() and not working.cancelled() and (error := working.exception()) is not None:
        raise error
