"""A child's specification as data, the context that its code gets, and its status for others."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field, replace

from agentsup.kit.log import get_logger
from agentsup.model.health import AgentState
from agentsup.supervision.policy import Ended, Restart, RestartPolicy, check_transition


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


_log = get_logger(__name__)
READY_STATES = frozenset({AgentState.RUNNING, AgentState.DEGRADED})


@dataclass(frozen=True, slots=True)
class ChildStatus:
    """One child at one instant. Times ending in ``_at`` are wall milliseconds."""

    child_id: str
    state: AgentState
    changed_at: int
    reason: str = ""
    """Why it is in this state: the last failure, or why it is degraded."""
    life: int = 0
    """The number of its lives so far."""
    running_since_at: int | None = None
    next_retry_at: int | None = None
    abandoned: int = 0
    """The number of earlier lives that ignored every request to end and still run."""
    last_end: Ended | None = None

    def moved(
        self, to: AgentState, reason: str, *, at: int, retry_in_s: float | None
    ) -> ChildStatus:
        """The status after a change of state at ``at`` (wall ms). Raises
        ``IllegalTransition``."""
        if to is not self.state:
            check_transition(self.child_id, self.state, to)
        since = self.running_since_at
        if to in READY_STATES:
            since = since if self.state in READY_STATES else at
        elif to is not AgentState.STOPPING:
            since = None
        return replace(
            self,
            state=to,
            changed_at=self.changed_at if to is self.state else at,
            reason=reason,
            running_since_at=since,
            next_retry_at=None if retry_in_s is None else at + round(retry_in_s * 1000),
        )


class Board:
    """Passes each change of a child's status on to its listeners."""

    def __init__(self) -> None:
        self._listeners: list[Callable[[ChildStatus], None]] = []

    def listen(self, listener: Callable[[ChildStatus], None]) -> Callable[[], None]:
        """Call ``listener`` on each change, in order, on the loop. Returns a callable that ends
        this."""
        self._listeners.append(listener)
        return lambda: self._listeners.remove(listener)

    def record(self, status: ChildStatus) -> None:
        """Call the listeners with a change."""
        for listener in tuple(self._listeners):
            try:
                listener(status)
            except Exception:  # noqa: BLE001 - supervision boundary: a listener must not stop a child
                _log.exception(f"a listener failed on a change of {status.child_id}")
