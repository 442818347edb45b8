"""Where in Matrix people talk: a room, or one thread of it. Each is a conversation of its own."""

from __future__ import annotations

import re
from dataclasses import dataclass

__all__ = ["Place", "parse"]

_MAX = 255
"""The longest id that Matrix knows, in bytes."""
_ROOM = re.compile(r"![^\s/\x00-\x1f]+")
_THREAD = re.compile(r"\$[^\s\x00-\x1f]+")


@dataclass(frozen=True, slots=True)
class Place:
    """A room by its id, and the thread in it, by the event that it began with, or None."""

    room_id: str
    thread_id: str | None = None

    @property
    def conversation(self) -> str:
        """The name of the conversation: ``<room_id>`` or ``<room_id>/<thread_id>``."""
        return f"{self.room_id}/{self.thread_id}" if self.thread_id else self.room_id


def parse(conversation: str) -> Place:
    """The place that a conversation names. Raises ``ValueError`` for a name of another kind."""
    room_id, slash, thread_id = conversation.partition("/")
    is_place = _ROOM.fullmatch(room_id) and len(room_id.encode()) <= _MAX
    if slash:
        is_place = is_place and _THREAD.fullmatch(thread_id) and len(thread_id.encode()) <= _MAX
    if not is_place:
        raise ValueError(
            f"{conversation!r} names no Matrix room (!ROOM:SERVER or !ROOM:SERVER/$EVENT)"
        )
    return Place(room_id, thread_id or None)
