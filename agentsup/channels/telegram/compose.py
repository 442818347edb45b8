"""What an agent reads of a Telegram message, and what people read about one. Pure."""

from __future__ import annotations

import re
from collections.abc import Sequence

from agentsup.channels.compose import (
    edited,
    in_reply,
    in_reply_to_own,
    inert,
    late_notice,
    refused_notice,
    waiting_note,
)
from agentsup.channels.telegram.event import Event

__all__ = ["edited", "late_notice", "named", "refused_notice", "said", "waiting_note"]


def said(events: Sequence[Event], username: str) -> str:
    """The text of a message, or of an album's messages in order.

    The bot's own name at the beginning is address, not content. A message that is
    replied to is quoted: somebody else's, as the agent may not have seen it, and its own, as it
    can't know which one is meant.
    """
    blocks = []
    for event in events:
        text = _without_address(event.text, username)
        if event.forwarded_from:
            text = f"[forwarded from {inert(event.forwarded_from, 64)}]\n{text}".rstrip()
        quoted = event.quoted
        if quoted is not None and quoted.text.strip():
            text = (
                in_reply_to_own(text, quoted.text)
                if quoted.is_ours
                else in_reply(text, quoted.who, quoted.text)
            )
        blocks += [text, *event.notes]
    return "\n".join(block for block in blocks if block.strip())


def _without_address(text: str, username: str) -> str:
    if not username:
        return text
    return re.sub(rf"\A\s*@{re.escape(username)}\b[\s,:]*", "", text, flags=re.IGNORECASE)


def named(event: Event) -> str:
    """A few words by which its sender knows a message again."""
    files = "".join(each.name for each in event.attachments)
    return event.text or files or "".join(event.notes[:1])
