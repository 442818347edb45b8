"""Reads one event of a room: who did what, and where. Pure.

Only fields that are used are read, and each event by itself. So a faulty event (``Malformed``)
affects no other, and a new kind of event is ignored. Of a text only the plain body counts: HTML
from others is never read.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any

from agentsup.channels.core.receiving.gate import is_stop
from agentsup.channels.core.receiving.raw import (
    Json,
    Malformed,
    int_or_none,
    is_int,
    maybe_of,
    object_of,
    text_of,
)
from agentsup.channels.core.receiving.texts import Attachment, Quoted
from agentsup.channels.matrix.address import RoomAddress, is_event_id

INVITE = "agentsup.invite"
"""A type of our own: an invitation, for which the platform has no event."""
GAP = "agentsup.gap"
"""A type of our own: older messages of a room were not read."""
DOUBTFUL = "agentsup.doubtful"
"""A field of our own: marks an event that may have been handled before."""


class RoomEventKind(StrEnum):
    MESSAGE = "message"
    EDITED = "edited"
    REACTION = "reaction"
    REDACTION = "redaction"
    """A message, or a reaction, was taken back."""
    ENCRYPTED = "encrypted"
    """An encrypted event, or the state event that makes a room encrypted."""
    INVITE = "invite"
    MOVED = "moved"
    """The room was replaced by another one."""
    GAP = "gap"
    OTHER = "other"


@dataclass(frozen=True, slots=True)
class BotUser:
    """The bot itself."""

    user_id: str
    name: str = ""
    """Its display name, or empty."""

    @property
    def names(self) -> tuple[str, ...]:
        """The names that people may call it by, longest first."""
        local = self.user_id[1:].partition(":")[0]
        found = {self.name.strip(), self.user_id, local} - {""}
        return tuple(sorted(found, key=lambda name: (-len(name), name)))


@dataclass(frozen=True, slots=True)
class RoomEvent:
    """The content of an event. ``at`` is wall ms of the sender's homeserver."""

    kind: RoomEventKind
    room_id: str
    event_id: str
    sender: str = ""
    at: int | None = None
    text: str = ""
    """The text without the name that addresses the bot."""
    addressed: bool = False
    """Whether it names this bot. Replies to the bot are found in ``context``."""
    is_notice: bool = False
    """Whether a program wrote it. Programs never answer one, so that two don't talk for ever."""
    thread_id: str | None = None
    reply_to: str = ""
    """The event that it replies to, or empty."""
    quoted: Quoted | None = None
    attachments: tuple[Attachment, ...] = ()
    notes: tuple[str, ...] = ()
    """Other content, in words: a location, or a file that we can't read."""
    target_id: str = ""
    """The event that is edited, reacted to or taken back."""
    emoji: str = ""
    moved_to: str = ""
    is_doubtful: bool = False
    """It may have been handled before, so nothing is run because of it."""
    is_private: bool = False
    """Nobody but its sender is in the room with the bot."""

    @property
    def platform_id(self) -> str:
        """The id of the event."""
        return self.event_id

    @property
    def quoted_attachments(self) -> tuple[Attachment, ...]:
        """The files of the message that it replies to."""
        return () if self.quoted is None else self.quoted.files

    @property
    def is_stop(self) -> bool:
        """Whether the text is a command that ends what runs."""
        return self.kind is RoomEventKind.MESSAGE and is_stop(self.text)

    @property
    def address(self) -> RoomAddress:
        """The room and thread of the event."""
        return RoomAddress(self.room_id, self.thread_id)

    @property
    def is_edit(self) -> bool:
        """Whether it gives an earlier message another text."""
        return self.kind is RoomEventKind.EDITED

    @property
    def is_message(self) -> bool:
        """Whether it is a message or an edit of one."""
        return self.kind in (RoomEventKind.MESSAGE, RoomEventKind.EDITED)

    @property
    def has_content(self) -> bool:
        """Whether there is anything to answer."""
        return bool(self.text.strip() or self.attachments or self.notes)


def read(raw: Json, room_id: str, me: BotUser) -> RoomEvent:
    """Read the event ``raw`` for the bot ``me``. Raises ``Malformed``."""
    reader = _READERS.get(text_of(raw, "type"))
    if reader is None:
        return RoomEvent(RoomEventKind.OTHER, room_id, text_of(raw, "event_id"))
    event = reader(raw, room_id, me)
    return replace(event, is_doubtful=True) if raw.get(DOUBTFUL) is True else event


