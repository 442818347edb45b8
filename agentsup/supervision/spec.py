"""What is to run, as data: a child's specification and what its code gets to see."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

from agentsup.supervision.policy import Restart, RestartPolicy
from agentsup.supervision.scope import Scope

__all__ = ["ChildContext", "ChildSpec", "Grace", "Restart"]


@dataclass(frozen=True, slots=True)
class Grace:
    """How long a stop is polite, in seconds per step; their sum bounds the stop of a life."""

    drain_s: float = 30.0
    """To finish what is being done, after `draining` is set."""
    cancel_s: float = 5.0
    """To end after cancellation."""
    kill_s: float = 2.0
    """To end after what it opened was killed; also the limit of each closing step."""

    @property
    def total_s(self) -> float:
        """After this many seconds a life has ended or is abandoned."""
        return self.drain_s + self.cancel_s + self.kill_s

    def tightened(self, other: "Grace") -> "Grace":
        """Of both, the shorter for each step."""
        return Grace(
            min(self.drain_s, other.drain_s),
            min(self.cancel_s, other.cancel_s),
            min(self.kill_s, other.kill_s),
        )


class ChildContext:
    """One life as its own code sees it."""

    def __init__(
        self,
        child_id: str,
        life: int,
        scope: Scope,
        *,
        on_ready: Callable[[], None],
        on_degraded: Callable[[str | None], None],
    ) -> None:
        """Made by the supervisor for each life; `life` counts from 1."""
        self.child_id = child_id
        self.life = life
        self.scope = scope
        self.draining = asyncio.Event()
        self._on_ready = on_ready
        self._on_degraded = on_degraded

    def ready(self) -> None:
        """Say that work is being taken from now on; more than once is harmless."""
        self._on_ready()

    def degraded(self, reason: str | None) -> None:
        """Say that something is amiss, or with None that it is well again."""
        self._on_degraded(reason)


@dataclass(frozen=True, slots=True)
class ChildSpec:
    """A child: its name, its code and how it is treated.

    `factory` is the child's whole life. It calls `ctx.ready()` once it takes work, watches
    `ctx.draining` and returns when drained. Returning is a normal end, raising
    `ExitRequested(code)` asks for an end with that code, any other exception is a crash. What it
    registers in `ctx.scope` is killed and closed after its end.
    """

    child_id: str
    factory: Callable[[ChildContext], Awaitable[None]]
    restart: Restart = Restart.TRANSIENT
    significant: bool = False
    """Its end is the end of the daemon, with its code."""
    ready_timeout_s: float = 120.0
    grace: Grace = field(default_factory=Grace)
    policy: RestartPolicy = field(default_factory=RestartPolicy)
