"""The end of the daemon: who asks for it first decides why and with which exit code."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass

from agentsup.kit import sdnotify
from agentsup.kit.log import get_logger
from agentsup.supervision import Grace

_log = get_logger(__name__)


@dataclass(slots=True)
class DaemonExit:
    """Why the daemon ends, and its exit code."""

    code: int
    reason: str


class Ending:
    """Takes the requests for the end, which come from main, an operator or a signal."""

    def __init__(self, grace: Callable[[], Grace]) -> None:
        """``grace`` gives the present limits of a stop. Made on the loop."""
        self.grace = grace
        self.decided: asyncio.Future[DaemonExit] = asyncio.get_running_loop().create_future()
        self.forced = asyncio.Event()
        self.state = "starting"
        """The daemon's state: starting, running or draining."""

    def end(self, code: int, reason: str) -> None:
        """Request the end; the first request decides code and reason."""
        if not self.decided.done():
            self.decided.set_result(DaemonExit(code, reason))
            self.state = "draining"
            limit_us = round((2 * self.grace().total_s + 10.0) * 1_000_000)
            sdnotify.notify(f"STOPPING=1\nEXTEND_TIMEOUT_USEC={limit_us}")
            _log.info("ending", code=code, reason=reason)

    def force(self) -> None:
        """Skip the rest of the drain."""
        self.forced.set()

    @property
    def draining(self) -> bool:
        """Whether the end is decided: nothing is started any more."""
        return self.decided.done()

    @property
    def ends_with(self) -> int | None:
        """The exit code, once the end is decided."""
        return self.decided.result().code if self.decided.done() else None