def _message(raw: Json, room_id: str, me: BotUser) -> RoomEvent:
    content = object_of(raw, "content")
    if not content:  # it was taken back before we saw it
        return RoomEvent(RoomEventKind.OTHER, **_where(raw, room_id))
    relates = maybe_of(content, "m.relates_to")
    if relates.get("rel_type") == "m.replace":
        target_id = _event_id(relates, "event_id")
        if not target_id:
            raise Malformed("an edit that does not say of what")
        return RoomEvent(
            RoomEventKind.EDITED,
            **_where(raw, room_id),
            **_said(object_of(content, "m.new_content"), me),
            target_id=target_id,
        )
    return RoomEvent(
        RoomEventKind.MESSAGE,
        **_where(raw, room_id),
        **_related(relates),
        **_said(content, me, is_reply="m.in_reply_to" in relates),
    )


def _sticker(raw: Json, room_id: str, me: BotUser) -> RoomEvent:
    content = object_of(raw, "content")
    if not content:
        return RoomEvent(RoomEventKind.OTHER, **_where(raw, room_id))
    file, note = _file("sticker", content)
    return RoomEvent(
        RoomEventKind.MESSAGE,
        **_where(raw, room_id),
        **_related(maybe_of(content, "m.relates_to")),
        attachments=(file,) if file else (),
        notes=(note,) if note else (),
    )


def _reaction(raw: Json, room_id: str, me: BotUser) -> RoomEvent:
    relates = maybe_of(object_of(raw, "content"), "m.relates_to")
    target_id, key = _event_id(relates, "event_id"), text_of(relates, "key")
    if not target_id or not key:  # it was taken back already
        return RoomEvent(RoomEventKind.OTHER, **_where(raw, room_id))
    return RoomEvent(RoomEventKind.REACTION, **_where(raw, room_id), target_id=target_id, emoji=key)


def _redaction(raw: Json, room_id: str, me: BotUser) -> RoomEvent:
    # Rooms of version 11 and later name it in the content.
    target_id = _event_id(raw, "redacts") or _event_id(maybe_of(raw, "content"), "redacts")
    if not target_id:
        raise Malformed("a redaction that does not say of what")
    return RoomEvent(RoomEventKind.REDACTION, **_where(raw, room_id), target_id=target_id)


def _encrypted(raw: Json, room_id: str, me: BotUser) -> RoomEvent:
    relates = maybe_of(maybe_of(raw, "content"), "m.relates_to")
    return RoomEvent(RoomEventKind.ENCRYPTED, **_where(raw, room_id), **_related(relates))


def _encryption(raw: Json, room_id: str, me: BotUser) -> RoomEvent:
    # Only a state event switches encryption on; anybody could send another event of that type.
    if raw.get("state_key") != "":
        return RoomEvent(RoomEventKind.OTHER, **_where(raw, room_id))
    return _encrypted(raw, room_id, me)


def _invite(raw: Json, room_id: str, me: BotUser) -> RoomEvent:
    return RoomEvent(RoomEventKind.INVITE, **_where(raw, room_id))


def _moved(raw: Json, room_id: str, me: BotUser) -> RoomEvent:
    if raw.get("state_key") != "":
        return RoomEvent(RoomEventKind.OTHER, **_where(raw, room_id))
    content = object_of(raw, "content")
    return RoomEvent(
        RoomEventKind.MOVED, **_where(raw, room_id), moved_to=text_of(content, "replacement_room")
    )


def _gap(raw: Json, room_id: str, me: BotUser) -> RoomEvent:
    return RoomEvent(RoomEventKind.GAP, room_id, text_of(raw, "event_id"))


_READERS: Mapping[str, Callable[[Json, str, BotUser], RoomEvent]] = {
    "m.room.message": _message,
    "m.sticker": _sticker,
    "m.reaction": _reaction,
    "m.room.redaction": _redaction,
    "m.room.encrypted": _encrypted,
    "m.room.encryption": _encryption,
    "m.room.tombstone": _moved,
    INVITE: _invite,
    GAP: _gap,
}


# -- pieces of a message ---------------------------------------------------------------------------


