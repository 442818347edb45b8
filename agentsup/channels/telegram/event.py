"""Parses one update: who did what, and where. Pure.

Only fields that are used are read, and each update separately, so a malformed update
(``Malformed``) affects no other, and a new kind of update is ignored.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from functools import partial
from typing import Any

from agentsup.channels.core.receiving.gate import is_stop
from agentsup.channels.core.receiving.raw import (
    Json,
    Malformed,
    int_or_none,
    integer,
    is_int,
    list_of,
    milliseconds,
    object_of,
    text_of,
)
from agentsup.channels.core.receiving.texts import Attachment, Quoted
from agentsup.channels.telegram.address import ChatAddress
from agentsup.channels.telegram.content import BotUser, content_of, forwarded_from, quoted_of
from agentsup.model.managed_bots import CreatedBot

_ANONYMOUS = 1087968824  # the account of administrators who write in the name of their group
_CHANNEL = 136817688  # the account of people who write in the name of a channel


class UpdateKind(StrEnum):
    MESSAGE = "message"
    EDITED = "edited"
    PRESS = "press"
    REACTION = "reaction"
    MEMBERSHIP = "membership"
    """The bot was added, removed, blocked or allowed again."""
    CHANNEL = "channel"
    """A post of a channel, or an edit of one."""
    BOT = "bot"
    """A bot was created through this one, or its token or owner changed."""
    OTHER = "other"


@dataclass(frozen=True, slots=True)
class UpdateEvent:
    """A parsed update. ``at`` is in wall ms of the platform; for an edit, the time of the edit."""

    update_id: int
    kind: UpdateKind
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
    """It was written in the name of a chat: by an anonymous administrator or a linked channel."""
    at: int | None = None
    text: str = ""
    addressed: bool = False
    """It is for this bot: a mention, a reply to it, a command with its name or a press."""
    misaddressed: bool = False
    """It is a command with the name of another bot."""
    quoted: Quoted | None = None
    forwarded_from: str = ""
    attachments: tuple[Attachment, ...] = ()
    notes: tuple[str, ...] = ()
    """Content that is no text and no file, as text: a location, a contact."""
    album: str = ""
    draft_id: int | None = None
    """The draft whose stop button was pressed. It is read as the command to stop."""
    callback_id: str = ""
    data: str = ""
    emoji: tuple[str, ...] = ()
    unreadable: str = ""
    """The kind of content that cannot be read, or empty."""
    is_placeless: bool = False
    """The platform gives the chat, but not the topic in it."""
    migrated_to: int | None = None
    migrated_from: int | None = None
    created: CreatedBot | None = None
    membership: str = ""

    @property
    def address(self) -> ChatAddress:
        """The address of the chat. Raises ``ValueError`` if the event belongs to no chat."""
        if self.chat_id is None:
            raise ValueError("the event belongs to no chat")
        return ChatAddress(self.chat_id, self.topic_id)

    @property
    def platform_id(self) -> str:
        """Telegram's id of the message."""
        return str(self.message_id or 0)

    @property
    def quoted_attachments(self) -> tuple[Attachment, ...]:
        """The files of the message that it replies to."""
        return () if self.quoted is None else self.quoted.files

    @property
    def is_private(self) -> bool:
        return self.chat_type == "private"

    @property
    def is_nameless(self) -> bool:
        """Whether a person wrote it in the name of a group or a channel."""
        return self.user_id in (_ANONYMOUS, _CHANNEL)

    @property
    def is_stop(self) -> bool:
        """Whether the text is a command that ends running work."""
        return is_stop(self.text)

    @property
    def is_edit(self) -> bool:
        """Whether it gives an earlier message another text."""
        return self.kind is UpdateKind.EDITED

    @property
    def is_message(self) -> bool:
        """Whether it is a message or an edit of one."""
        return self.kind in (UpdateKind.MESSAGE, UpdateKind.EDITED)

    @property
    def has_content(self) -> bool:
        """Whether the event has content that can be answered."""
        return bool(self.text.strip() or self.attachments or self.notes)


def read(raw: Json, me: BotUser) -> UpdateEvent:
    """Parse an update for the bot ``me``. Raises ``Malformed``."""
    update_id = integer(raw, "update_id")
    for name, reader in _READERS.items():
        if name in raw:
            return reader(update_id, object_of(raw, name), me)
    return UpdateEvent(update_id, UpdateKind.OTHER)


def _written(
    update_id: int, body: Json, me: BotUser, kind: UpdateKind = UpdateKind.MESSAGE
) -> UpdateEvent:
    if "managed_bot_created" in body:
        made = {**object_of(body, "managed_bot_created"), "user": object_of(body, "from")}
        return _bot(update_id, made, me, is_new=True)
    content, quoted = content_of(body, me), quoted_of(body, me)
    own, target = me.username.casefold(), content.target
    return UpdateEvent(
        update_id,
        kind,
        **_where(body),
        **_who(body, "from"),
        for_chat="sender_chat" in body or bool(body.get("is_automatic_forward")),
        at=milliseconds(body, "edit_date" if kind is UpdateKind.EDITED else "date"),
        text=content.text,
        addressed=(
            content.mentioned
            or (bool(target) and target == own)
            or (quoted is not None and quoted.is_ours and not target)
        ),
        misaddressed=bool(target) and target != own,
        quoted=quoted,
        forwarded_from=forwarded_from(body),
        attachments=content.attachments,
        notes=content.notes,
        album=text_of(body, "media_group_id"),
        unreadable=content.unreadable,
        migrated_to=int_or_none(body.get("migrate_to_chat_id")),
        migrated_from=int_or_none(body.get("migrate_from_chat_id")),
    )


