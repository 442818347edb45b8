"""Why a time of a schedule was let pass: on record in English, told to people in their language.

A reason is a text of the catalogue. What was written by another version, or is the message of a
refusal, is told as it stands.
"""

from __future__ import annotations

import re

from agentsup.catalogue import Words, words

__all__ = ["because", "told"]

_BEFORE = "skip.before"
_REASONS = (
    "skip.many",
    "skip.later",
    "skip.late",
    "skip.overlap",
    "skip.behind",
    "skip.paused",
    "skip.deleted",
    "skip.cancelled",
    "skip.set",
    "skip.changed",
)


def because(reason: str, **facts: object) -> str:
    """What is put on record; ``reason`` is ``many``, ``later`` and so on, ``facts`` its places."""
    return words()(f"skip.{reason}", **facts)


def told(why: str, say: Words) -> str:
    """What is on record, in the language of ``say``."""
    facts = _facts(_BEFORE, why)
    if facts is not None:
        return say(_BEFORE, why=told(facts["why"], say), time=facts["time"])
    for key in _REASONS:
        facts = _facts(key, why)
        if facts is not None:
            return say(key, **facts)
    return why


def _facts(key: str, text: str) -> dict[str, str] | None:
    """What stands in the places of the English text; None where ``text`` is another one."""
    form = re.sub(r"\\\{(\w+)\\\}", r"(?P<\1>.+)", re.escape(words()(key)))
    found = re.fullmatch(form, text, re.DOTALL)
    return None if found is None else found.groupdict()