def _where(raw: Json, room_id: str) -> dict[str, Any]:
    sender, event_id, at = (
        text_of(raw, "sender"),
        text_of(raw, "event_id"),
        raw.get("origin_server_ts"),
    )
    if not sender or not event_id:
        raise Malformed("an event without a sender or an id")
    return {
        "room_id": room_id,
        "event_id": event_id,
        "sender": sender,
        "at": int_or_none(at),
    }


def _related(relates: Json) -> dict[str, Any]:
    """Return thread and replied-to event; in a thread most replies are for old clients only."""
    thread_id = _event_id(relates, "event_id") if relates.get("rel_type") == "m.thread" else ""
    reply_to = _event_id(maybe_of(relates, "m.in_reply_to"), "event_id")
    if thread_id and relates.get("is_falling_back") is True:
        reply_to = ""
    return {"thread_id": thread_id or None, "reply_to": reply_to}


_FILES = {"m.image": "image", "m.file": "file", "m.audio": "audio", "m.video": "video"}
_ENDINGS = {"image": "image.png", "audio": "audio.ogg", "video": "video.mp4", "sticker": "sticker"}


def _said(content: Json, me: BotUser, *, is_reply: bool = False) -> dict[str, Any]:
    kind = text_of(content, "msgtype")
    body = text_of(content, "body")
    if is_reply:
        body = _without_quote(body)
    found: dict[str, Any] = {"is_notice": kind == "m.notice"}
    if kind in _FILES:
        file, note = _file(_FILES[kind], content)
        found["attachments"] = (file,) if file else ()
        found["notes"] = (note,) if note else ()
        # A body beside the name of the file is a caption.
        name = text_of(content, "filename")
        body = body if name and body != name else ""
    elif kind == "m.location":
        found["notes"] = (f"[place: {text_of(content, 'geo_uri')} {body}]",)
        body = ""
    elif kind == "m.emote":
        body = f"* {body}"
    elif kind.startswith("m.key.verification"):
        body = ""
    mentioned = _mentioned(content, me)
    text, is_called = _without_address(body, me, mentioned)
    return found | {"text": text, "addressed": mentioned or is_called or _named(body, me)}


def _file(kind: str, content: Json) -> tuple[Attachment | None, str]:
    name = text_of(content, "filename") or text_of(content, "body") or _ENDINGS.get(kind, "file")
    if isinstance(content.get("file"), Mapping):
        return None, f"[{name}: an encrypted {kind}, which can't be read here]"
    mxc, size = text_of(content, "url"), maybe_of(content, "info").get("size")
    if not mxc:
        raise Malformed(f"{kind}: a file without an address")
    return Attachment(kind, mxc, name, size if is_int(size) and size >= 0 else None), ""


def _mentioned(content: Json, me: BotUser) -> bool:
    listed = maybe_of(content, "m.mentions").get("user_ids")
    return isinstance(listed, list) and me.user_id in listed


def _named(body: str, me: BotUser) -> bool:
    """Whether the text has the bot's display name as a word, or its id after an @."""
    local = me.user_id[1:].partition(":")[0]
    marks = [rf"@{re.escape(local)}", re.escape(me.name.strip())]
    return any(
        re.search(rf"(?<![\w@]){mark}(?![\w@])", body, re.IGNORECASE) for mark in marks if mark
    )


def _without_address(body: str, me: BotUser, mentioned: bool) -> tuple[str, bool]:
    """Return the text without the bot's name at its beginning, and whether it was there.

    A bare name counts only with a colon or comma after it: "Bob: hi" calls Bob, and "Bob is ill"
    is about him, unless the client says that he is meant.
    """
    for name in me.names:
        after = r"(?:[:,]\s*|\s+|\Z)" if mentioned else r"[:,]\s*"
        marked = name if name.startswith("@") else f"@{name}"
        pattern = rf"\A\s*(?:{re.escape(marked)}(?:[:,]\s*|\s+|\Z)|{re.escape(name)}{after})"
        if match := re.match(pattern, body, re.IGNORECASE):
            return body[match.end() :], True
    return body, False


def _without_quote(body: str) -> str:
    """A reply without the quotation that older clients put above it."""
    if not re.match(r"> (?:\* )?<@", body):
        return body
    lines = body.split("\n")
    while lines and lines[0].startswith(">"):
        lines.pop(0)
    if lines and not lines[0].strip():
        lines.pop(0)
    return "\n".join(lines)


def _event_id(body: Json, name: str) -> str:
    """Return the event id in that field; empty if it can't be one."""
    value = text_of(body, name)
    return value if is_event_id(value) else ""
