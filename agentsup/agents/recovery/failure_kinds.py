"""Kinds of failures, by the types of ``engines.failures``. The type decides, never a text. Pure."""

from __future__ import annotations

from collections.abc import Mapping
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
