"""Parses one answer to a sync. Pure.

A malformed piece is left out and counted; it does not affect the others.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from agentsup.channels.core.receiving.raw import Json, maybe_list, maybe_of, maybe_text
from agentsup.channels.matrix.address import is_event_id, is_room_id
from agentsup.channels.matrix.event import INVITE

_TYPES = (
    "m.room.message",
    "m.sticker",
    "m.reaction",
    "m.room.redaction",
    "m.room.encrypted",
    "m.room.encryption",
    "m.room.tombstone",
    "m.room.member",
)
_OUR_PREFIX = "agentsup."
_NOTHING: Json = {"types": []}
FILTER: Json = {
    "presence": _NOTHING,
    "account_data": _NOTHING,
    "room": {
        "account_data": _NOTHING,
        "ephemeral": _NOTHING,
        "state": {"types": ["m.room.encryption"], "lazy_load_members": True},
        "timeline": {"types": list(_TYPES), "limit": 50},
    },
}
"""The filter of a sync. For a timeline with more events than this, older messages are fetched."""
MESSAGES_FILTER: Json = {"types": list(_TYPES)}


@dataclass(frozen=True, slots=True)
class JoinedRoom:
    """The events of a room that the bot is in, oldest first."""

    room_id: str
    timeline: tuple[Json, ...]
    is_limited: bool = False
    """Whether there are more events between the last sync and this timeline."""
    prev_batch: str = ""
    is_encrypted: bool = False

    @property
    def last_event_id(self) -> str:
        return self.timeline[-1]["event_id"] if self.timeline else ""

    @property
    def may_have_other_members(self) -> bool:
        """Whether the members or their names changed, or may have in events that were left out."""
        return self.is_limited or any(each.get("type") == "m.room.member" for each in self.timeline)


@dataclass(frozen=True, slots=True)
class Batch:
    """A whole sync."""

    next_batch: str
    joined: tuple[JoinedRoom, ...] = ()
    invited: Mapping[str, Json] = field(default_factory=dict)
    """By room: the invitation as an event of the type ``INVITE``."""
    left: tuple[str, ...] = ()
    faults: int = 0
    """The number of malformed pieces."""


def read_batch(answer: Json, me: str) -> Batch:
    """Parse an answer to a sync of the user ``me``. Raises ``ValueError`` if it has no token."""
    next_batch = answer.get("next_batch")
    if not isinstance(next_batch, str) or not next_batch:
        raise ValueError("an answer to a sync without next_batch")
    rooms = maybe_of(answer, "rooms")
    joined, faults = [], 0
    for room_id, room in maybe_of(rooms, "join").items():
        if not isinstance(room, Mapping) or not is_room_id(room_id):
            faults += 1
            continue
        one = _joined(room_id, room)
        joined.append(one)
        faults += len(_events(room, "timeline")) - len(one.timeline)
    invited = {}
    for room_id, room in maybe_of(rooms, "invite").items():
        invitation = _invitation(room, me, next_batch) if is_room_id(room_id) else None
        if invitation is None:
            faults += 1
        else:
            invited[room_id] = invitation
    left = tuple(room_id for room_id in maybe_of(rooms, "leave") if is_room_id(room_id))
    return Batch(next_batch, tuple(joined), invited, left, faults)


def _joined(room_id: str, room: Json) -> JoinedRoom:
    timeline = tuple(each for each in _events(room, "timeline") if usable(each))
    about = maybe_of(room, "timeline")
    return JoinedRoom(
        room_id,
        timeline,
        is_limited=about.get("limited") is True,
        prev_batch=maybe_text(about, "prev_batch"),
        is_encrypted=any(
            isinstance(each, Mapping)
            and each.get("type") == "m.room.encryption"
            and each.get("state_key") == ""
            for each in (*_events(room, "state"), *timeline)
        ),
    )


def usable(event: object) -> bool:
    """Whether the event has the fields that storing needs, and no type of our own."""
    return (
        isinstance(event, Mapping)
        and all(
            isinstance(event.get(name), str) and event[name]
            for name in ("event_id", "type", "sender")
        )
        and is_event_id(event["event_id"])
        and not event["type"].startswith(_OUR_PREFIX)
    )


def since_entry(events: tuple[Json, ...], me: str) -> tuple[Json, ...] | None:
    """Return the events after the bot's latest invitation, or join, among them; None without.

    Earlier events are not for the bot; later ones may wait for its answer.
    """
    entered: int | None = None
    for index in range(len(events) - 1, -1, -1):
        event = events[index]
        if event.get("type") != "m.room.member" or event.get("state_key") != me:
            continue
        membership = maybe_of(event, "content").get("membership")
        if membership == "invite":
            return events[index + 1 :]
        if membership == "join":
            before = maybe_of(maybe_of(event, "unsigned"), "prev_content")
            if before.get("membership") != "join":  # else the bot changed its name
                entered = index
        elif entered is not None:
            break
    return None if entered is None else events[entered + 1 :]


def _invitation(room: object, me: str, next_batch: str) -> Json | None:
    """Return an invitation as an event, or None. It has no lasting id, so the token gives one.

    The invitation itself is the last matching event. What is before it comes from the inviter's
    server and may name anybody.
    """
    if not isinstance(room, Mapping):
        return None
    found = [
        each["sender"]
        for each in _events(room, "invite_state")
        if is_membership(each, me, "invite")
        and isinstance(each.get("sender"), str)
        and each["sender"]
    ]
    if not found:
        return None
    event_id = f"invite:{next_batch}"
    return {"type": INVITE, "event_id": event_id, "sender": found[-1], "content": {}}


def is_membership(event: object, who: str, what: str) -> bool:
    """Whether the event sets the membership of ``who`` to ``what``: join, invite or leave."""
    return (
        isinstance(event, Mapping)
        and event.get("type") == "m.room.member"
        and event.get("state_key") == who
        and maybe_of(event, "content").get("membership") == what
    )


def _events(room: Json, name: str) -> list[Any]:
    return maybe_list(maybe_of(room, name), "events")
