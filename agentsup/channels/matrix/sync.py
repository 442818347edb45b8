"""The sync loop: request a batch, store it, and only then send its token in the next request.

A homeserver returns the events after the token that it is given, so the token is used only after
the commit (P1). Events that a batch leaves out after a long absence are fetched before the token
moves past them. Other modules interpret the events, so a faulty one can't stop the loop. While
nobody writes, the loop makes one request in 30 s.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial

from agentsup.channels.core.errors import NotSent, PlatformError, RequestRefused
from agentsup.channels.core.receiving import source
from agentsup.channels.core.receiving.messages import ReceiveDependencies
from agentsup.channels.core.receiving.raw import Json
from agentsup.channels.core.receiving.rows import ReceivedRow
from agentsup.channels.core.receiving.source import RetryDecision, Source
from agentsup.channels.core.report import ChannelState
from agentsup.channels.matrix.backfill import Backfill, Read
from agentsup.channels.matrix.batch import FILTER, Batch, read_batch
from agentsup.channels.matrix.client import MatrixClient
from agentsup.channels.matrix.errors import SessionNotStored
from agentsup.channels.matrix.received import RoomNews, known_rooms, position_of, store_tx
from agentsup.kit import faults
from agentsup.kit.log import get_logger

_log = get_logger(__name__)

_SLACK_S = 20.0
"""Seconds that the request may take beyond the long poll itself."""
_LONG_S = 180.0
"""Timeout of the first request after a pause, which may have a large answer."""
_STALE_AFTER = 3
"""After so many refusals the homeserver is taken to have lost the token."""
_STALE_CODES = frozenset({"M_UNKNOWN", "M_INVALID_PARAM"})


def judge(error: PlatformError, failures: int, unit: float) -> RetryDecision:
    """Return the cause and the pause for the ``failures``-th failed sync in a row (from 1)."""
    return source.judge(
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
        faults.point("matrix.after_commit")
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
        return judge(error, self._failures, self._deps.entropy.uniform(0.0, 1.0))
