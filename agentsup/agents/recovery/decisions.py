"""Decisions about a failed attempt: pure functions over its kind and the earlier attempts.

The type of a failure (``engines.failures``) decides its kind, never a text. Attempts are counted by
kind and by model, over the whole life of the message. They are recorded, so a restart of the daemon
does not reset the count.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from types import MappingProxyType

from agentsup.engines import failures
from agentsup.model.errors import EngineFailed


class FailureKind(StrEnum):
    """The kind of a failure, as far as it decides what is done about it."""

    RATE_LIMIT = "rate_limit"
    PROVIDER = "provider"
    """The provider failed, can't be reached or does not answer."""
    BUSY = "busy"
    """Too many programs run on this machine."""
    AUTH = "auth"
    QUOTA = "quota"
    MODEL = "model"
    """The provider does not know the model."""
    SETUP = "setup"
    """The engine is missing, too old or lacks a setting."""
    CONTEXT = "context"
    """The conversation is longer than the model can read."""
    CRASH = "crash"
    """The engine's program ended before its work was done."""
    TURN_LIMIT = "turn_limit"
    LIMIT = "limit"
    """Out of tokens or money for this turn."""
    LOOP = "loop"
    EMPTY = "empty"
    """Tools were used and no text was written."""
    SILENT = "silent"
    """The idle or the hard deadline has passed."""
    FILTERED = "filtered"
    TRANSIENT = "transient"
    """The engine says only that another attempt may help."""
    OTHER = "other"


_BY_TYPE: Mapping[type[EngineFailed], FailureKind] = {
    failures.ProviderRateLimited: FailureKind.RATE_LIMIT,
    failures.ServerFailed: FailureKind.PROVIDER,
    failures.ConnectionFailed: FailureKind.PROVIDER,
    failures.ProviderTimedOut: FailureKind.PROVIDER,
    failures.EnginesBusy: FailureKind.BUSY,
    failures.SettingsPlanted: FailureKind.BUSY,
    failures.AuthFailed: FailureKind.AUTH,
    failures.ProviderQuotaExceeded: FailureKind.QUOTA,
    failures.ModelNotFound: FailureKind.MODEL,
    failures.UnknownEngine: FailureKind.SETUP,
    failures.ExtraMissing: FailureKind.SETUP,
    failures.NotConfigured: FailureKind.SETUP,
    failures.NotInstalled: FailureKind.SETUP,
    failures.NeverReady: FailureKind.SETUP,
    failures.VersionTooOld: FailureKind.SETUP,
    failures.ContextOverflow: FailureKind.CONTEXT,
    failures.ProgramEnded: FailureKind.CRASH,
    failures.EndedSilently: FailureKind.CRASH,
    failures.TurnLimitReached: FailureKind.TURN_LIMIT,
    failures.LimitReached: FailureKind.LIMIT,
    failures.LoopOfCalls: FailureKind.LOOP,
    failures.EmptyAfterToolUse: FailureKind.EMPTY,
    failures.EngineTimedOut: FailureKind.SILENT,
    failures.ContentFiltered: FailureKind.FILTERED,
}

BY_CODE: Mapping[str, FailureKind] = MappingProxyType(
    {type_.code: kind for type_, kind in _BY_TYPE.items()}
)
"""The failure kind by the error code that an engine's end carries."""

SICK = frozenset({FailureKind.PROVIDER})
"""Kinds that count against a provider. A wrong key, an empty account or a program's crash concern
one agent: other agents may use the same provider without a failure (P3)."""
UNSAID = frozenset(
    {
        FailureKind.SETUP,
        FailureKind.BUSY,
        FailureKind.CRASH,
        FailureKind.SILENT,
        FailureKind.TRANSIENT,
    }
)
"""Kinds that say nothing about a provider: it may never have been asked."""
OUT = frozenset({FailureKind.AUTH, FailureKind.QUOTA, FailureKind.MODEL, FailureKind.SETUP})
"""Kinds that last until somebody repairs the cause: the same attempt is not made again."""

LASTING = frozenset(code for code, kind in BY_CODE.items() if kind in OUT)
"""The error codes of such failures."""


def failure_kind_of(code: str, *, permanent: bool) -> FailureKind:
    """The kind of a failure by its ``code``; for an unknown code ``permanent`` decides."""
    found = BY_CODE.get(code)
    if found is None:
        return FailureKind.OTHER if permanent else FailureKind.TRANSIENT
    return found


PRIMARY, FALLBACK = "primary", "fallback"
"""The two models of an agent."""
TIERS = (PRIMARY, FALLBACK)

RETRIES: Mapping[FailureKind, int] = MappingProxyType(
    {
        FailureKind.RATE_LIMIT: 3,
        FailureKind.PROVIDER: 3,
        FailureKind.BUSY: 3,
        FailureKind.TRANSIENT: 3,
        FailureKind.CRASH: 1,
    }
)
"""Repetitions of an attempt on the same model; other kinds are never repeated."""
PATIENCE_S = 30.0
"""If the provider asks for a longer pause than this, the fallback is used, if there is one."""
MOST_WAIT_MS = 3_600_000
"""The longest wait of a message for a provider whose breaker is open, in all."""


