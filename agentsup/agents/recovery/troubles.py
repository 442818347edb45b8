"""Kinds of failures, by the types of ``engines.failures``: the type decides, never a text. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from types import MappingProxyType

from agentsup.engines import failures
from agentsup.model.errors import EngineFailed


class Trouble(StrEnum):
    """What went wrong, as far as it decides what is done about it."""

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
    """Tools were used and nothing was said."""
    SILENT = "silent"
    """Over the idle or the hard deadline."""
    FILTERED = "filtered"
    TRANSIENT = "transient"
    """The engine says that another attempt may help, and no more."""
    OTHER = "other"


_BY_TYPE: Mapping[type[EngineFailed], Trouble] = {
    failures.RateLimited: Trouble.RATE_LIMIT,
    failures.ServerFailed: Trouble.PROVIDER,
    failures.ConnectionFailed: Trouble.PROVIDER,
    failures.ProviderTimedOut: Trouble.PROVIDER,
    failures.EnginesBusy: Trouble.BUSY,
    failures.SettingsPlanted: Trouble.BUSY,
    failures.AuthFailed: Trouble.AUTH,
    failures.QuotaExceeded: Trouble.QUOTA,
    failures.ModelNotFound: Trouble.MODEL,
    failures.UnknownEngine: Trouble.SETUP,
    failures.ExtraMissing: Trouble.SETUP,
    failures.NotConfigured: Trouble.SETUP,
    failures.NotInstalled: Trouble.SETUP,
    failures.VersionTooOld: Trouble.SETUP,
    failures.ContextOverflow: Trouble.CONTEXT,
    failures.ProgramEnded: Trouble.CRASH,
    failures.EndedSilently: Trouble.CRASH,
    failures.TurnLimitReached: Trouble.TURN_LIMIT,
    failures.LimitReached: Trouble.LIMIT,
    failures.LoopOfCalls: Trouble.LOOP,
    failures.EmptyAfterToolUse: Trouble.EMPTY,
    failures.TurnTimedOut: Trouble.SILENT,
    failures.ContentFiltered: Trouble.FILTERED,
}

BY_CODE: Mapping[str, Trouble] = MappingProxyType(
    {type_.code: trouble for type_, trouble in _BY_TYPE.items()}
)
"""A failure travels as the code of its type."""

SICK = frozenset({Trouble.PROVIDER})
"""What tells against a provider. A wrong key, an empty account or a program's crash are the
agent's own: other agents with the same provider may do well (P3)."""
UNSAID = frozenset({Trouble.SETUP, Trouble.BUSY, Trouble.CRASH, Trouble.SILENT, Trouble.TRANSIENT})
"""What tells nothing about a provider: it may never have been asked."""
OUT = frozenset({Trouble.AUTH, Trouble.QUOTA, Trouble.MODEL, Trouble.SETUP})
"""What lasts until somebody mends it: the same attempt is not made again."""


def trouble_of(code: str, *, permanent: bool) -> Trouble:
    """The kind of a failure by its ``code``; for a foreign one, what its engine says of it."""
    found = BY_CODE.get(code)
    if found is None:
        return Trouble.OTHER if permanent else Trouble.TRANSIENT
    return found
