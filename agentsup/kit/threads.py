"""Steps that block, run in threads that nobody can interrupt."""

import asyncio
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import TypeVar

__all__ = ["to_its_end"]

T = TypeVar("T")


async def to_its_end(step: Callable[[], T], *, undo: Callable[[T], object] | None = None) -> T:
    """What ``step`` says, which blocks and so runs in a thread.

    A thread runs on when its waiter is cancelled; so the cancellation is passed on only when the
    step has ended, and what it made is undone: nobody will ever know of it.
    """
    running = asyncio.get_running_loop().run_in_executor(None, step)
    try:
        await asyncio.wait({running})
    except asyncio.CancelledError:
        while not running.done():
            with suppress(asyncio.CancelledError):
                await asyncio.wait({running})
        if undo is not None and running.exception() is None:
            await to_its_end(partial(undo, running.result()))
        raise
    return running.result()
