"""What was said in a room since it was read last: taken from the sync, or fetched where it is cut.

How far a room was read is known by its last event, so nothing is handled again because a homeserver
has lost our place, or shows more than it was asked for.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from agentsup.channels.matrix.batch import (
    MESSAGES_FILTER,
    JoinedRoom,
    is_membership,
    since_entry,
    usable,
)
from agentsup.channels.matrix.errors import FateUnknown, NotSent, RateLimited, Refused
from agentsup.channels.matrix.event import DOUBTFUL, GAP
from agentsup.observe.logging import get_logger

__all__ = ["Past", "PastClient", "Read"]

_log = get_logger(__name__)

Json = Mapping[str, Any]

_GAP_MAX = 500
"""Events that are fetched of one room after an absence."""
_PAGE = 100
_PAGES = 20
_GAP_TRIES = 3
_PATIENCE_S = 3600.0
"""A homeserver that asks for pauses is obeyed this long for one page."""


class PastClient(Protocol):
    """What is needed of a client."""

    async def messages(
        self, room_id: str, *, start: str, end: str | None, limit: int, filter_: Json
    ) -> dict[str, Any]: ...


@dataclass(frozen=True, slots=True)
class Read:
    """How far was read: the token, and when the last batch was kept (wall ms). ``is_lost``: the
    homeserver did not know the token and tells everything anew."""

    since: str | None
    at: int
    is_lost: bool


class Past:
    """Completes what syncs tell of rooms. ``me`` is the bot's user id; ``rest`` waits as long as a
    homeserver asks for."""

    def __init__(
        self, client: PastClient, me: str, *, rest: Callable[[RateLimited], Awaitable[None]]
    ) -> None:
        self._client = client
        self._me = me
        self._rest = rest
        self._failures: dict[str, int] = {}

    async def news(
        self, room: JoinedRoom, last: str | None, so_far: Read, next_batch: str
    ) -> tuple[Json, ...]:
        """All events since ``last``, the one that was seen last in the room; without one, since we
        were invited. Raises a ``MatrixError`` where it is worth to ask again."""
        events, is_whole = room.timeline, True
        if last is None:
            found = since_entry(events, self._me)
            if room.is_limited and not any(self._is_invitation(each) for each in events):
                older, is_whole = await self._older(room, self._is_invitation)
                events = (*older, *events)
                found = since_entry(events, self._me)
            is_whole = is_whole or found is not None
            events = events if found is None else found
        else:
            events, is_whole = await self._since_last(room, last, so_far)
        if not is_whole:
            events = ({"type": GAP, "event_id": f"gap:{next_batch}", "content": {}}, *events)
        return events

    async def _since_last(
        self, room: JoinedRoom, last: str, so_far: Read
    ) -> tuple[tuple[Json, ...], bool]:
        """What followed the event ``last``, and whether that is all.

        Where the homeserver has lost our place and does not show ``last`` any more, only what was
        surely said after the last sync that told something counts, and nothing is run because of it.
        """
        events, is_whole = room.timeline, True
        if (found := _after(events, last)) is not None:
            return found, True
        if room.is_limited:
            older, is_whole = await self._older(
                room, lambda event: event["event_id"] == last, end=so_far.since
            )
            events = (*older, *events)
            if (found := _after(events, last)) is not None:
                return found, True
        if not so_far.is_lost:
            return events, is_whole
        later = tuple({**each, DOUBTFUL: True} for each in events if _is_later(each, so_far.at))
        return later, is_whole or len(later) < len(events)

    def _is_invitation(self, event: Json) -> bool:
        return is_membership(event, self._me, "invite")

    async def _older(
        self, room: JoinedRoom, is_last: Callable[[Json], bool], *, end: str | None = None
    ) -> tuple[tuple[Json, ...], bool]:
        """What came before the timeline, oldest first, down to what ``is_last`` knows; and whether
        that is all."""
        found: list[Json] = []
        start = room.prev_batch
        for _ in range(_PAGES):
            if not start:
                return tuple(reversed(found)), True
            try:
                answer = await self._page(room.room_id, start, end)
            except Refused as error:
                _log.warning("older messages were refused", room=room.room_id, why=error.message)
                break
            except RateLimited:
                break  # an hour of it, and all other rooms wait
            except (NotSent, FateUnknown):
                self._failures[room.room_id] = self._failures.get(room.room_id, 0) + 1
                if self._failures[room.room_id] <= _GAP_TRIES:
                    raise
                break  # one room must not make the bot deaf for all
            self._failures.pop(room.room_id, None)
            chunk = answer.get("chunk")
            page = [each for each in (chunk if isinstance(chunk, list) else []) if usable(each)]
            for event in page:
                if is_last(event):
                    return tuple(reversed([*found, event])), True
                found.append(event)
                if len(found) >= _GAP_MAX:
                    return tuple(reversed(found)), False
            following = answer.get("end")
            start = following if isinstance(following, str) and following != start else ""
        return tuple(reversed(found)), False

    async def _page(self, room_id: str, start: str, end: str | None) -> dict[str, Any]:
        """One page; a pause that the homeserver asks for is kept, and what was read stays read.
        Raises a ``MatrixError``."""
        waited_s = 0.0
        while True:
            try:
                return await self._client.messages(
                    room_id, start=start, end=end, limit=_PAGE, filter_=MESSAGES_FILTER
                )
            except RateLimited as error:
                waited_s += error.retry_after_s
                if waited_s > _PATIENCE_S:
                    raise
                await self._rest(error)


def _is_later(event: Json, at: int) -> bool:
    said_at = event.get("origin_server_ts")
    return isinstance(said_at, int) and said_at > at


def _after(events: Sequence[Json], event_id: str) -> tuple[Json, ...] | None:
    """The events after that one, or None if it is not among them."""
    for index, event in enumerate(events):
        if event["event_id"] == event_id:
            return tuple(events[index + 1 :])
    return None
