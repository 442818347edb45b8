"""The sync loop: request a batch, store it, and only then send its token in the next request.

A homeserver returns the events after the token that it is given, so the token is used only after
the commit (P1). Events that a batch leaves out after a long absence are fetched before the token
moves past them. The position in a room is the last event read there, so nothing is handled again if
the homeserver has lost the token. Other modules interpret the events, so a faulty one can't stop the
loop. While nobody writes, the loop makes one request in 30 s.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from agentsup.channels.core.errors import (
    NotSent,
    OutcomeUnknown,
    PlatformError,
    RateLimited,
    RequestRefused,
)
from agentsup.channels.core.receiving import source
from agentsup.channels.core.receiving.messages import ReceiveDependencies
from agentsup.channels.core.receiving.raw import Json, maybe_list
from agentsup.channels.core.receiving.rows import ReceivedRow
from agentsup.channels.core.receiving.source import RetryDecision, Source
from agentsup.channels.core.report import ChannelState
from agentsup.channels.matrix.batch import (
    FILTER,
    MESSAGES_FILTER,
    Batch,
    JoinedRoom,
    is_membership,
    read_batch,
    since_entry,
    usable,
)
from agentsup.channels.matrix.client import MatrixClient
from agentsup.channels.matrix.errors import SessionNotStored
from agentsup.channels.matrix.event import DOUBTFUL, GAP
from agentsup.channels.matrix.received import RoomNews, known_rooms, position_of, store_tx
from agentsup.kit import faults
from agentsup.kit.log import get_logger

_GAP_MAX = 500
"""Most events that are fetched of one room after an absence."""
_PAGE = 100
_PAGES = 20
_GAP_TRIES = 3
_PATIENCE_S = 3600.0
"""The longest wait for rate limits for one page."""
_log = get_logger(__name__)
_SLACK_S = 20.0
"""Seconds that the request may take beyond the long poll itself."""
_LONG_S = 180.0
"""Timeout of the first request after a pause, which may have a large answer."""
_STALE_AFTER = 3
"""After so many refusals the homeserver is taken to have lost the token."""
_STALE_CODES = frozenset({"M_UNKNOWN", "M_INVALID_PARAM"})


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


def decide_retry(error: PlatformError, failures: int, unit: float) -> RetryDecision:
    """Return the cause and the pause for the ``failures``-th failed sync in a row (from 1)."""
    return source.decide_retry(
        error,
        failures,
        unit,
        unreachable="the Matrix homeserver can't be reached",
        plain=(SessionNotStored, NotSent),
    )


def is_stale(error: PlatformError) -> bool:
    """Whether the homeserver refuses the sync token, and nothing else about the request.

    The specification has no code for that: servers answer 400 with a general code and a text about
    the token, or with the code of other kinds of sync. A refused access token is not a
    ``RequestRefused``, and other refusals say nothing about the read position.
    """
    if not isinstance(error, RequestRefused) or error.number != 400:
        return False
    if error.name == "M_UNKNOWN_POS":
        return True
    words = error.description.lower()
    return error.name in _STALE_CODES and ("token" in words or "since" in words)


class Syncer(Source):
    """Receives the events of one bot."""

    title = "Matrix"

    def __init__(
        self,
        client: MatrixClient,
        deps: ReceiveDependencies,
        show: Callable[[ChannelState, str, int | None], None],
        changed: Callable[[str], None],
    ) -> None:
        """``changed`` is called for each room with changed members."""
        super().__init__(deps, show)
        self._client = client
        owner = self._owner = deps.owner
        self._changed = changed
        self._past = Backfill(client, owner.account, rest=self._failed)
        self._since: str | None = None
        self._stored_at = 0
        self._known: dict[str, str] = {}
        self._is_first_day = False
        """Whether nothing was ever read."""
        self._stale = 0

    async def _load_position(self) -> None:
        (self._since, self._stored_at), self._known = await self._deps.database.read(
            lambda reader: (position_of(reader, self._owner), known_rooms(reader, self._owner)),
            name="matrix.since",
        )
        self._is_first_day = self._since is None and not self._known

    async def _receive(self, is_well: bool) -> list[ReceivedRow]:
        batch = await self._ask(is_well)
        return await self._keep(batch, await self._news(batch))

    async def _ask(self, is_well: bool) -> Batch:
        wait_s = self._deps.limits.poll_s if is_well else 0.0
        if self._is_lost:
            # Synapse repeats its answer to an equal request within two minutes; an old answer would
            # move the read position back.
            wait_s = self._deps.entropy.uniform(0.001, 1.0)
        answer = await self._client.sync(
            self._since,
            filter_=FILTER,
            wait_s=wait_s,
            timeout_s=wait_s + _SLACK_S if is_well else _LONG_S,
        )
        try:
            batch = read_batch(answer, self._owner.account)
        except ValueError as error:
            raise PlatformError(str(error)) from None
        if batch.faults:
            _log.error(
                "parts of a sync make no sense and are left out",
                agent=self._deps.agent_name,
                count=batch.faults,
            )
        self._stale = 0
        # After an invitation to a known room: the bot was removed, so later events are not for it.
        batch = replace(batch, left=(*batch.left, *(r for r in batch.invited if r in self._known)))
        if self._is_lost:
            # Such an answer lists the rooms that the bot is in, but not those that it has left.
            here = {room.room_id for room in batch.joined}
            gone = (room_id for room_id in self._known if room_id not in here)
            batch = replace(batch, left=(*batch.left, *gone))
        for room in batch.joined:
            if room.may_have_other_members or self._is_lost:
                self._changed(room.room_id)
        return batch

    @property
    def _is_lost(self) -> bool:
        """Whether the homeserver has lost the token and sends everything again."""
        return self._since is None and not self._is_first_day

    async def _news(self, batch: Batch) -> list[RoomNews]:
        """Return what is to be stored of each room."""
        so_far = Read(self._since, self._stored_at, self._is_lost)
        found = []
        for room in batch.joined:
            events: tuple[Json, ...] = ()  # events before the first sync are not for the bot
            if not self._is_first_day:
                last = self._known.get(room.room_id)
                events = await self._past.news(room, last, so_far, batch.next_batch)
            found.append(RoomNews(room.room_id, events, room.last_event_id, room.is_encrypted))
        return found

    # -- storing -----------------------------------------------------------------------------------

    async def _keep(self, batch: Batch, news: Sequence[RoomNews]) -> list[ReceivedRow]:
        is_news = any(each.events or each.is_encrypted for each in news)
        if not is_news and not batch.invited and not batch.left and self._since is not None:
            # Nothing is lost if a crash repeats this batch, and quiet hours cause no writes.
            self._since = batch.next_batch
            await self._answered()
            return []
        at = self._clock.now_ms()
        step = partial(
            store_tx,
            owner=self._owner,
            news=[
                *news,
                *(RoomNews(room_id, (event,), "") for room_id, event in batch.invited.items()),
            ],
            since=batch.next_batch,
            left=batch.left,
            at=at,
        )
        rows = await self._deps.database.write(step, name="matrix.keep")
        faults.platform_point("matrix", "after_commit")
        self._since = batch.next_batch
        self._stored_at = at
        self._is_first_day = False
        for room_id in batch.left:
            self._known.pop(room_id, None)
            self._changed(room_id)
        for room in news:
            if room.last_event_id or room.room_id not in self._known:
                self._known[room.room_id] = room.last_event_id
        await self._answered()
        return rows

    async def _failed(self, error: PlatformError) -> None:
        if is_stale(error) and self._since is not None:
            self._stale += 1
            if self._stale >= _STALE_AFTER:
                _log.warning(
                    "the homeserver does not know how far we have read; asking it anew",
                    agent=self._deps.agent_name,
                    why=error.message,
                )
                self._since = None
        await super()._failed(error)

    async def _after_failure(self, error: PlatformError) -> RetryDecision:
        return decide_retry(error, self._failures, self._deps.entropy.uniform(0.0, 1.0))
