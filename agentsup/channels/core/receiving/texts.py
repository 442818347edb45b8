"""Texts about messages: notices for people, and quotes and corrections for the agent. Pure."""

from __future__ import annotations

import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass

from agentsup.catalogue import LocalizedTexts

_QUOTE_CHARS = 300
_WHO_CHARS = 64
_NAMED = 5
_NAMED_CHARS = 60


@dataclass(frozen=True, slots=True)
class Attachment:
    """A file that a person has sent, by its id or address on the platform.

    ``size`` in bytes, None if the platform does not tell it.
    """

    kind: str
    file_id: str
    name: str
    size: int | None = None


@dataclass(frozen=True, slots=True)
class Quoted:
    """The message to which another replies. ``is_ours``: the bot wrote it.

    ``message_id`` is empty for a message of another chat.
    """

    message_id: str
    is_ours: bool
    who: str = ""
    text: str = ""
    files: tuple[Attachment, ...] = ()


def with_quote(text: str, quoted: Quoted | None) -> str:
    """Return a text with a quote of the message that it replies to, if there is one.

    The agent may not have seen another's message, and could not know which of its own is meant.
    """
    if quoted is None or not (quoted.text.strip() or quoted.files):
        return text
    said = inert(quoted.text, _QUOTE_CHARS)
    if quoted.files:
        names = ", ".join(inert(each.name, _WHO_CHARS) for each in quoted.files[:_NAMED])
        said = f"{said} (with {names})".lstrip()
    if quoted.is_ours:
        return f"[about your own words: {said}]\n{text}".rstrip()
    # A name that contains ": " would look like a speaker and a text.
    who = inert(quoted.who, _WHO_CHARS).replace(": ", " ").rstrip(":") or "somebody"
    return f"[in reply to {who}: {said}]\n{text}".rstrip()


def inert(text: str, max_chars: int) -> str:
    """Return foreign text as one line that cannot be taken for our own words.

    Brackets become parentheses; control characters and marks of writing direction are removed.
    """
    seen = "".join(" " if unicodedata.category(c) == "Cc" else c for c in text[: 8 * max_chars])
    line = " ".join(seen.translate(_MARKS).split())
    return line if len(line) <= max_chars else line[: max_chars - 1].rstrip() + "…"


_MARKS = str.maketrans(
    {"[": "(", "]": ")"}
    | dict.fromkeys("\u061c\u200e\u200f\u202a\u202b\u202c\u202d\u202e")
    | dict.fromkeys("\u2066\u2067\u2068\u2069")
)


def problem_note(problem: str) -> str:
    """Return a note for the agent about what the person was told of the message."""
    return f"[the person was told: {inert(problem, _QUOTE_CHARS)}]"


def edited(text: str) -> str:
    """Return the text of a correction to a message that the agent has already read."""
    return f"(edited) {text}"


def late_notice(texts: Sequence[str], hours: float, say: LocalizedTexts) -> str:
    """Return a notice that lists the messages that are too old to be answered."""
    age = say.count("message.age", int(hours) if hours == int(hours) else hours)
    lines = [say.count("message.late", len(texts), age=age), *_list(texts, say)]
    lines.append(say.count("message.late_again", len(texts)))
    return "\n".join(lines)


def refused_notice(texts: Sequence[str], why: str, say: LocalizedTexts) -> str:
    """Return a notice that lists the messages that a full queue refused; one alone is not named."""
    if len(texts) == 1:
        return why
    return "\n".join([say.count("message.refused", len(texts), why=why), *_list(texts, say)])


def _list(texts: Sequence[str], say: LocalizedTexts) -> list[str]:
    lines = [f"• {_named(text)}" for text in texts[:_NAMED]]
    if len(texts) > _NAMED:
        lines.append("• " + say("list.more", n=len(texts) - _NAMED))
    return lines


def _named(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= _NAMED_CHARS else line[: _NAMED_CHARS - 1].rstrip() + "…"
