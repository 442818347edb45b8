"""What people read about their own messages, and how an agent is told of a correction. Pure."""

from __future__ import annotations

import unicodedata
from collections.abc import Sequence

from agentsup.catalogue import Words

__all__ = [
    "edited",
    "in_reply",
    "in_reply_to_own",
    "inert",
    "late_notice",
    "refused_notice",
    "waiting_note",
]

_QUOTE_CHARS = 300
_WHO_CHARS = 64
_NAMED = 5
_NAMED_CHARS = 60


def in_reply(text: str, who: str, quoted: str) -> str:
    """A text with what it replies to, as the agent may not have seen that."""
    # A name with a colon and a space in it would be a speaker and what he said.
    speaker = inert(who, _WHO_CHARS).replace(": ", " ").rstrip(":") or "somebody"
    return f"[in reply to {speaker}: {inert(quoted, _QUOTE_CHARS)}]\n{text}"


def in_reply_to_own(text: str, quoted: str) -> str:
    """A text with the agent's own words that it is about: which of them is meant is known to the
    person alone."""
    return f"[about your own words: {inert(quoted, _QUOTE_CHARS)}]\n{text}"


def inert(text: str, max_chars: int) -> str:
    """What somebody else wrote, or calls himself, as one line that can't pass for our own words:
    without brackets, without signs that steer a terminal or turn the direction of writing."""
    seen = "".join(" " if unicodedata.category(c) == "Cc" else c for c in text[: 8 * max_chars])
    line = " ".join(seen.translate(_MARKS).split())
    return line if len(line) <= max_chars else line[: max_chars - 1].rstrip() + "…"


_MARKS = str.maketrans(
    {"[": "(", "]": ")"}
    | dict.fromkeys("\u061c\u200e\u200f\u202a\u202b\u202c\u202d\u202e")
    | dict.fromkeys("\u2066\u2067\u2068\u2069")
)


def edited(text: str) -> str:
    """A correction of what the agent has read already."""
    return f"(edited) {text}"


def late_notice(texts: Sequence[str], hours: float, say: Words) -> str:
    """Names the messages that are too old to be answered."""
    age = say.count("message.age", int(hours) if hours == int(hours) else hours)
    lines = [say.count("message.late", len(texts), age=age), *_list(texts, say)]
    lines.append(say.count("message.late_again", len(texts)))
    return "\n".join(lines)


def refused_notice(texts: Sequence[str], why: str, say: Words) -> str:
    """Names the messages that found the queue full; a single one needs no name."""
    if len(texts) == 1:
        return why
    return "\n".join([say.count("message.refused", len(texts), why=why), *_list(texts, say)])


def _list(texts: Sequence[str], say: Words) -> list[str]:
    lines = [f"• {_named(text)}" for text in texts[:_NAMED]]
    if len(texts) > _NAMED:
        lines.append("• " + say("list.more", n=len(texts) - _NAMED))
    return lines


def _named(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= _NAMED_CHARS else line[: _NAMED_CHARS - 1].rstrip() + "…"


def waiting_note(ahead: int, say: Words) -> str:
    """Tells that a message waits its turn."""
    return say.count("message.waits", ahead)
