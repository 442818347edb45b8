"""One event of a room, read: who did what, and where. Pure.

Only what is used is looked at, and each event by itself, so that one that makes no sense
(`Malformed`) spoils nothing but itself, and a new kind of event is merely not for us. Of a text
only the plain body counts: HTML from others is never looked at.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any

from agentsup.channels.matrix.place import Place, is_event_id
from agentsup.channels.stops import is_stop

__all__ = [
    "DOUBTFUL",
    "GAP",
    "INVITE",
    "Attachment",
    "Event",
    "EventKind",
    "Malformed",
    "Me",
    "Quoted",
    "read",
]

Json = Mapping[str, Any]

INVITE = "agentsup.invite"
"""Not the platform's: an invitation, which comes without an event."""
GAP = "agentsup.gap"
"""Not the platform's: older messages of a room were not read."""
DOUBTFUL = "agentsup.doubtful"
"""Not the platform's: beside an event of which nobody can say that it was not handled before."""


class Malformed(ValueError):
    """The event lacks what an event of its kind must have; says what."""


class EventKind(StrEnum):
    MESSAGE = "message"
    EDITED = "edited"
    REACTION = "reaction"
    REDACTION = "redaction"
    """A message, or a reaction, was taken back."""
    ENCRYPTED = "encrypted"
    """Something that we can't read, or the switch that makes a room so."""
    INVITE = "invite"
    MOVED = "moved"
    """The room was replaced by another one."""
    GAP = "gap"
    OTHER = "other"


@dataclass(frozen=True, slots=True)
class Me:
    """The bot itself."""

    user_id: str
    name: str = ""
    """The name it goes by, or empty."""

    @property
    def names(self) -> tuple[str, ...]:
        """What people may call it, longest first."""
        local = self.user_id[1:].partition(":")[0]
        found = {self.name.strip(), self.user_id, local} - {""}
        return tuple(sorted(found, key=lambda name: (-len(name), name)))


@dataclass(frozen=True, slots=True)
class Attachment:
    """A file on the homeserver. ``size`` in bytes, None where it is not told."""

    kind: str
    mxc: str
    name: str
    size: int | None = None


@dataclass(frozen=True, slots=True)
class Quoted:
    """The message that was replied to. ``is_ours``: the bot wrote it."""

    event_id: str
    is_ours: bool
    who: str = ""
    text: str = ""


@dataclass(frozen=True, slots=True)
class Event:
    """What an event tells. ``at`` is wall ms of the sender's homeserver."""

    kind: EventKind
    room_id: str
    event_id: str
    sender: str = ""
    at: int | None = None
    text: str = ""
    """Without what addresses the bot."""
    addressed: bool = False
    """It is meant for this bot by name; that it replies to the bot is found out elsewhere."""
    is_notice: bool = False
    """Written by a program for people; programs never answer one, lest two of them talk for ever."""
    thread_id: str | None = None
    reply_to: str = ""
    """The event that it replies to, or empty."""
    quoted: Quoted | None = None
    attachments: tuple[Attachment, ...] = ()
    notes: tuple[str, ...] = ()
    """Content that is no text and no file, in words: a place, a file that we can't read."""
    target_id: str = ""
    """The event that is edited, reacted to or taken back."""
    emoji: str = ""
    moved_to: str = ""
    is_doubtful: bool = False
    """It may have been handled before, so nothing is run because of it."""
    is_private: bool = False
    """Nobody but its sender is in the room with the bot."""

    @property
    def is_stop(self) -> bool:
        """Whether the text is a command that ends what runs."""
        return self.kind is EventKind.MESSAGE and is_stop(self.text)

    @property
    def place(self) -> Place:
        """Where it happened."""
        return Place(self.room_id, self.thread_id)

    @property
    def has_content(self) -> bool:
        """Whether there is anything to answer."""
        return bool(self.text.strip() or self.attachments or self.notes)


