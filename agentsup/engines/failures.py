"""The failures of engines, as types: the type decides what happens next, never a text.

Transient failures are worth a retry with back-off; permanent ones end the message with a notice.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import Any

from agentsup.kit import installation
from agentsup.kit.own_command import with_home
from agentsup.model.errors import PROVIDER_TIMED_OUT, TURN_TIMED_OUT, EngineFailed


class EngineCrash(Exception):
    """Escapes through the guard into the stack, on purpose: the agent itself crashes.

    Only the scripted engine raises it. Every other exception of an engine is a failed turn.
    """


class Permanent(EngineFailed):
    """Trying the same again will not help."""

    def __init__(self, message: str, **facts: Any) -> None:
        super().__init__(message, permanent=True, **facts)


class Transient(EngineFailed):
    """The same request may succeed later. ``retry_after_s`` is the provider's own wish, if any."""

    def __init__(self, message: str, *, retry_after_s: float | None = None, **facts: Any) -> None:
        super().__init__(message, permanent=False, retry_after_s=retry_after_s, **facts)


# -- set-up ------------------------------------------------------------------------------------------


class UnknownEngine(Permanent):
    """No engine of that name is registered."""

    code = "engine_unknown"


class ExtraMissing(Permanent):
    """The engine's optional libraries are not installed; the message is the install command."""

    code = "extra_missing"

    @classmethod
    def of(cls, engine: str, extra: str, error: ImportError) -> ExtraMissing:
        """The failure to import the library of ``engine``, which ``extra`` installs."""
        changed = installation.change()
        return cls(
            f"the engine {engine} needs an optional part that is not installed "
            f"({error.name or error}): run pip install 'agentsup[{extra}]' and restart"
            + (f" ({changed})" if changed else "")
        )


class NotConfigured(Permanent):
    """A setting the engine can't do without is missing."""

    code = "engine_not_configured"

    def __init__(self, message: str, **facts: Any) -> None:
        super().__init__(with_home(message), **facts)


class ScriptInvalid(Permanent):
    """The script file can't be read or understood; the message names file, line, rule and step."""

    code = "script_invalid"


# -- programs ------------------------------------------------------------------------------------------


class NotInstalled(Permanent):
    """The engine's program is not on this machine; the message says how to get it."""

    code = "program_not_installed"


class NeverReady(Permanent):
    """The program was started and never got ready: it waits for an answer, or does not speak the
    protocol. Another start would wait as long."""

    code = "never_ready"


class VersionTooOld(Permanent):
    """The engine's program does not know an option that is needed."""

    code = "program_too_old"


class EnginesBusy(Transient):
    """A program can't be started now, such as because too many wait for their start already."""

    code = "engines_busy"


class SettingsPlanted(Transient):
    """Settings that are not ours appeared in a workspace while an agent started. They were renamed,
    and the agent may be started again."""

    code = "settings_planted"


class ProgramEnded(Permanent):
    """The program ended, with ``exit_code``, before its work was done."""

    code = "program_ended"


class OutputTooLong(Permanent):
    """A line of the program's output is over its limit."""

    code = "output_too_long"


class OutOfMemory(Permanent):
    """The program's process group used more memory than it may."""

    code = "out_of_memory"


class OutputUnreadable(Permanent):
    """The program does not speak the protocol that its engine expects."""

    code = "output_unreadable"


# -- the model's provider -----------------------------------------------------------------------------


class AuthFailed(Permanent):
    """The provider refuses the key, or no key is set."""

    code = "auth_failed"


class ProviderQuotaExceeded(Permanent):
    """The account has no credit left."""

    code = "quota_exceeded"


class ModelNotFound(Permanent):
    """The provider does not know the model."""

    code = "model_not_found"


class ContextOverflow(Permanent):
    """The conversation is longer than the model can read."""

    code = "context_overflow"


class RequestRejected(Permanent):
    """The provider refuses the request as it is."""

    code = "request_rejected"


class ContentFiltered(Permanent):
    """The provider's content filter stopped the answer."""

    code = "content_filtered"


class ProviderRateLimited(Transient):
    """Too many requests; wait."""

    code = "rate_limited"


class ServerFailed(Transient):
    """The provider failed or is overloaded."""

    code = "server_error"


class ConnectionFailed(Transient):
    """The provider could not be reached, or the answer broke off."""

    code = "connection"


class ProviderTimedOut(Transient):
    """The provider did not answer in time."""

    code = PROVIDER_TIMED_OUT


# -- the run ---------------------------------------------------------------------------------------


class LimitReached(Permanent):
    """The turn used up its tokens or its money."""

    code = "limit_reached"


class Continuable(Permanent):
    """The engine can be asked once more: ``state`` is its engine state after this turn."""

    def __init__(self, message: str, *, state: bytes | None = None, **facts: Any) -> None:
        super().__init__(message, **facts)
        self.state = state


class TurnLimitReached(Continuable):
    """The turn used up its steps: model requests or tool calls."""

    code = "turn_limit"


class LoopOfCalls(Permanent):
    """The same tool call with the same arguments, again and again."""

    code = "loop_detected"


class EmptyAnswer(Permanent):
    """The model answered with nothing."""

    code = "empty_answer"


class EmptyAfterToolUse(Continuable):
    """The model used tools and then said nothing."""

    code = "empty_after_tool_use"


class EndedSilently(Transient):
    """The engine stopped without saying how it ended."""

    code = "engine_ended_silently"


class EngineTimedOut(Permanent):
    """The turn was silent for too long, or took too long as a whole."""

    code = TURN_TIMED_OUT


class BadModelOutput(Permanent):
    """The model's output can't be used (invalid tool calls, over and over)."""

    code = "bad_model_output"


class CheckpointUnusable(Permanent):
    """The checkpoint of a suspended segment can't be read any more."""

    code = "checkpoint_unusable"


# -- by code ---------------------------------------------------------------------------------------


def _all(kind: type[EngineFailed]) -> Iterator[type[EngineFailed]]:
    for each in kind.__subclasses__():
        yield each
        yield from _all(each)


FAILURES: Mapping[str, type[EngineFailed]] = MappingProxyType(
    {
        each.code: each
        for base in (Permanent, Transient)
        for each in _all(base)
        if each.__module__ == __name__ and "code" in vars(each)
    }
)
"""Every kind of failure by its code."""
