"""The sync loop: ask, keep, and only then ask with the new token.

A homeserver answers with what came after the token that it is given, so the token follows the
commit and never leads it (P1). What a long absence leaves out of the answer is fetched before the
token goes past it. Nothing else happens here: what an event means is for others, and a bad one
can't stop the loop. While nobody writes, one request in 30 s is all there is.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Protocol

from agentsup.channels.desk import is_over
from agentsup.channels.matrix.batch import FILTER, Batch, read_batch
from agentsup.channels.matrix.errors import (
    MatrixError,
    NotSent,
    RateLimited,
    Refused,
    TokenRefused,
    Unkept,
)
from agentsup.channels.matrix.kept import (
    Owner,
    RoomNews,
    Row,
    keep_tx,
    kept_at,
    known_rooms,
    since_of,
)
from agentsup.channels.matrix.past import Past, PastClient, Read
from agentsup.channels.report import ChannelState
from agentsup.kit import faults
from agentsup.kit.backoff import delay_s
from agentsup.kit.clock import Clock
from agentsup.kit.entropy import Entropy
from agentsup.model.errors import AgentsupError, Overloaded, StoreUnavailable
from agentsup.observe.logging import get_logger
from agentsup.store.database import Database, Tx

__all__ = ["SyncClient", "Syncer", "Trial", "is_stale", "judge"]

_log = get_logger(__name__)

Json = Mapping[str, Any]

_SLACK_S = 20.0
"""How much longer than the long poll itself the request may take."""
_LONG_S = 180.0
"""The first one after a pause, which may have much to tell."""
_STORE_PAUSE_S = 1.0
_SHOWN_AFTER = 2
"""A single failed sync is no news."""
_SLICE_S = 30.0
"""A pause of this length is news by itself."""
_STALE_AFTER = 3
"""A token that was refused this often is not known to the homeserver any more."""
_STALE_CODES = frozenset({"M_UNKNOWN", "M_INVALID_PARAM"})


class SyncClient(PastClient, Protocol):
    """What is needed of a client."""

    @property
    def user_id(self) -> str: ...

    async def sync(
        self, since: str | None, *, filter_: Json, wait_s: float, timeout_s: float
    ) -> dict[str, Any]: ...


@dataclass(frozen=True, slots=True)
class Trial:
    """What a failed sync means: why, and how long to wait."""

    detail: str
    wait_s: float


def judge(error: MatrixError, failures: int, unit: float) -> Trial:
    """What to do after the ``failures``-th failed sync in a row (from 1)."""
    if isinstance(error, RateLimited):
        return Trial(error.message, error.retry_after_s)
    wait_s = delay_s(failures - 1, base_s=1.0, cap_s=30.0, unit=unit)
    if isinstance(error, Unkept | NotSent):  # the latter says so itself
        return Trial(error.message, wait_s)
    return Trial(f"the Matrix homeserver can't be reached: {error.message}", wait_s)


def is_stale(error: MatrixError) -> bool:
    """Whether it is the sync token that the homeserver refuses, and nothing else about the request.

    The specification has no code of its own for that: servers answer 400 with a general one and
    words about the token, or with the code that other kinds of sync have. A refused access token
    is no `Refused`, and another refusal says nothing about how far was read.
    """
    if not isinstance(error, Refused) or error.http_status != 400:
        return False
    if error.errcode == "M_UNKNOWN_POS":
        return True
    words = error.description.lower()
    return error.errcode in _STALE_CODES and ("token" in words or "since" in words)


class Syncer:
    """Receives the events of one bot."""

    def __init__(
        self,
        *,
        client: SyncClient,
        database: Database,
        clock: Clock,
        entropy: Entropy,
        owner: Owner,
        sync_s: float,
        deaf_after_s: float,
        show: Callable[[ChannelState, str, int | None], None],
        tell: Callable[[str], Awaitable[None]],
        changed: Callable[[str], None],
        agent_name: str,
    ) -> None:
        """``show`` hears of each answered sync (with its time) and each trouble; ``tell`` speaks
        to the operator; ``changed`` hears of each room whose members changed."""
        self._client = client
        self._database = database
        self._clock = clock
        self._entropy = entropy
        self._owner = owner
        self._sync_s = sync_s
        self._deaf_after_s = deaf_after_s
        self._show = show
        self._tell = tell
        self._changed = changed
        self._agent_name = agent_name
        self._past = Past(client, owner.user_id, rest=self._suffer)
        self._since: str | None = None
        self._kept_at = 0
        self._known: dict[str, str] = {}
        self._is_first_day = False
        """Nothing was ever read."""
        self._failures = 0
        self._stale = 0
        self._is_told = False
        self._answered_at = clock.monotonic()
        self.caught_up = False
        """The homeserver has told everything at least once."""

    async def run(self, take: Callable[[Sequence[Row]], Awaitable[None]]) -> None:
        """Give new rows to ``take``, in order; it may hold the loop up.

        Raises ``TokenRefused``, and ``StoreUnavailable`` once the store is closed."""
        self._answered_at = self._clock.monotonic()
        self._since, self._kept_at, self._known = await self._database.read(
            lambda reader: (
                since_of(reader, self._owner),
                kept_at(reader, self._owner),
                known_rooms(reader, self._owner),
            ),
            name="matrix.since",
        )
        self._is_first_day = self._since is None and not self._known
        is_well = False
        while True:
            try:
                # The first one asks what is there and does not wait: health need not wait either.
                batch = await self._ask(is_well)
                news = await self._news(batch)
                await take(await self._keep(batch, news))
            except TokenRefused:
                raise
            except MatrixError as error:
                is_well = False
                await self._suffer(error)
            except (StoreUnavailable, Overloaded) as error:
                if is_over(error):
                    raise
                _log.warning("events wait for the store", agent=self._agent_name, why=str(error))
                await self._clock.sleep(_STORE_PAUSE_S)
            else:
                is_well = True

    async def _ask(self, is_well: bool) -> Batch:
        wait_s = self._sync_s if is_well else 0.0
        if self._is_lost:
            # Synapse gives an answer again to whoever asks the same within two minutes; an old one
            # would take us back to where we were then.
            wait_s = self._entropy.uniform(0.001, 1.0)
        answer = await self._client.sync(
            self._since,
            filter_=FILTER,
            wait_s=wait_s,
            timeout_s=wait_s + _SLACK_S if is_well else _LONG_S,
        )
        try:
            batch = read_batch(answer, self._owner.user_id)
        except ValueError as error:
            raise MatrixError(str(error)) from None
        if batch.faults:
            _log.error(
                "parts of a sync make no sense and are left out",
                agent=self._agent_name,
                count=batch.faults,
            )
        self._stale = 0
        # Whoever is invited is not inside: somebody took us out, and what was said since is others'.
        batch = replace(batch, left=(*batch.left, *(r for r in batch.invited if r in self._known)))
        if self._is_lost:
            # Such an answer tells where we are, and not what we have left.
            here = {room.room_id for room in batch.joined}
            gone = (room_id for room_id in self._known if room_id not in here)
            batch = replace(batch, left=(*batch.left, *gone))
        for room in batch.joined:
            if room.may_have_other_members or self._is_lost:
                self._changed(room.room_id)
        return batch

    @property
    def _is_lost(self) -> bool:
        """The homeserver did not know how far we had read, and tells everything anew."""
        return self._since is None and not self._is_first_day

    async def _news(self, batch: Batch) -> list[RoomNews]:
        """What to keep of each room."""
        so_far = Read(self._since, self._kept_at, self._is_lost)
        found = []
        for room in batch.joined:
            events: tuple[Json, ...] = ()  # what was said before the first day is others' history
            if not self._is_first_day:
                last = self._known.get(room.room_id)
                events = await self._past.news(room, last, so_far, batch.next_batch)
            found.append(RoomNews(room.room_id, events, room.last_event_id, room.is_encrypted))
        return found

    # -- keeping -----------------------------------------------------------------------------------

    async def _keep(self, batch: Batch, news: Sequence[RoomNews]) -> list[Row]:
        is_news = any(each.events or each.is_encrypted for each in news)
        if not is_news and not batch.invited and not batch.left and self._since is not None:
            # Nothing is lost if a crash repeats this one, and a quiet night writes nothing.
            self._since = batch.next_batch
            await self._heard()
            return []
        at = self._clock.now_ms()
        step = partial(
            _keep_tx,
            owner=self._owner,
            news=[
                *news,
                *(RoomNews(room_id, (event,), "") for room_id, event in batch.invited.items()),
            ],
            since=batch.next_batch,
            left=batch.left,
            at=at,
        )
        rows = await self._database.write(step, name="matrix.keep")
        faults.point("matrix.after_commit")
        self._since = batch.next_batch
        self._kept_at = at
        self._is_first_day = False
        for room_id in batch.left:
            self._known.pop(room_id, None)
            self._changed(room_id)
        for room in news:
            if room.last_event_id or room.room_id not in self._known:
                self._known[room.room_id] = room.last_event_id
        await self._heard()
        return rows

    async def _heard(self) -> None:
        self._failures = 0
        self.caught_up = True
        self._answered_at = self._clock.monotonic()
        self._show(ChannelState.UP, "", self._clock.now_ms())
        if self._is_told:
            self._is_told = False
            await self._say(f"The Matrix bot of {self._agent_name} hears again.")

    async def _suffer(self, error: MatrixError) -> None:
        if is_stale(error) and self._since is not None:
            self._stale += 1
            if self._stale >= _STALE_AFTER:
                _log.warning(
                    "the homeserver does not know how far we have read; asking it anew",
                    agent=self._agent_name,
                    why=error.message,
                )
                self._since = None
        self._failures += 1
        trial = judge(error, self._failures, self._entropy.uniform(0.0, 1.0))
        if self._failures >= _SHOWN_AFTER or trial.wait_s >= _SLICE_S:
            self._show(ChannelState.RETRYING, trial.detail, None)
        if self._failures in (1, 10, 100, 1000):
            _log.warning(
                "a sync failed",
                agent=self._agent_name,
                failures=self._failures,
                why=error.message,
                next_s=round(trial.wait_s, 1),
            )
        await self._rest(trial)

    async def _rest(self, trial: Trial) -> None:
        """Wait as long as it takes, and tell if nothing was heard for too long."""
        until = self._clock.monotonic() + trial.wait_s
        while True:
            silent_s = self._clock.monotonic() - self._answered_at
            if silent_s >= self._deaf_after_s and not self._is_told:
                self._is_told = True
                await self._say(
                    f"The Matrix bot of {self._agent_name} has heard nothing for "
                    f"{round(silent_s / 60)} minutes. {trial.detail[:1].upper()}{trial.detail[1:]}."
                )
            left_s = until - self._clock.monotonic()
            if left_s <= 0:
                return
            await self._clock.sleep(min(left_s, _SLICE_S))

    async def _say(self, text: str) -> None:
        try:
            await self._tell(text)
        except AgentsupError as error:
            _log.warning("nobody could be told", agent=self._agent_name, text=text, why=str(error))


def _keep_tx(
    tx: Tx,
    *,
    owner: Owner,
    news: Sequence[RoomNews],
    since: str,
    left: Sequence[str],
    at: int,
) -> list[Row]:
    rows = keep_tx(tx, owner, news, since=since, left=left, at=at)
    faults.point("matrix.before_commit")
    return rows
