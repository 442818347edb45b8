"""One answer to a sync, taken apart. Pure.

A piece that makes no sense is left out by itself and counted; it must not cost the others.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from agentsup.channels.matrix.event import INVITE
from agentsup.channels.matrix.place import is_event_id, is_room_id

__all__ = [
    "FILTER",
    "MESSAGES_FILTER",
    "Batch",
    "JoinedRoom",
    "is_membership",
    "read_batch",
    "since_entry",
    "usable",
]

Json = Mapping[str, Any]

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
"""What a sync is asked for. A timeline with more than this is continued by older messages."""
MESSAGES_FILTER: Json = {"types": list(_TYPES)}


@dataclass(frozen=True, slots=True)
class JoinedRoom:
    """What happened in a room that we are in, oldest first."""

    room_id: str
    timeline: tuple[Json, ...]
    is_limited: bool = False
    """There is more between the last sync and this timeline."""
    prev_batch: str = ""
    is_encrypted: bool = False

    @property
    def last_event_id(self) -> str:
        return self.timeline[-1]["event_id"] if self.timeline else ""

    @property
    def may_have_other_members(self) -> bool:
        """Whether somebody came, went or took another name, or may have in what was left out."""
        return self.is_limited or any(each.get("type") == "m.room.member" for each in self.timeline)


@dataclass(frozen=True, slots=True)
class Batch:
    """A whole sync."""

    next_batch: str
    joined: tuple[JoinedRoom, ...] = ()
    invited: Mapping[str, Json] = field(default_factory=dict)
    """By room: the invitation as an event of ours."""
    left: tuple[str, ...] = ()
    faults: int = 0
    """Pieces without sense."""


def read_batch(answer: Json, me: str) -> Batch:
    """Take an answer to a sync of the user ``me`` apart. Raises ``ValueError`` without a token."""
    next_batch = answer.get("next_batch")
    if not isinstance(next_batch, str) or not next_batch:
        raise ValueError("an answer to a sync without next_batch")
    rooms = _object(answer, "rooms")
    joined, faults = [], 0
    for room_id, room in _object(rooms, "join").items():
        if not isinstance(room, Mapping) or not is_room_id(room_id):
            faults += 1
            continue
        events = list(_events(room, "timeline"))
        timeline = tuple(each for each in events if usable(each))
        faults += len(events) - len(timeline)
        about = _object(room, "timeline")
        prev_batch = about.get("prev_batch")
        joined.append(
            JoinedRoom(
                room_id,
                timeline,
                is_limited=about.get("limited") is True,
                prev_batch=prev_batch if isinstance(prev_batch, str) else "",
                is_encrypted=any(
                    isinstance(each, Mapping)
                    and each.get("type") == "m.room.encryption"
                    and each.get("state_key") == ""
                    for each in (*_events(room, "state"), *timeline)
                ),
            )
        )
    invited = {}
    for room_id, room in _object(rooms, "invite").items():
        invitation = _invitation(room, me, next_batch) if is_room_id(room_id) else None
        if invitation is None:
            faults += 1
        else:
            invited[room_id] = invitation
    left = tuple(room_id for room_id in _object(rooms, "leave") if is_room_id(room_id))
    return Batch(next_batch, tuple(joined), invited, left, faults)


def usable(event: object) -> bool:
    """Whether it has what it is kept by, and does not pass for one of ours."""
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
    """The events after our latest invitation among them, or after our entry; None without either.

    What was said before is others' history; what was said after it may wait for our answer.
    """
    entered: int | None = None
    for index in range(len(events) - 1, -1, -1):
        event = events[index]
        if event.get("type") != "m.room.member" or event.get("state_key") != me:
            continue
        membership = _object(event, "content").get("membership")
        if membership == "invite":
            return events[index + 1 :]
        if membership == "join":
            before = _object(_object(event, "unsigned"), "prev_content")
            if before.get("membership") != "join":  # else we took another name
                entered = index
        elif entered is not None:
            break
    return None if entered is None else events[entered + 1 :]


def _invitation(room: object, me: str, next_batch: str) -> Json | None:
    """Invitations have no event id that lasts; the token names this one.

    What stands before the invitation itself, which is the last, comes from the inviter's server and
    may name anybody.
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
    """Whether the event says that ``who`` is in that relation to the room: join, invite, leave."""
    return (
        isinstance(event, Mapping)
        and event.get("type") == "m.room.member"
        and event.get("state_key") == who
        and _object(event, "content").get("membership") == what
    )


def _events(room: Json, name: str) -> Iterator[Any]:
    events = _object(room, name).get("events")
    return iter(events if isinstance(events, list) else ())


def _object(body: Json, name: str) -> Json:
    value = body.get(name)
    return value if isinstance(value, Mapping) else {}
