"""Addresses in Matrix: a room, or one thread of it. Each is a conversation of its own."""

from __future__ import annotations

import re
from dataclasses import dataclass

_MAX = 255
"""The longest id that Matrix knows, in bytes."""
_ROOM = re.compile(r"![^\s/\x00-\x1f\ud800-\udfff]+")
_EVENT = re.compile(r"\$[^\s\x00-\x1f\ud800-\udfff]+")


@dataclass(frozen=True, slots=True)
class RoomAddress:
    """The id of a room, and the event that a thread in it began with, or None."""

    room_id: str
    thread_id: str | None = None

    @property
    def conversation(self) -> str:
        """The name of the conversation: ``<room_id>`` or ``<room_id>/<thread_id>``."""
        return f"{self.room_id}/{self.thread_id}" if self.thread_id else self.room_id


def is_room_id(text: str) -> bool:
    """Whether ``text`` can be the id of a room."""
    return _ROOM.fullmatch(text) is not None and len(text.encode()) <= _MAX


def is_event_id(text: str) -> bool:
    """Whether ``text`` can be the id of an event, such as the one that a thread began with."""
    return _EVENT.fullmatch(text) is not None and len(text.encode()) <= _MAX


def parse(conversation: str) -> RoomAddress:
    """Parse the name of a conversation. Raises ``ValueError`` for a name of another kind."""
    room_id, slash, thread_id = conversation.partition("/")
    if not is_room_id(room_id) or (slash and not is_event_id(thread_id)):
        raise ValueError(
            f"{conversation!r} names no Matrix room (!ROOM:SERVER or !ROOM:SERVER/$EVENT)"
        )
    return RoomAddress(room_id, thread_id or None)
