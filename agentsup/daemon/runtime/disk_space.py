"""Waiting for disk space at the start: a start on a full disk waits and reports it, and does not
give up."""

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
from agentsup.kit.log import get_logger
from agentsup.kit.sdnotify import notify
from agentsup.kit.tasks import is_set_within
from agentsup.model.errors import StoreUnavailable
from agentsup.store import StoreFault

T = TypeVar("T")
_log = get_logger(__name__)
FIRST_S: Final = 1.0
MOST_S: Final = 15.0
TELL_EVERY_S: Final = 60.0
_EXTEND_US: Final = 60_000_000


class StoppedWhileWaiting(Exception):
    """The daemon was asked to end while it waited for disk space."""


def is_full(error: BaseException) -> bool:
    """Whether the error means that the disk is full."""
    if isinstance(error, StoreUnavailable):
        return error.facts.get("reason") == StoreFault.FULL
    return isinstance(error, OSError) and error.errno in {errno.ENOSPC, errno.EDQUOT}


class _SpaceWait:
    """The next pause, and when to report the wait again."""

    def __init__(self) -> None:
        self._clock = SystemClock()
        self._pause_s = FIRST_S
        self._reported_s: float | None = None

    def next_s(self, error: BaseException) -> float:
        """The next pause in seconds; notifies systemd and, once a minute, people."""
        notify(f"STATUS=waiting for space on the disk\nEXTEND_TIMEOUT_USEC={_EXTEND_US}")
        now = self._clock.monotonic()
        if self._reported_s is None or now - self._reported_s >= TELL_EVERY_S:
            self._reported_s = now
            text = f"the start waits for space on the disk: {error}"
            with contextlib.suppress(OSError, ValueError):
                sys.stderr.write(f"agentsup: {text}\n")
                sys.stderr.flush()
            _log.error("start waits for space", reason=str(error))
        pause_s, self._pause_s = self._pause_s, min(MOST_S, self._pause_s * 2)
        return pause_s


def wait_for_space(step: Callable[[], T]) -> T:
    """Call ``step`` until the disk has room for it, and return its result; blocks.

    Raises the errors of ``step`` that do not mean a full disk. For the time before there is a loop:
    SIGTERM ends the process at once.
    """
    waiting = _SpaceWait()
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
    """As ``wait_for_space``, on the loop. ``undo`` gets a result that came after a signal.

    Raises ``StoppedWhileWaiting`` on SIGTERM or SIGINT once it has had to wait.
    """
    waiting, stopped = _SpaceWait(), asyncio.Event()
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
                raise StoppedWhileWaiting
            if await is_set_within(stopped, pause_s):
                raise StoppedWhileWaiting
    finally:
        for number in caught:
            loop.remove_signal_handler(number)