class RecoveryAction(StrEnum):
    """The next step of a turn after a failure."""

    RETRY = "retry"
    """Queue the message again, with a pause."""
    SWITCH = "switch"
    """Once more in this turn, on the fallback."""
    SHORTEN = "shorten"
    """Once more in this turn, with the session shortened."""
    HINT = "hint"
    """Once more in this turn, with the hint that an answer is missing."""
    WRAP_UP = "wrap_up"
    """One last request without tools."""
    WAIT = "wait"
    """Queue the message again until its provider may be asked; this is no attempt."""
    FAIL = "fail"
    """The message ends, failed, with a notice."""
    BURY = "bury"
    """The message is dead-lettered."""


@dataclass(frozen=True, slots=True)
class Attempt:
    """A failed attempt, and what was done about it."""

    tier: str
    kind: FailureKind
    act: RecoveryAction
    at: int
    """Wall-clock ms."""


@dataclass(frozen=True, slots=True)
class Failure:
    """The present failure. ``retry_after_s`` is the pause for which the provider asked."""

    kind: FailureKind
    retry_after_s: float | None = None


@dataclass(frozen=True, slots=True)
class RecoveryContext:
    """The other facts that a decision depends on."""

    tier: str = PRIMARY
    has_fallback: bool = False
    may_begin_anew: bool = True
    """The turn can start again: its calls are in the journal or there were none, so nothing is done
    twice."""
    may_switch: bool = True
    """The turn can start again on the fallback's engine."""
    may_shorten: bool = False
    may_go_on: bool = False
    """The engine can be asked once more: it knows its calls, or finds them in the journal."""
    attempts_left: bool = True
    """The message may be attempted again."""
    is_left_alone: bool = False
    """The provider's breaker is open."""


@dataclass(frozen=True, slots=True)
class RecoveryStep:
    """The decision. ``least_s`` is the shortest pause before a retry."""

    act: RecoveryAction
    least_s: float = 0.0


def decide(failure: Failure, course: Sequence[Attempt], now: RecoveryContext) -> RecoveryStep:
    """Decide about ``failure`` after the attempts ``course``, oldest first."""
    kind = failure.kind
    match kind:
        case FailureKind.EMPTY if now.may_go_on and not _was(course, RecoveryAction.HINT):
            return RecoveryStep(RecoveryAction.HINT)
        case FailureKind.TURN_LIMIT if now.may_go_on and not _was(course, RecoveryAction.WRAP_UP):
            return RecoveryStep(RecoveryAction.WRAP_UP)
        case FailureKind.CONTEXT if now.may_shorten and not _was(course, RecoveryAction.SHORTEN):
            return RecoveryStep(RecoveryAction.SHORTEN)
    can_switch = now.tier == PRIMARY and now.has_fallback and now.may_switch
    if kind in OUT or kind is FailureKind.CONTEXT:
        return RecoveryStep(RecoveryAction.SWITCH if can_switch else RecoveryAction.FAIL)
    if kind not in RETRIES:
        return RecoveryStep(RecoveryAction.FAIL)
    least_s = failure.retry_after_s or 0.0
    if can_switch and (now.is_left_alone or least_s > PATIENCE_S):
        return RecoveryStep(RecoveryAction.SWITCH)
    if kind is FailureKind.CRASH and not now.may_begin_anew:
        return RecoveryStep(RecoveryAction.FAIL)
    tried = sum(
        a.tier == now.tier and a.kind is kind and a.act is RecoveryAction.RETRY for a in course
    )
    if tried < RETRIES[kind] and now.attempts_left:
        return RecoveryStep(RecoveryAction.RETRY, least_s)
    if can_switch:
        return RecoveryStep(RecoveryAction.SWITCH)
    return RecoveryStep(RecoveryAction.FAIL if kind is FailureKind.CRASH else RecoveryAction.BURY)


def tier_of(course: Sequence[Attempt], wanted: str, *, has_fallback: bool) -> str:
    """The tier to begin with: the fallback if it is ``wanted`` for the agent now, or if the message
    was switched to it before."""
    if has_fallback and (wanted == FALLBACK or _was(course, RecoveryAction.SWITCH)):
        return FALLBACK
    return PRIMARY


def has_waited_enough(course: Sequence[Attempt], now_ms: int) -> bool:
    """Whether a message has waited for its provider for ``MOST_WAIT_MS``."""
    first = next((a.at for a in course if a.act is RecoveryAction.WAIT), now_ms)
    return now_ms - first >= MOST_WAIT_MS


def _was(course: Sequence[Attempt], act: RecoveryAction) -> bool:
    return any(attempt.act is act for attempt in course)
