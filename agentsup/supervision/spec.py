"""A child's specification as data, and the context that its code gets."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

from agentsup.supervision.policy import Restart, RestartPolicy


@dataclass(frozen=True, slots=True)
class Grace:
    """The limits of a stop, in seconds per step; their sum bounds the stop of a life."""

    drain_s: float = 30.0
    """To finish present work, after ``draining`` is set."""
    cancel_s: float = 5.0
    """To end after cancellation."""
    kill_s: float = 2.0
    """To end after its resources were killed; also the limit of each closing step."""

    @property
    def total_s(self) -> float:
        """The seconds after which a life has ended or is abandoned."""
        return self.drain_s + self.cancel_s + self.kill_s

    def tightened(self, other: Grace) -> Grace:
        """The shorter of both for each step."""
        return Grace(
            min(self.drain_s, other.drain_s),
            min(self.cancel_s, other.cancel_s),
            min(self.kill_s, other.kill_s),
        )


@dataclass(frozen=True, slots=True, eq=False)
class ChildContext:
    """One life, as its own code sees it. The supervisor makes one for each life."""

    child_id: str
    life: int
    """Its number, from 1."""
    ready: Callable[[], None]
    """Reports that the life takes work from now on. A second call does nothing."""
    degraded: Callable[[str | None], None]
    """Reports why the life is degraded, or with None that it no longer is."""
    draining: asyncio.Event = field(default_factory=asyncio.Event)


@dataclass(frozen=True, slots=True)
class ChildSpec:
    """A child: its name, its code and its treatment.

    ``factory`` is the child's whole life. It calls ``ctx.ready()`` once it takes work, watches
    ``ctx.draining`` and returns when drained. Returning is a normal end, raising
    ``ExitRequested(code)`` asks for an end with that code, any other exception is a crash.
    """

    child_id: str
    factory: Callable[[ChildContext], Awaitable[None]]
    restart: Restart = Restart.TRANSIENT
    significant: bool = False
    """Whether its end is the end of the daemon, with its code."""
    ready_timeout_s: float = 120.0
    grace: Grace = field(default_factory=Grace)
    policy: RestartPolicy = field(default_factory=RestartPolicy)
