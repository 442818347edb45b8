"""Addresses in Telegram: a chat, or one topic of it. Each is a conversation of its own."""

from __future__ import annotations

import re
from dataclasses import dataclass

_NAME = re.compile(r"(-?[1-9][0-9]{0,18})(?:/([1-9][0-9]{0,18}))?")


@dataclass(frozen=True, slots=True)
class ChatAddress:
    """A chat by its id, and the topic in it (``message_thread_id``) or None."""

    chat_id: int
    topic_id: int | None = None

    @property
    def conversation(self) -> str:
        """The name of the conversation: ``<chat_id>`` or ``<chat_id>/<topic_id>``."""
        return f"{self.chat_id}/{self.topic_id}" if self.topic_id else str(self.chat_id)

    @property
    def is_private(self) -> bool:
        """Whether one person is alone with the bot: the ids of groups are negative."""
        return self.chat_id > 0


def parse(conversation: str) -> ChatAddress:
    """Parse the name of a conversation. Raises ``ValueError`` for a name of another form."""
    match = _NAME.fullmatch(conversation)
    if match is None:
        raise ValueError(f"{conversation!r} names no Telegram chat (CHAT_ID or CHAT_ID/TOPIC_ID)")
    return ChatAddress(int(match[1]), int(match[2]) if match[2] else None)