def read(raw: Json, room_id: str, me: Me) -> Event:
    """What ``raw`` tells to the bot ``me``. Raises ``Malformed``."""
    reader = _READERS.get(_text(raw, "type"))
    if reader is None:
        return Event(EventKind.OTHER, room_id, _text(raw, "event_id"))
    event = reader(raw, room_id, me)
    return replace(event, is_doubtful=True) if raw.get(DOUBTFUL) is True else event


def _message(raw: Json, room_id: str, me: Me) -> Event:
    content = _object(raw, "content")
    if not content:  # it was taken back before we saw it
        return Event(EventKind.OTHER, **_where(raw, room_id))
    relates = _maybe(content, "m.relates_to")
    if relates.get("rel_type") == "m.replace":
        target_id = _event_id(relates, "event_id")
        if not target_id:
            raise Malformed("an edit that does not say of what")
        return Event(
            EventKind.EDITED,
            **_where(raw, room_id),
            **_said(_object(content, "m.new_content"), me),
            target_id=target_id,
        )
    return Event(
        EventKind.MESSAGE,
        **_where(raw, room_id),
        **_related(relates),
        **_said(content, me, is_reply="m.in_reply_to" in relates),
    )


def _sticker(raw: Json, room_id: str, me: Me) -> Event:
    content = _object(raw, "content")
    if not content:
        return Event(EventKind.OTHER, **_where(raw, room_id))
    file, note = _file("sticker", content)
    return Event(
        EventKind.MESSAGE,
        **_where(raw, room_id),
        **_related(_maybe(content, "m.relates_to")),
        attachments=(file,) if file else (),
        notes=(note,) if note else (),
    )


def _reaction(raw: Json, room_id: str, me: Me) -> Event:
    relates = _maybe(_object(raw, "content"), "m.relates_to")
    target_id, key = _event_id(relates, "event_id"), _text(relates, "key")
    if not target_id or not key:  # it was taken back already
        return Event(EventKind.OTHER, **_where(raw, room_id))
    return Event(EventKind.REACTION, **_where(raw, room_id), target_id=target_id, emoji=key)


def _redaction(raw: Json, room_id: str, me: Me) -> Event:
    # Rooms of version 11 and later name it in the content.
    target_id = _event_id(raw, "redacts") or _event_id(_maybe(raw, "content"), "redacts")
    if not target_id:
        raise Malformed("a redaction that does not say of what")
    return Event(EventKind.REDACTION, **_where(raw, room_id), target_id=target_id)


def _encrypted(raw: Json, room_id: str, me: Me) -> Event:
    relates = _maybe(_maybe(raw, "content"), "m.relates_to")
    return Event(EventKind.ENCRYPTED, **_where(raw, room_id), **_related(relates))


def _encryption(raw: Json, room_id: str, me: Me) -> Event:
    # The switch is a state; anybody could send a mere event of that name.
    if raw.get("state_key") != "":
        return Event(EventKind.OTHER, **_where(raw, room_id))
    return _encrypted(raw, room_id, me)


def _invite(raw: Json, room_id: str, me: Me) -> Event:
    return Event(EventKind.INVITE, **_where(raw, room_id))


def _moved(raw: Json, room_id: str, me: Me) -> Event:
    if raw.get("state_key") != "":
        return Event(EventKind.OTHER, **_where(raw, room_id))
    content = _object(raw, "content")
    return Event(
        EventKind.MOVED, **_where(raw, room_id), moved_to=_text(content, "replacement_room")
    )


def _gap(raw: Json, room_id: str, me: Me) -> Event:
    return Event(EventKind.GAP, room_id, _text(raw, "event_id"))


_READERS: Mapping[str, Callable[[Json, str, Me], Event]] = {
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
        _text(raw, "sender"),
        _text(raw, "event_id"),
        raw.get("origin_server_ts"),
    )
    if not sender or not event_id:
        raise Malformed("an event without a sender or an id")
    return {
        "room_id": room_id,
        "event_id": event_id,
        "sender": sender,
        "at": at if isinstance(at, int) and not isinstance(at, bool) else None,
    }


