"""One update, read: who did what, and where. Pure.

Only what is used is looked at, and each update by itself, so that one that makes no sense
(`Malformed`) spoils nothing but itself, and a new kind of update is merely not for us.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from agentsup.channels.telegram.place import Place

__all__ = ["Attachment", "Event", "EventKind", "Malformed", "Me", "Quoted", "read"]

Json = Mapping[str, Any]
_ANONYMOUS = 1087968824
"""The account behind administrators who write in the name of their group."""


class Malformed(ValueError):
    """The update lacks what an update of its kind must have; says what."""


class EventKind(StrEnum):
    MESSAGE = "message"
    EDITED = "edited"
    PRESS = "press"
    REACTION = "reaction"
    MEMBERSHIP = "membership"
    """The bot was added, removed, blocked or allowed again."""
    CHANNEL = "channel"
    """A post of a channel, or an edit of one."""
    OTHER = "other"


_KINDS = {
    "message": EventKind.MESSAGE,
    "edited_message": EventKind.EDITED,
    "callback_query": EventKind.PRESS,
    "message_reaction": EventKind.REACTION,
    "my_chat_member": EventKind.MEMBERSHIP,
    "channel_post": EventKind.CHANNEL,
    "edited_channel_post": EventKind.CHANNEL,
}


@dataclass(frozen=True, slots=True)
class Me:
    """The bot itself."""

    bot_id: int
    username: str


@dataclass(frozen=True, slots=True)
class Attachment:
    """A file on Telegram's side. ``size`` in bytes, None where it is not told."""

    kind: str
    file_id: str
    name: str
    size: int | None = None


@dataclass(frozen=True, slots=True)
class Quoted:
    """The message that was replied to. ``is_ours``: the bot wrote it."""

    message_id: int
    is_ours: bool
    who: str = ""
    text: str = ""


@dataclass(frozen=True, slots=True)
class Event:
    """What an update tells. ``at`` is wall ms of the platform, of the edit for an edit."""

    update_id: int
    kind: EventKind
    chat_id: int | None = None
    chat_type: str = ""
    chat_title: str = ""
    topic_id: int | None = None
    message_id: int | None = None
    user_id: int | None = None
    user_name: str = ""
    language: str = ""
    is_bot: bool = False
    for_chat: bool = False
    """Written in the name of a chat: an anonymous administrator, a linked channel."""
    at: int | None = None
    text: str = ""
    addressed: bool = False
    """It is meant for this bot: a mention, a reply to it, a command with its name, a press."""
    misaddressed: bool = False
    """It is a command with the name of another bot."""
    quoted: Quoted | None = None
    forwarded_from: str = ""
    attachments: tuple[Attachment, ...] = ()
    notes: tuple[str, ...] = ()
    """Content that is no text and no file, in words: a place, a contact."""
    album: str = ""
    callback_id: str = ""
    data: str = ""
    emoji: tuple[str, ...] = ()
    migrated_to: int | None = None
    membership: str = ""
    facts: Json = field(default_factory=dict)

    @property
    def place(self) -> Place:
        """Where it happened. Raises ``ValueError`` if it happened nowhere."""
        if self.chat_id is None:
            raise ValueError("the event belongs to no chat")
        return Place(self.chat_id, self.topic_id)

    @property
    def is_private(self) -> bool:
        return self.chat_type == "private"

    @property
    def has_content(self) -> bool:
        """Whether there is anything to answer."""
        return bool(self.text.strip() or self.attachments or self.notes)


def read(raw: Json, me: Me) -> Event:
    """What ``raw`` tells to the bot ``me``. Raises ``Malformed``."""
    raise NotImplementedError
