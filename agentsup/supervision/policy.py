"""The decision after the end of a life, as one pure function, and the allowed changes of state.

The caller gives the end, earlier ends, the policy and a random number. The result is to rebuild
after a delay, to settle in a state, or to end the daemon. No clock, no randomness and no asyncio
here, so the rules can be tested as a table and by properties. Serves P3.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from types import MappingProxyType

from agentsup.kit.backoff import delay_s
from agentsup.model.agent import RestartSpec
from agentsup.model.errors import IllegalTransition
from agentsup.model.health import AgentState

_MOST_ENDS = 256  # more than any window holds; a child may be restarted for years
REBUILD_CODE = 42
"""The exit code that requests a rebuild; never a failure."""


class Restart(StrEnum):
    """After which ends a new life follows."""

    PERMANENT = "permanent"
    """After every end that was not requested, a normal one too."""
    TRANSIENT = "transient"
    """After failures only; a normal end is final."""
    TEMPORARY = "temporary"
    """Never."""


class EndKind(StrEnum):
    """The kind of end of a life."""

    FINISHED = "finished"
    CRASHED = "crashed"
    EXIT_REQUESTED = "exit_requested"
    START_FAILED = "start_failed"
    STOPPED = "stopped"


@dataclass(frozen=True, slots=True)
class RestartPolicy(RestartSpec):
    """When and how often something is rebuilt, as an agent declares it.

    The n-th failure in a row is followed by a pause of ``base_s * factor**n``, at most ``cap_s``,
    spread by ``jitter``. After ``max_restarts`` restarts within ``window_s`` the next failure is
    final. A life of ``stable_s`` or more resets the count.
    """

    is_endless: bool = False
    """Whether no number of failures is final."""
    main_restarts: bool = False
    """Whether a crash of main rebuilds it within the process, as any other child."""


@dataclass(frozen=True, slots=True)
class Ended:
    """The end of one life. ``at`` is in seconds on any clock that never goes back."""

    at: float
    kind: EndKind
    code: int = 0
    reason: str = ""
    uptime_s: float = 0.0
    """Seconds since it was ready; 0 if it never was."""
    wanted: bool = False
    """Whether somebody had requested this end before it happened."""


@dataclass(frozen=True, slots=True)
class EndHistory:
    """Earlier ends, oldest first."""

    ends: tuple[Ended, ...] = ()

    def plus(self, end: Ended) -> EndHistory:
        """This history with ``end`` added, without the oldest ends if there are very many."""
        return EndHistory((*self.ends, end)[-_MOST_ENDS:])

    def restarts_in_window(self, now: float, policy: RestartPolicy) -> int:
        """The number of failures that still count at ``now``, as ``decide`` would count them; for
        display."""
        return _failures_before(now, self.ends, policy)


@dataclass(frozen=True, slots=True)
class Rebuild:
    """Rebuild after ``delay_s`` seconds."""

    delay_s: float


@dataclass(frozen=True, slots=True)
class Settle:
    """Stay in ``state`` (stopped or failed) until somebody acts."""

    state: AgentState
    reason: str


@dataclass(frozen=True, slots=True)
class ExitDaemon:
    """End the whole process with ``code``."""

    code: int


Decision = Rebuild | Settle | ExitDaemon


def decide(
    end: Ended,
    history: EndHistory,
    policy: RestartPolicy,
    *,
    is_main: bool = False,
    restart: Restart = Restart.TRANSIENT,
    unit: float = 0.5,
) -> Decision:
    """The decision after ``end``, given the earlier ends in ``history`` (without ``end``).

    The end of main (``is_main``) ends the daemon. ``unit`` in [0, 1] places the delay within its
    jitter. A wanted end is decided before anything else, even before a request to rebuild.
    """
    if end.wanted or end.kind is EndKind.STOPPED:
        return Settle(AgentState.STOPPED, end.reason)
    is_storm = _is_rebuild_request(end) and _is_one_too_many(end, history.ends, policy)
    if _is_rebuild_request(end) and not is_storm:
        return ExitDaemon(REBUILD_CODE) if is_main else Rebuild(0.0)
    is_clean = end.kind in {EndKind.FINISHED, EndKind.EXIT_REQUESTED} and end.code == 0
    if is_main:
        if is_clean or (end.kind is EndKind.EXIT_REQUESTED and not is_storm):
            return ExitDaemon(end.code)
        if not policy.main_restarts:
            return ExitDaemon(1)
    if is_clean and restart is not Restart.PERMANENT:
        return Settle(AgentState.STOPPED, end.reason)
    if restart is Restart.TEMPORARY:
        return Settle(AgentState.FAILED, end.reason)
    failures = 0
    if end.uptime_s < policy.stable_s:
        failures = _failures_before(end.at, history.ends, policy)
    if not policy.is_endless and failures >= policy.max_restarts:
        return Settle(AgentState.FAILED, f"gave up after {failures} restarts: {end.reason}")
    return Rebuild(
        delay_s(failures, policy.base_s, policy.factor, policy.cap_s, policy.jitter, unit)
    )


def _is_rebuild_request(end: Ended) -> bool:
    return end.kind is EndKind.EXIT_REQUESTED and end.code == REBUILD_CODE


def _is_one_too_many(end: Ended, before: tuple[Ended, ...], policy: RestartPolicy) -> bool:
    """Whether ``end`` exceeds the number of rebuild requests allowed in their window."""
    horizon = end.at - policy.exit42_window_s
    requests = 1
    for past in reversed(before):
        if past.at <= horizon:
            break
        requests += _is_rebuild_request(past)
    return requests > policy.exit42_max


def _failures_before(now: float, ends: tuple[Ended, ...], policy: RestartPolicy) -> int:
    """Failures that count against the next one.

    Counted since the last stable life: those within the window, or all failed starts, whichever is
    more. Starts that hang for minutes would never fill the window.
    """
    in_window = failed_starts = 0
    horizon = now - policy.window_s
    for index in range(len(ends) - 1, -1, -1):
        past = ends[index]
        if _counts_as_failure(past, ends[:index], policy):
            in_window += past.at > horizon
            failed_starts += past.kind is EndKind.START_FAILED
        if past.uptime_s >= policy.stable_s:
            break
    return max(in_window, failed_starts)


def _counts_as_failure(end: Ended, before: tuple[Ended, ...], policy: RestartPolicy) -> bool:
    if end.wanted or end.kind is EndKind.STOPPED:
        return False
    if _is_rebuild_request(end):
        return _is_one_too_many(end, before, policy)
    # A permanent child that finished was rebuilt, so its normal end counts too; for other children
    # it would have been the last end.
    return True


_S = AgentState

TRANSITIONS = MappingProxyType(
    {
        _S.STOPPED: frozenset({_S.STARTING}),
        _S.STARTING: frozenset({_S.RUNNING, _S.DEGRADED, _S.BACKOFF, _S.STOPPING}),
        _S.RUNNING: frozenset({_S.DEGRADED, _S.BACKOFF, _S.STOPPING}),
        _S.DEGRADED: frozenset({_S.RUNNING, _S.BACKOFF, _S.STOPPING}),
        _S.STOPPING: frozenset({_S.STOPPED, _S.STARTING, _S.BACKOFF}),
        _S.BACKOFF: frozenset({_S.STARTING, _S.FAILED, _S.STOPPING}),
        _S.FAILED: frozenset({_S.STARTING, _S.STOPPED}),
    }
)
"""From each state, the states that may come next. A life that ends by itself passes through
``backoff`` if it failed and through ``stopping`` if not. A rebuild goes from ``stopping``
straight to ``starting``, and to ``backoff`` if requests to rebuild come too fast."""


def check_transition(child_id: str, old: AgentState, new: AgentState) -> None:
    """Raise ``IllegalTransition`` unless ``new`` may follow ``old``."""
    if new not in TRANSITIONS[old]:
        raise IllegalTransition(
            f"{child_id} cannot go from {old} to {new}", child_id=child_id, old=old, new=new
        )