def _channel(update_id: int, body: Json, me: BotUser) -> UpdateEvent:
    return UpdateEvent(update_id, UpdateKind.CHANNEL, **_where(body), for_chat=True)


def _press(update_id: int, body: Json, me: BotUser) -> UpdateEvent:
    callback_id = text_of(body, "id")
    if not callback_id:
        raise Malformed("a press without an id")
    # A press without a message comes from a chat in which the bot is not a member.
    message = object_of(body, "message") if "message" in body else {}
    where = _where(message) if message else {}
    return UpdateEvent(
        update_id,
        UpdateKind.PRESS,
        **where,
        **_who(body, "from"),
        addressed=True,
        # For a message that is too old, the platform omits date and topic.
        is_placeless=message.get("date") == 0,
        callback_id=callback_id,
        data=text_of(body, "data"),
    )


def _reaction(update_id: int, body: Json, me: BotUser) -> UpdateEvent:
    emoji = [
        text_of(each, "emoji")
        for each in list_of(body, "new_reaction")
        if isinstance(each, Mapping) and each.get("type") == "emoji"
    ]
    return UpdateEvent(
        update_id,
        UpdateKind.REACTION,
        **_where(body),
        **_who(body, "user"),
        for_chat="actor_chat" in body,
        at=milliseconds(body, "date"),
        emoji=tuple(emoji),
    )


def _stopped_draft(update_id: int, body: Json, me: BotUser) -> UpdateEvent:
    """Read the press of a draft's stop button. Drafts are in private chats only."""
    where = _where({**body, "message_id": 0, "is_topic_message": True})
    if where["chat_type"] != "private":
        raise Malformed("a draft in a chat that is not private")
    return UpdateEvent(
        update_id,
        UpdateKind.MESSAGE,
        **where,
        user_id=where["chat_id"],
        user_name=text_of(object_of(body, "chat"), "first_name"),
        text="/stop",
        draft_id=integer(body, "draft_id"),
    )


def _membership(update_id: int, body: Json, me: BotUser) -> UpdateEvent:
    return UpdateEvent(
        update_id,
        UpdateKind.MEMBERSHIP,
        **_where({**body, "message_id": 0}),
        **_who(body, "from"),
        membership=text_of(object_of(body, "new_chat_member"), "status"),
    )


def _bot(update_id: int, body: Json, me: BotUser, *, is_new: bool = False) -> UpdateEvent:
    """Read that a person created a bot. Without ``is_new`` it may also have a new token or owner."""
    bot = object_of(body, "bot")
    created = CreatedBot(integer(bot, "id"), text_of(bot, "username"), is_new=is_new)
    return UpdateEvent(update_id, UpdateKind.BOT, **_who(body, "user"), created=created)


_READERS: Mapping[str, Callable[[int, Json, BotUser], UpdateEvent]] = {
    "message": _written,
    "edited_message": partial(_written, kind=UpdateKind.EDITED),
    "callback_query": _press,
    "message_reaction": _reaction,
    "stopped_message_generation": _stopped_draft,
    "my_chat_member": _membership,
    "managed_bot": _bot,
    "channel_post": _channel,
    "edited_channel_post": _channel,
}


# -- pieces of a message ---------------------------------------------------------------------------


def _where(body: Json) -> dict[str, Any]:
    chat = object_of(body, "chat")
    chat_type = text_of(chat, "type")
    if not chat_type:
        raise Malformed("a chat without a type")
    topic_id = body.get("message_thread_id") if _is_in_topic(body, chat_type) else None
    return {
        "chat_id": integer(chat, "id"),
        "chat_type": chat_type,
        "chat_title": text_of(chat, "title"),
        "topic_id": topic_id if is_int(topic_id) else None,
        "message_id": integer(body, "message_id"),
    }


def _is_in_topic(body: Json, chat_type: str) -> bool:
    """Whether the thread of a message is a topic; in chats without topics replies have one, too."""
    if body.get("is_topic_message"):
        return True
    # The first message of a topic in a private chat may come without the flag.
    reply = body.get("reply_to_message")
    is_reply = isinstance(reply, Mapping) and "forum_topic_created" not in reply
    return chat_type == "private" and not is_reply


def _who(body: Json, name: str) -> dict[str, Any]:
    """Return the person, or nothing: posts of channels and anonymous reactions have none."""
    if name not in body:
        return {}
    user = object_of(body, name)
    user_id = integer(user, "id")
    full = f"{text_of(user, 'first_name')} {text_of(user, 'last_name')}".strip()
    return {
        "user_id": user_id,
        "user_name": full or text_of(user, "username"),
        "language": text_of(user, "language_code"),
        "is_bot": user.get("is_bot") is not False or user_id == _ANONYMOUS,
    }
