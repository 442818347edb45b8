"""What happens after something that runs has ended: one pure decision.

The caller says what ended, what ended before, the policy and the dice; the answer is to build it
again after a delay, to leave it, or to end the daemon. No clock, no chance and no asyncio in
here, so the rules can be tested as a table and by properties. Serves P3.
"""

from dataclasses import dataclass
from enum import StrEnum

from agentsup.kit.backoff import delay_s
from agentsup.model.health import AgentState

__all__ = [
    "REBUILD_CODE",
    "Decision",
    "EndKind",
    "Ended",
    "ExitDaemon",
    "History",
    "Rebuild",
    "Restart",
    "RestartPolicy",
    "Role",
    "Settle",
    "decide",
]

REBUILD_CODE = 42
"""The exit code that asks for a rebuild; a request, never a failure."""


class Restart(StrEnum):
    """Which ends are followed by a new life."""

    PERMANENT = "permanent"
    """Every end that nobody wanted, a normal one too."""
    TRANSIENT = "transient"
    """Failures only; a normal end is an end."""
    TEMPORARY = "temporary"
    """None."""


class Role(StrEnum):
    """Whose end it is: the end of main is the end of the daemon."""

    MAIN = "main"
    CHILD = "child"


class EndKind(StrEnum):
    """How a life ended."""

    FINISHED = "finished"
    CRASHED = "crashed"
    EXIT_REQUESTED = "exit_requested"
    START_FAILED = "start_failed"
    STOPPED = "stopped"


@dataclass(frozen=True, slots=True)
class RestartPolicy:
    """How patiently something is built again. Durations in seconds.

    The n-th failure in a row is followed by `base_s * factor**n`, at most `cap_s`, spread by
    `jitter`. After `max_restarts` restarts within `window_s` the next failure gives up
    (`max_restarts=None`: never). A life of `stable_s` or more wipes the slate clean.
    """

    base_s: float = 1.0
    factor: float = 2.0
    cap_s: float = 60.0
    jitter: float = 0.5
    max_restarts: int | None = 5
    window_s: float = 300.0
    stable_s: float = 60.0
    exit42_max: int = 10
    exit42_window_s: float = 60.0
    main_restarts: bool = False
    """Whether a crash of main rebuilds it in process, as any other child."""


@dataclass(frozen=True, slots=True)
class Ended:
    """One life's end. `at` is in seconds on any clock that never goes back."""

    at: float
    kind: EndKind
    code: int = 0
    reason: str = ""
    uptime_s: float = 0.0
    """Time since it was ready; 0 if it never was."""
    wanted: bool = False
    """Somebody had asked for this end before it happened."""


@dataclass(frozen=True, slots=True)
class History:
    """Earlier ends, oldest first."""

    ends: tuple[Ended, ...] = ()

    def plus(self, end: Ended, *, keep: int = 256) -> "History":
        """This history with `end` added, of which the last `keep` ends remain.

        The default is far more than any window holds, and bounds the memory of a child that
        goes round for years.
        """
        return History((*self.ends, end)[-keep:])

    def restarts_in_window(self, now: float, policy: RestartPolicy) -> int:
        """How many failures still count at `now`, for showing; what `decide` would count."""
        return _failures_before(now, self.ends, policy)


@dataclass(frozen=True, slots=True)
class Rebuild:
    """Build it again after `delay_s` seconds."""

    delay_s: float


@dataclass(frozen=True, slots=True)
class Settle:
    """Leave it in `state` (stopped or failed) until somebody acts."""

    state: AgentState
    reason: str


@dataclass(frozen=True, slots=True)
class ExitDaemon:
    """End the whole process with `code`."""

    code: int


Decision = Rebuild | Settle | ExitDaemon


def decide(
    end: Ended,
    history: History,
    policy: RestartPolicy,
    *,
    role: Role = Role.CHILD,
    restart: Restart = Restart.TRANSIENT,
    unit: float = 0.5,
) -> Decision:
    """What to do after `end`, given the earlier ends in `history` (without `end`).

    `unit` in [0, 1] places the delay within its jitter. A wanted end is decided before anything
    else, a request to rebuild included.
    """
    if end.wanted or end.kind is EndKind.STOPPED:
        return Settle(AgentState.STOPPED, end.reason)
    is_storm = _is_rebuild_request(end) and _is_one_too_many(end, history.ends, policy)
    if _is_rebuild_request(end) and not is_storm:
        return ExitDaemon(REBUILD_CODE) if role is Role.MAIN else Rebuild(0.0)
    is_clean = end.kind in {EndKind.FINISHED, EndKind.EXIT_REQUESTED} and end.code == 0
    if role is Role.MAIN:
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
    if policy.max_restarts is not None and failures >= policy.max_restarts:
        return Settle(AgentState.FAILED, f"gave up after {failures} restarts: {end.reason}")
    return Rebuild(
        delay_s(failures, policy.base_s, policy.factor, policy.cap_s, policy.jitter, unit)
    )


def _is_rebuild_request(end: Ended) -> bool:
    return end.kind is EndKind.EXIT_REQUESTED and end.code == REBUILD_CODE


def _is_one_too_many(end: Ended, before: tuple[Ended, ...], policy: RestartPolicy) -> bool:
    """Whether `end` is one request to rebuild too many for its span of time."""
    horizon = end.at - policy.exit42_window_s
    requests = 1
    for past in reversed(before):
        if past.at <= horizon:
            break
        requests += _is_rebuild_request(past)
    return requests > policy.exit42_max


def _failures_before(now: float, ends: tuple[Ended, ...], policy: RestartPolicy) -> int:
    """Failures that count against the next one.

    Counted since the last stable life: those within the window, or all failed starts, whichever
    is more. A start that hangs for minutes would never fill the window.
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
    # A permanent child that finished was built again, so its normal end counts, too; of other
    # children it would have been the last end.
    return True
