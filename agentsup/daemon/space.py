"""A start on a full disk waits until there is space, and says so; it does not give up."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import select
import signal
import sys
from collections.abc import Awaitable, Callable
from typing import Final, TypeVar

from agentsup.kit.clock import SystemClock
from agentsup.kit.sdnotify import notify
from agentsup.model.errors import StoreUnavailable
from agentsup.observe.logging import get_logger
from agentsup.store.failures import Trouble

__all__ = ["Stopped", "is_full", "wait_for_space", "wait_in_loop"]

T = TypeVar("T")
_log = get_logger(__name__)
FIRST_S: Final = 1.0
MOST_S: Final = 15.0
TELL_EVERY_S: Final = 60.0
_EXTEND_US: Final = 60_000_000


class Stopped(Exception):
    """The daemon was asked to end while it waited."""


def is_full(error: BaseException) -> bool:
    """Whether it means that the disk is full."""
    if isinstance(error, StoreUnavailable):
        return error.facts.get("reason") == Trouble.FULL
    return isinstance(error, OSError) and error.errno in {errno.ENOSPC, errno.EDQUOT}


class _Waiting:
    """How long to wait next, and when to tell of it again."""

    def __init__(self) -> None:
        self._clock = SystemClock()
        self._pause_s = FIRST_S
        self._told_s: float | None = None

    def next_s(self, error: BaseException) -> float:
        """The next pause, after word to systemd and, once a minute, to people."""
        notify(f"STATUS=waiting for space on the disk\nEXTEND_TIMEOUT_USEC={_EXTEND_US}")
        now = self._clock.monotonic()
        if self._told_s is None or now - self._told_s >= TELL_EVERY_S:
            self._told_s = now
            text = f"the start waits for space on the disk: {error}"
            with contextlib.suppress(OSError, ValueError):
                sys.stderr.write(f"agentsup: {text}\n")
                sys.stderr.flush()
            _log.error("start waits for space", reason=str(error))
        pause_s, self._pause_s = self._pause_s, min(MOST_S, self._pause_s * 2)
        return pause_s


def wait_for_space(step: Callable[[], T]) -> T:
    """What `step` returns, as soon as the disk has room for it; blocks. Raises what it raises else.

    For the time before there is a loop: SIGTERM ends the process at once.
    """
    waiting = _Waiting()
    while True:
        try:
            return step()
        except OSError as error:
            if not is_full(error):
                raise
            pause_s = waiting.next_s(error)
        select.select([], [], [], pause_s)


async def wait_in_loop(
    step: Callable[[], Awaitable[T]], *, undo: Callable[[T], Awaitable[object]] | None = None
) -> T:
    """As `wait_for_space`, on the loop. Raises `Stopped` on SIGTERM or SIGINT once it has had to wait;
    what the step made by then is undone."""
    waiting, stopped = _Waiting(), asyncio.Event()
    loop = asyncio.get_running_loop()
    caught = (signal.SIGTERM, signal.SIGINT)
    try:
        while True:
            try:
                made = await step()
            except (StoreUnavailable, OSError) as error:
                if not is_full(error):
                    raise
                for number in caught:
                    loop.add_signal_handler(number, stopped.set)
                pause_s = waiting.next_s(error)
            else:
                if not stopped.is_set():
                    return made
                if undo is not None:
                    await undo(made)
                raise Stopped
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(pause_s):
                    await stopped.wait()
            if stopped.is_set():
                raise Stopped
    finally:
        for number in caught:
            loop.remove_signal_handler(number)
