"""The events of a room since the last one read: from the sync, or fetched where that is limited.

The position in a room is the last event read there. So nothing is handled again if a homeserver has
lost the sync token, or returns more than it was asked for.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Any

from agentsup.channels.core.errors import NotSent, OutcomeUnknown, RateLimited, RequestRefused
from agentsup.channels.core.receiving.raw import Json, maybe_list
from agentsup.channels.matrix.batch import (
    MESSAGES_FILTER,
    JoinedRoom,
    is_membership,
    since_entry,
    usable,
)
from agentsup.channels.matrix.client import MatrixClient
from agentsup.channels.matrix.event import DOUBTFUL, GAP
from agentsup.kit.log import get_logger

_log = get_logger(__name__)

_GAP_MAX = 500
"""Most events that are fetched of one room after an absence."""
_PAGE = 100
_PAGES = 20
_GAP_TRIES = 3
_PATIENCE_S = 3600.0
"""The longest wait for rate limits for one page."""


@dataclass(frozen=True, slots=True)
class Read:
    """The read position: the token, and when the last batch was stored (wall ms). ``is_lost``: the
    homeserver did not know the token and sends everything again."""

    since: str | None
    at: int
    is_lost: bool


class Backfill:
    """Completes the timelines of syncs. ``me`` is the bot's user id; ``rest`` waits out a rate
    limit."""

    def __init__(
        self, client: MatrixClient, me: str, *, rest: Callable[[RateLimited], Awaitable[None]]
    ) -> None:
        self._client = client
        self._me = me
        self._rest = rest
        self._failures: dict[str, int] = {}

    async def news(
        self, room: JoinedRoom, last: str | None, so_far: Read, next_batch: str
    ) -> tuple[Json, ...]:
        """Return all events after ``last``, the last one seen in the room. Without ``last``, these
        are the events since the bot was invited. A ``GAP`` comes first if some are missing. Raises
        a ``PlatformError`` if another attempt may succeed."""
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
        """Return the events after ``last``, and whether these are all.

        If the homeserver has lost the token and does not return ``last`` any more, only events that
        are later than the last stored batch count. They are marked doubtful, and nothing is run
        because of them.
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
        """Return the events before the timeline, oldest first, from the one that ``is_last``
        accepts; and whether these are all."""
        found: list[Json] = []
        start = room.prev_batch
        for _ in range(_PAGES):
            if not start:
                return tuple(reversed(found)), True
            try:
                answer = await self._page(room.room_id, start, end)
            except RequestRefused as error:
                _log.warning("older messages were refused", room=room.room_id, why=error.message)
                break
            except RateLimited:
                break  # after an hour of pauses, in which all other rooms had to wait
            except (NotSent, OutcomeUnknown):
                self._failures[room.room_id] = self._failures.get(room.room_id, 0) + 1
                if self._failures[room.room_id] <= _GAP_TRIES:
                    raise
                break  # one room must not stop the sync of all others
            self._failures.pop(room.room_id, None)
            for event in filter(usable, maybe_list(answer, "chunk")):
                if is_last(event):
                    return tuple(reversed([*found, event])), True
                found.append(event)
                if len(found) >= _GAP_MAX:
                    return tuple(reversed(found)), False
            following = answer.get("end")
            start = following if isinstance(following, str) and following != start else ""
        return tuple(reversed(found)), False

    async def _page(self, room_id: str, start: str, end: str | None) -> dict[str, Any]:
        """Fetch one page. Pauses of a rate limit are waited out here, so that the pages before it
        are not fetched again. Raises a ``PlatformError``."""
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
