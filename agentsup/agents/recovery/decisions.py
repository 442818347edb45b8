"""What is done about a failed attempt: pure functions over what was tried before.

Attempts on the same model are counted by kind of failure and by model, over the whole life of the
message: a restart of the daemon finds them on record and does not start anew.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from types import MappingProxyType

from agentsup.agents.recovery.troubles import OUT, Trouble

PRIMARY, FALLBACK = "primary", "fallback"
"""The two models of an agent."""
TIERS = (PRIMARY, FALLBACK)

RETRIES: Mapping[Trouble, int] = MappingProxyType(
    {
        Trouble.RATE_LIMIT: 3,
        Trouble.PROVIDER: 3,
        Trouble.BUSY: 3,
        Trouble.TRANSIENT: 3,
        Trouble.CRASH: 1,
    }
)
"""How often an attempt is repeated on the same model; what is not named here, never."""
PATIENCE_S = 30.0
"""A provider that wants a longer pause than this is passed over where there is a fallback."""
MOST_WAIT_MS = 3_600_000
"""How long a message waits for a provider that is left alone, in all."""


class Act(StrEnum):
    """What is done next."""

    RETRY = "retry"
    """Back to the queue, with a pause."""
    SWITCH = "switch"
    """Once more in this turn, on the fallback."""
    SHORTEN = "shorten"
    """Once more in this turn, the session shortened."""
    HINT = "hint"
    """Once more in this turn, with a word that an answer is missing."""
    WRAP_UP = "wrap_up"
    """One last request without tools."""
    WAIT = "wait"
    """Back to the queue until its provider is asked again; no attempt."""
    FAIL = "fail"
    """The message ends, failed, with a notice."""
    BURY = "bury"
    """The message becomes a dead letter."""


@dataclass(frozen=True, slots=True)
class Attempt:
    """One that failed, and what was done about it."""

    tier: str
    trouble: Trouble
    act: Act
    at: int
    """Wall ms."""


@dataclass(frozen=True, slots=True)
class Failure:
    """What went wrong now. ``retry_after_s``: the provider's own wish."""

    trouble: Trouble
    retry_after_s: float | None = None


@dataclass(frozen=True, slots=True)
class Circumstances:
    """What else bears on the decision."""

    tier: str = PRIMARY
    has_fallback: bool = False
    may_begin_anew: bool = True
    """What was done is in the journal, or with the engine: nothing would be done twice."""
    may_switch: bool = True
    """As above, for another engine."""
    may_shorten: bool = False
    may_go_on: bool = False
    """The engine can be asked once more, knowing what it did or meeting it in the journal."""
    attempts_left: bool = True
    """The message may be attempted again."""
    is_left_alone: bool = False
    """The provider is not asked for a while now."""


@dataclass(frozen=True, slots=True)
class Step:
    """The decision. ``least_s``: the pause is no shorter."""

    act: Act
    least_s: float = 0.0


def decide(failure: Failure, course: Sequence[Attempt], now: Circumstances) -> Step:
    """What to do about ``failure`` after ``course``, oldest first."""
    trouble = failure.trouble
    match trouble:
        case Trouble.EMPTY if now.may_go_on and not _was(course, Act.HINT):
            return Step(Act.HINT)
        case Trouble.TURN_LIMIT if now.may_go_on and not _was(course, Act.WRAP_UP):
            return Step(Act.WRAP_UP)
        case Trouble.CONTEXT if now.may_shorten and not _was(course, Act.SHORTEN):
            return Step(Act.SHORTEN)
    can_switch = now.tier == PRIMARY and now.has_fallback and now.may_switch
    if trouble in OUT or trouble is Trouble.CONTEXT:
        return Step(Act.SWITCH if can_switch else Act.FAIL)
    if trouble not in RETRIES:
        return Step(Act.FAIL)
    least_s = failure.retry_after_s or 0.0
    if can_switch and (now.is_left_alone or least_s > PATIENCE_S):
        return Step(Act.SWITCH)
    if trouble is Trouble.CRASH and not now.may_begin_anew:
        return Step(Act.FAIL)
    tried = sum(a.tier == now.tier and a.trouble is trouble and a.act is Act.RETRY for a in course)
    if tried < RETRIES[trouble] and now.attempts_left:
        return Step(Act.RETRY, least_s)
    if can_switch:
        return Step(Act.SWITCH)
    return Step(Act.FAIL if trouble is Trouble.CRASH else Act.BURY)


def tier_of(course: Sequence[Attempt], wanted: str, *, has_fallback: bool) -> str:
    """The model to begin with: the one that is ``wanted`` for the agent now, but for a message that
    has been given to the fallback already."""
    if has_fallback and (wanted == FALLBACK or _was(course, Act.SWITCH)):
        return FALLBACK
    return PRIMARY


def has_waited_enough(course: Sequence[Attempt], now_ms: int) -> bool:
    """Whether a message has waited for its provider for as long as it may."""
    first = next((a.at for a in course if a.act is Act.WAIT), now_ms)
    return now_ms - first >= MOST_WAIT_MS


def _was(course: Sequence[Attempt], act: Act) -> bool:
    return any(attempt.act is act for attempt in course)
