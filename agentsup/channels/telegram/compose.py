"""What an agent reads of a Telegram message, and what people read about one. Pure."""

from __future__ import annotations

import re
from collections.abc import Sequence

from agentsup.catalogue import Words
from agentsup.channels.telegram.event import Event

__all__ = ["edited", "late_notice", "named", "refused_notice", "said", "waiting_note"]

_QUOTE_CHARS = 300
_NAMED = 5
_NAMED_CHARS = 60


def said(events: Sequence[Event], username: str) -> str:
    """The text of a message, or of an album's messages in order.

    The bot's own name at the beginning is address, not content. A message of somebody else that
    is replied to is quoted, as the agent may not have seen it.
    """
    blocks = []
    for event in events:
        text = _without_address(event.text, username)
        if event.forwarded_from:
            text = f"[forwarded from {event.forwarded_from}]\n{text}".rstrip()
        quoted = event.quoted
        if quoted is not None and not quoted.is_ours and quoted.text.strip():
            text = f"[in reply to {quoted.who or 'somebody'}: {_short(quoted.text)}]\n{text}"
        blocks += [text, *event.notes]
    return "\n".join(block for block in blocks if block.strip())


def _without_address(text: str, username: str) -> str:
    if not username:
        return text
    return re.sub(rf"\A\s*@{re.escape(username)}\b[\s,:]*", "", text, flags=re.IGNORECASE)


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


def named(event: Event) -> str:
    """A few words by which its sender knows a message again."""
    files = "".join(each.name for each in event.attachments)
    return event.text or files or "".join(event.notes[:1])


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
