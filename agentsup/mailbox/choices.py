"""What people may answer to a question about a call, in their language and as it is stored. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from agentsup.catalogue import load
from agentsup.model.question import APPROVAL, Question

__all__ = [
    "ALWAYS",
    "ANY",
    "DENY",
    "ONCE",
    "RUN",
    "allows",
    "answer_label",
    "labels",
    "meant",
    "pattern_of",
    "pattern_option",
    "worded",
]

ONCE, RUN, ALWAYS, DENY = "once", "run", "always", "deny"
ANY = "any"
"""Offered in place of ``ALWAYS`` for a tool that runs commands: it has to be confirmed."""
_CHOICES = (ONCE, RUN, ALWAYS, ANY, DENY)
_PATTERN = "pattern:"
_MARKS = " \t\n:,.;-–—"


def pattern_option(pattern: str) -> str:
    """The option that gives leave for command lines of a pattern such as ``make *``."""
    return f"{_PATTERN}{pattern}"


def pattern_of(answer: str) -> str:
    """The pattern that an answer names; empty for every other one."""
    return answer.removeprefix(_PATTERN) if answer.startswith(_PATTERN) else ""


def allows(answer: str) -> bool:
    """Whether an answer to an approval lets the call happen."""
    return answer in (ONCE, RUN, ALWAYS) or answer.startswith(_PATTERN)


def labels(kind: str, options: Sequence[str], language: str) -> list[str]:
    """The options as a person reads them; those of other questions are in their words already."""
    if kind != APPROVAL:
        return list(options)
    return [_label(option, language) for option in options]


def answer_label(question: Question, language: str) -> str:
    """The answer that a question was given, as a person reads it."""
    return worded(question.kind, question.answer, language)


def worded(kind: str, answer: str, language: str) -> str:
    """An answer as a person reads it; those to other questions are in their words already."""
    if kind != APPROVAL:
        return answer
    if pattern_of(answer):
        return _label(answer, language)
    word, colon, reason = answer.partition(":")
    return f"{_label(word, language)}{colon}{reason}"


def meant(question: Question, text: str) -> str | None:
    """What an answer stands for, or None where it is none of the options.

    Leave may be named in any language there are texts for; a denial may go on with a reason, which
    is kept behind a colon.
    """
    if not question.options or text in question.options:
        return text
    if question.kind != APPROVAL:
        return None
    said = " ".join(text.split()).casefold()
    for language in load().languages:
        for option in question.options:
            if said in (option, _label(option, language).casefold()):
                return option
        if ANY in question.options and said in (ALWAYS, _label(ALWAYS, language).casefold()):
            return ANY
    return _denial(text) if DENY in question.options else None


def _denial(text: str) -> str | None:
    begun = text.strip()
    for word in (DENY, *(_label(DENY, language) for language in load().languages)):
        rest = begun[len(word) :]
        if begun.casefold().startswith(word.casefold()) and rest[:1] in _MARKS:
            reason = rest.lstrip(_MARKS).strip()
            return f"{DENY}: {reason}" if reason else DENY
    return None


def _label(option: str, language: str) -> str:
    if pattern := pattern_of(option):
        return load().text("approval.pattern", language, pattern=pattern)
    return load().text(f"approval.{option}", language) if option in _CHOICES else option
