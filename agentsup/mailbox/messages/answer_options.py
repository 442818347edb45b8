"""The answers to a question about a call, as people read them and as they are stored. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from agentsup.catalogue import load
from agentsup.model.question import APPROVAL, PATTERN_MARK, Decision, GrantEnd, Question

ONCE, RUN, ALWAYS, DENY = "once", "run", "always", "deny"
ANY = "any"
"""Offered in place of ``ALWAYS`` for a tool that runs commands: it has to be confirmed."""
_CHOICES = (ONCE, RUN, ALWAYS, ANY, DENY)
_MARKS = " \t\n:,.;-–—"


def pattern_option(pattern: str, end: GrantEnd | None = None) -> str:
    """The option that grants command lines of a pattern such as ``make *``; with an ``end``, the
    answer that says until when."""
    return f"{PATTERN_MARK}{pattern}" if end is None else f"{PATTERN_MARK}{end.value}:{pattern}"


def pattern_end(text: str) -> tuple[str, GrantEnd | None]:
    """The pattern and the end that an answer names; no pattern begins as an end does."""
    mark, _, rest = text.removeprefix(PATTERN_MARK).partition(":")
    found = next((end for end in GrantEnd if end.value == mark and rest), None)
    return (text.removeprefix(PATTERN_MARK), None) if found is None else (rest, found)


def needs_end(option: str) -> bool:
    """Whether a person who chose the option in a chat is still to say until when."""
    return option.startswith(PATTERN_MARK) and pattern_end(option)[1] is None


def ends_of(option: str) -> tuple[str, ...]:
    """The answers that say until when, to an option that needs an end; else none."""
    if not needs_end(option):
        return ()
    return tuple(pattern_option(pattern_end(option)[0], end) for end in GrantEnd)


def decided(kind: str, answer: str) -> tuple[Decision, str]:
    """The decision of an answer to a question of ``kind``, and its text: the inverse of
    ``joined_answer``. ``answer`` is an option, as ``meant`` returns it."""
    if kind != APPROVAL:
        return Decision.TEXT, answer
    if answer.startswith(PATTERN_MARK):
        pattern, end = pattern_end(answer)
        lasts = end in (None, GrantEnd.REVOKED)
        return Decision.PATTERN, pattern if lasts else answer.removeprefix(PATTERN_MARK)
    word, _, reason = answer.partition(":")
    if word == DENY:
        return Decision.DENY, reason.strip()
    return (Decision(answer), "") if answer in (ONCE, RUN, ALWAYS) else (Decision.TEXT, answer)


def labels(kind: str, options: Sequence[str], language: str) -> list[str]:
    """The options as a person reads them; only those of an approval have to be translated."""
    if kind != APPROVAL:
        return list(options)
    return [_offer_label(option, language) for option in options]


def answer_label(question: Question, language: str) -> str:
    """The answer that a question was given, as a person reads it."""
    return worded(question.kind, question.answer, language)


def worded(kind: str, answer: str, language: str) -> str:
    """An answer as a person reads it; only that of an approval has to be translated."""
    decision, text = decided(kind, answer)
    if decision is Decision.DENY and text:
        return f"{_label(DENY, language)}: {text}"
    return answer if decision is Decision.TEXT else _label(answer, language)


def meant(question: Question, text: str) -> str | None:
    """The stored form of an answer, or None if it is none of the options.

    An approval may be named in any language of the catalogue; a denial may go on with a reason,
    which is stored behind a colon.
    """
    if not question.options or text in question.options:
        return text
    if question.kind != APPROVAL:
        return None
    said = " ".join(text.split()).casefold()
    ends = [end for option in question.options for end in ends_of(option)]
    if text in ends:
        return text
    for language in load().languages:
        names = [(option, _offer_label(option, language)) for option in question.options]
        for option, label in (*names, *((end, _label(end, language)) for end in ends)):
            if said in (option, label.casefold()):
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


def _offer_label(option: str, language: str) -> str:
    if not needs_end(option):
        return _label(option, language)
    return load().text("approval.pattern", language, pattern=pattern_end(option)[0])


def _label(option: str, language: str) -> str:
    if option.startswith(PATTERN_MARK):
        pattern, end = pattern_end(option)
        key = f"approval.until_{(end or GrantEnd.REVOKED).value}"
        return load().text(key, language, pattern=pattern)
    return load().text(f"approval.{option}", language) if option in _CHOICES else option
