"""What is said of a failure: to the model that is asked once more, and to the person. Pure."""

from __future__ import annotations

from agentsup.agents.recovery.troubles import Trouble, trouble_of
from agentsup.catalogue import words
from agentsup.model.engine import Done
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

_SAID = frozenset(Trouble) - {Trouble.OTHER, Trouble.TRANSIENT}
"""Of the others nothing is known but the engine's own sentence."""


def sentence(message: Message, end: Done) -> str:
    """What the asker of ``message`` reads of a failure, in their language; empty where its own text
    is all that is known. An operator reads that as well, which may name endpoints and files."""
    trouble = trouble_of(end.code, permanent=end.permanent)
    if trouble not in _SAID:
        return ""
    said = words(message.principal.language)(f"trouble.{trouble.value}")
    return f"{said} ({end.error})" if message.principal.is_operator else said


def provider_out(message: Message, text: str) -> str:
    """What the asker reads where their message has waited for its provider for too long."""
    said = words(message.principal.language)("trouble.provider")
    return f"{said} ({text})" if message.principal.is_operator else said


def wrapped_up(message: Message, text: str) -> str:
    """An answer that was given at the limit of steps, marked as such."""
    return f"{text}\n\n[{words(message.principal.language)('trouble.wrapped_up')}]"


def on_fallback(message: Message, text: str, model: str) -> str:
    """An answer of the fallback model, with a word that it is one."""
    say = words(message.principal.language)
    which = model or say("trouble.fallback_model")
    return f"{text}\n\n[{say('trouble.on_fallback', model=which)}]"
