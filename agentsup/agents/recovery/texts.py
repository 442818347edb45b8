"""Texts about a failure: for the model that is asked once more, and for the person. Pure."""

from __future__ import annotations

from datetime import datetime

from agentsup.agents.recovery.decisions import OUT, FailureKind, failure_kind_of
from agentsup.catalogue import words
from agentsup.kit.text import as_sentence
from agentsup.model.engine import EngineDone
from agentsup.model.message import Message

HINT = (
    "You used your tools and then ended without writing an answer, so the person has read nothing. "
    "What you did is done and its results stand: do nothing again. Write your answer now."
)
WRAP_UP = (
    "You have reached the limit of steps for this turn, so no tool can be used any more. Write to "
    "the person now, in a few sentences: what you have done and found so far, and what is still "
    "open."
)

_TIME, _DAY = "%H:%M %Z", "%Y-%m-%d %H:%M %Z"
_DAY_S = 20 * 3600
"""If a wait is longer, the time of its end is told with the day."""
_WAITED_FOR = frozenset({FailureKind.PROVIDER, FailureKind.RATE_LIMIT, FailureKind.BUSY})
"""Failure kinds with a text about the wait. The others may pass; more is not known."""
_SAID = frozenset(FailureKind) - {FailureKind.OTHER, FailureKind.TRANSIENT}
"""Failure kinds with a text of their own. Of the others only the engine's sentence is known."""


def sentence(message: Message, end: EngineDone, chat_model: str = "") -> str:
    """The text about a failure for the sender of ``message``, in their language; empty if only the
    engine's text is known. An operator also reads that text, which may name endpoints and files: first
    and alone where it says what is to be mended. ``chat_model`` is the model that was chosen for the
    chat, if it was to answer."""
    kind = failure_kind_of(end.code, permanent=end.permanent)
    if kind not in _SAID:
        return ""
    say = words(message.principal.language)
    if message.principal.is_operator and kind in OUT and end.error:
        missing = as_sentence(end.error)
        if kind is not FailureKind.MODEL:
            return missing
        return (
            f"{missing} {say('failure.other_chat_model' if chat_model else 'failure.other_model')}"
        )
    if kind is FailureKind.MODEL and chat_model:
        said = say("failure.chat_model", model=chat_model)
    else:
        said = say(f"failure.{kind.value}")
    return f"{said} ({end.error})" if message.principal.is_operator else said


def provider_out(message: Message, text: str) -> str:
    """The text for a sender whose message has waited too long for its provider."""
    said = words(message.principal.language)("failure.provider")
    return f"{said} ({text})" if message.principal.is_operator else said


def wrapped_up(message: Message, text: str) -> str:
    """``text``, marked as an answer that was given at the limit of steps."""
    return f"{text}\n\n[{words(message.principal.language)('failure.wrapped_up')}]"


def on_fallback(message: Message, text: str, model: str) -> str:
    """``text``, marked as an answer of the fallback model."""
    say = words(message.principal.language)
    which = model or say("failure.fallback_model")
    return f"{text}\n\n[{say('failure.on_fallback', model=which)}]"


def waits(
    message: Message,
    agent: str,
    provider: str,
    kind: FailureKind,
    *,
    pause_s: float,
    until: datetime,
) -> str:
    """The notice about a long wait: what does not answer, that the message is kept, when it is tried
    again, and how to cancel it. Only an operator reads the provider's name, which may be an
    endpoint."""
    say = words(message.principal.language)
    why = say(f"wait.{(kind if kind in _WAITED_FOR else FailureKind.TRANSIENT).value}")
    if message.principal.is_operator and kind is not FailureKind.BUSY:
        why = f"{why} ({provider})"
    when = f"{until:{_DAY if pause_s > _DAY_S else _TIME}}".strip()
    return say("wait.note", agent=agent, why=why, pause=_length(pause_s), when=when)


def _length(seconds: float) -> str:
    """A rounded length of time, in the unit that fits."""
    if seconds < 100:
        return f"{seconds:.0f} s"
    if seconds < 100 * 60:
        return f"{seconds / 60:.0f} min"
    return f"{seconds / 3600:.0f} h" if seconds < 48 * 3600 else f"{seconds / 86400:.0f} d"