def _related(relates: Json) -> dict[str, Any]:
    """The thread, and what is replied to; in a thread most replies are for old clients only."""
    thread_id = _event_id(relates, "event_id") if relates.get("rel_type") == "m.thread" else ""
    reply_to = _event_id(_maybe(relates, "m.in_reply_to"), "event_id")
    if thread_id and relates.get("is_falling_back") is True:
        reply_to = ""
    return {"thread_id": thread_id or None, "reply_to": reply_to}


_FILES = {"m.image": "image", "m.file": "file", "m.audio": "audio", "m.video": "video"}
_ENDINGS = {"image": "image.png", "audio": "audio.ogg", "video": "video.mp4", "sticker": "sticker"}


def _said(content: Json, me: Me, *, is_reply: bool = False) -> dict[str, Any]:
    kind = _text(content, "msgtype")
    body = _text(content, "body")
    if is_reply:
        body = _without_quote(body)
    found: dict[str, Any] = {"is_notice": kind == "m.notice"}
    if kind in _FILES:
        file, note = _file(_FILES[kind], content)
        found["attachments"] = (file,) if file else ()
        found["notes"] = (note,) if note else ()
        # A body beside the name of the file is a caption.
        name = _text(content, "filename")
        body = body if name and body != name else ""
    elif kind == "m.location":
        found["notes"] = (f"[place: {_text(content, 'geo_uri')} {body}]",)
        body = ""
    elif kind == "m.emote":
        body = f"* {body}"
    elif kind.startswith("m.key.verification"):
        body = ""
    mentioned = _mentioned(content, me)
    text, is_called = _without_address(body, me, mentioned)
    return found | {"text": text, "addressed": mentioned or is_called or _named(body, me)}


def _file(kind: str, content: Json) -> tuple[Attachment | None, str]:
    name = _text(content, "filename") or _text(content, "body") or _ENDINGS.get(kind, "file")
    if isinstance(content.get("file"), Mapping):
        return None, f"[{name}: an encrypted {kind}, which can't be read here]"
    mxc, size = _text(content, "url"), _maybe(content, "info").get("size")
    if not mxc:
        raise Malformed(f"{kind}: a file without an address")
    is_size = isinstance(size, int) and not isinstance(size, bool) and size >= 0
    return Attachment(kind, mxc, name, size if is_size else None), ""


def _mentioned(content: Json, me: Me) -> bool:
    listed = _maybe(content, "m.mentions").get("user_ids")
    return isinstance(listed, list) and me.user_id in listed


def _named(body: str, me: Me) -> bool:
    """Whether the name it goes by stands in the text as a word, or its id after an @."""
    local = me.user_id[1:].partition(":")[0]
    marks = [rf"@{re.escape(local)}", re.escape(me.name.strip())]
    return any(
        re.search(rf"(?<![\w@]){mark}(?![\w@])", body, re.IGNORECASE) for mark in marks if mark
    )


def _without_address(body: str, me: Me, mentioned: bool) -> tuple[str, bool]:
    """The text without the bot's name at its beginning, and whether it stood there.

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


# -- JSON of unknown shape -------------------------------------------------------------------------


def _text(body: Json, name: str) -> str:
    value = body.get(name, "")
    if not isinstance(value, str):
        raise Malformed(f"{name} is no text")
    return value


def _event_id(body: Json, name: str) -> str:
    """The id that stands there; empty for what can be none."""
    value = _text(body, name)
    return value if is_event_id(value) else ""


def _object(body: Json, name: str) -> Json:
    value = body.get(name)
    if not isinstance(value, Mapping):
        raise Malformed(f"{name} is missing or no object")
    return value


def _maybe(body: Json, name: str) -> Json:
    value = body.get(name)
    return value if isinstance(value, Mapping) else {}
