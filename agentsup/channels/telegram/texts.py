"""The text of a Telegram message for the agent. Pure."""

from __future__ import annotations

import re
from collections.abc import Sequence

from agentsup.channels.core.receiving.texts import inert, with_quote
from agentsup.channels.telegram.event import UpdateEvent


def said(events: Sequence[UpdateEvent], username: str) -> str:
    """Return the text of a message, or of an album's messages in order.

    The bot's own name at the beginning only addresses it and is removed. The message that is
    replied to is quoted: somebody else's, because the agent may not have seen it, and the agent's
    own, because it could not know which one is meant.
    """
    blocks = []
    for event in events:
        text = _without_address(event.text, username)
        if event.forwarded_from:
            text = f"[forwarded from {inert(event.forwarded_from, 64)}]\n{text}".rstrip()
        blocks += [with_quote(text, event.quoted), *event.notes]
    return "\n".join(block for block in blocks if block.strip())


def _without_address(text: str, username: str) -> str:
    if not username:
        return text
    return re.sub(rf"\A\s*@{re.escape(username)}\b[\s,:]*", "", text, flags=re.IGNORECASE)
