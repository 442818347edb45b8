"""What people read about their own messages, and how an agent is told of a correction. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from agentsup.catalogue import Words

__all__ = ["edited", "in_reply", "late_notice", "refused_notice", "waiting_note"]

_QUOTE_CHARS = 300
_NAMED = 5
_NAMED_CHARS = 60


def in_reply(text: str, who: str, quoted: str) -> str:
    """A text with what it replies to, as the agent may not have seen that."""
    return f"[in reply to {who or 'somebody'}: {_short(quoted)}]\n{text}"


def _short(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= _QUOTE_CHARS else line[: _QUOTE_CHARS - 1].rstrip() + "…"


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
