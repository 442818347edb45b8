"""The sync loop on a real store, in virtual time: the token never leads the commit, gaps are filled
within bounds, and no trouble of the homeserver loses anything or makes the bot deaf for good.

The homeserver is a model of its contract: a stream of events, tokens that are positions in it, and
timelines cut at a limit. What a proxy before a real one can do is tried in tests/live.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from agentsup.channels.core import ChannelState
from agentsup.channels.core.errors import (
    NotAllowed,
    NotSent,
    OutcomeUnknown,
    PlatformError,
    RateLimited,
    RequestRefused,
    TokenRefused,
)
from agentsup.channels.core.receiving.messages import ReceiveDependencies, ReceiveLimits
from agentsup.channels.core.receiving.rows import ReceivedRow
from agentsup.channels.matrix.client import MatrixClient
from agentsup.channels.matrix.event import DOUBTFUL, GAP, INVITE
from agentsup.channels.matrix.received import known_rooms, position_of, row_owner
from agentsup.channels.matrix.sync import Syncer
from agentsup.kit.tasks import TaskOwner
from agentsup.model.agent import AgentSpec
from agentsup.model.errors import StoreUnavailable
from agentsup.store import Tx
from tests.support.mailbox_fixture import MailboxFixture

pytestmark = pytest.mark.virtual

ME = "@bot:here"
ROOM = "!r:here"
OWNER = row_owner("a", ME)
LIMIT = 50


class Homeserver(MatrixClient):
    """One stream; the token ``s<n>`` stands after its n-th event."""

    user_id = ME

    def __init__(self) -> None:
        self.stream: list[tuple[str, dict[str, Any]]] = []
        self.invited: dict[str, str] = {}
        self.left: list[str] = []
        self.trouble: list[PlatformError] = []
        self.page_trouble: list[PlatformError] = []
        self.asked: list[str | None] = []
        self.pages = 0
        self.news = asyncio.Event()
        self.oldest = 0
        """Tokens before this one are not known."""
        self.lost: set[str] = set()
        """Events that it has no more, as after its own restore."""
        self.given: dict[float, dict[str, Any]] = {}
        """First answers, by the wait that was asked for: who asks the same gets the same."""
        self.now_ms: Callable[[], int] = lambda: 0

    def raw(self, kind: str = "m.room.message", **more: Any) -> dict[str, Any]:
        event_id = f"${len(self.stream)}"
        common = {"event_id": event_id, "type": kind, "sender": "@ann:here", "content": {}}
        return {**common, "origin_server_ts": self.now_ms(), **more}

    def add(self, kind: str = "m.room.message", room: str = ROOM, **more: Any) -> str:
        raw = self.raw(kind, **more)
        self.stream.append((room, raw))
        self.news.set()
        return str(raw["event_id"])

    def enter(self, room: str = ROOM) -> None:
        """The bot is invited and joins."""
        for what in ("invite", "join"):
            self.add("m.room.member", room, state_key=ME, content={"membership": what})

    async def sync(
        self, since: str | None, *, filter_: Mapping[str, Any], wait_s: float, timeout_s: float
    ) -> dict[str, Any]:
        assert wait_s < timeout_s
        self.asked.append(since)
        if self.trouble:
            raise self.trouble.pop(0)
        start = 0 if since is None else int(since[1:])
        if since is not None and start < self.oldest:
            raise RequestRefused(400, "Invalid stream token", "M_UNKNOWN")
        if since is None and wait_s in self.given:
            return self.given[wait_s]
        if start == len(self.stream) and not self.invited and not self.left:
            self.news.clear()
            try:
                async with asyncio.timeout(wait_s):
                    await self.news.wait()
            except TimeoutError:
                pass
        join: dict[str, Any] = {}
        for position, (room, raw) in enumerate(self.stream[start:], start):
            if raw["event_id"] in self.lost:
                continue
            timeline = join.setdefault(room, {"timeline": {"events": []}})["timeline"]
            timeline["events"].append((position, raw))
        for found in join.values():
            kept = found["timeline"]["events"][-LIMIT:]
            found["timeline"] = {
                "events": [raw for _, raw in kept],
                "limited": len(kept) < len(found["timeline"]["events"]),
                "prev_batch": f"s{kept[0][0]}",
            }
        invite = {
            room: {
                "invite_state": {
                    "events": [
                        {
                            "type": "m.room.member",
                            "state_key": ME,
                            "sender": who,
                            "content": {"membership": "invite"},
                        }
                    ]
                }
            }
            for room, who in self.invited.items()
        }
        self.invited = {}
        rooms = {"join": join, "invite": invite, "leave": {room: {} for room in self.left}}
        self.left = []
        answer = {"next_batch": f"s{len(self.stream)}", "rooms": rooms}
        if since is None:
            self.given[wait_s] = answer
        return answer

    async def messages(
        self,
        room_id: str,
        *,
        start: str | None,
        end: str | None,
        limit: int,
        filter_: Mapping[str, Any],
    ) -> dict[str, Any]:
        assert start is not None
        self.pages += 1
        if self.page_trouble:
            raise self.page_trouble.pop(0)
        low, high = (0 if end is None else int(end[1:])), int(start[1:])
        older = [
            (n, raw)
            for n, (room, raw) in enumerate(self.stream[:high])
            if room == room_id and raw["event_id"] not in self.lost
        ]
        page = [(n, raw) for n, raw in reversed(older) if n >= low][:limit]
        answer: dict[str, Any] = {"chunk": [raw for _, raw in page]}
        if page and page[-1][0] > low:
            answer["end"] = f"s{page[-1][0]}"
        return answer


class Fixture:
    def __init__(self, rig: MailboxFixture) -> None:
        self.rig = rig
        self.server = Homeserver()
        self.server.now_ms = rig.clock.now_ms
        self.taken: list[ReceivedRow] = []
        self.states: list[ChannelState] = []
        self.told: list[str] = []
        self.changed: list[str] = []
        self.owner = TaskOwner("stage")
        self.run: asyncio.Task[None] | None = None

    def start(self) -> None:
        deps = ReceiveDependencies(
            agent_id=OWNER.bot_id,
            agent_name="bob",
            workspace=Path(),
            database=self.rig.db,
            mailbox=self.rig.mailbox,
            inbox=None,  # type: ignore[arg-type]  # a source accepts no message
            commands=None,  # type: ignore[arg-type]
            clock=self.rig.clock,
            entropy=self.rig.entropy,
            spec=lambda: AgentSpec("bob"),
            tell=self._tell,
            owner=OWNER,
            limits=ReceiveLimits(max_file_bytes=1, poll_s=30.0),
            set_aside=lambda count: None,
            accepted=lambda *_: None,
        )
        syncer = Syncer(self.server, deps, self._show, self.changed.append)
        self.run = self.owner.spawn(syncer.run(self._take), name="sync:bob")

    def _show(self, state: ChannelState, detail: str, at: int | None) -> None:
        self.states.append(state)

    async def _take(self, rows: Sequence[ReceivedRow]) -> None:
        self.taken += rows

    async def _tell(self, text: str) -> None:
        self.told.append(text)

    async def stop(self) -> None:
        await self.owner.close(1.0)
        self.owner = TaskOwner("stage")

    async def until(self, fits: Callable[[], bool], timeout_s: float = 3_000) -> None:
        async with asyncio.timeout(timeout_s):
            while not fits():
                await asyncio.sleep(0.1)

    @property
    def ids(self) -> list[str]:
        return [row.external_id for row in self.taken]

    async def since(self) -> str | None:
        return await self.rig.db.read(lambda reader: position_of(reader, OWNER)[0])

    async def server_is_old(self) -> None:
        """The account is in the room for long when the bot is started for the first time."""
        self.server.enter()
        for _ in range(5):
            self.server.add()
        self.start()
        await self.until(lambda: len(self.server.asked) > 1)

    async def begun(self) -> None:
        """The bot is in the room and has read what is there."""
        self.server.enter()
        self.start()
        await self.until(lambda: len(self.server.asked) > 1)


@pytest.fixture
async def stage(tmp_path: Path) -> AsyncIterator[Fixture]:
    rig = await MailboxFixture.open(tmp_path)
    made = Fixture(rig)
    yield made
    await made.stop()
    await rig.close()


async def test_what_was_said_before_the_first_day_is_left_alone(stage: Fixture) -> None:
    await stage.server_is_old()
    assert stage.taken == []
    new = stage.server.add()
    await stage.until(lambda: stage.ids == [new])


async def test_the_token_moves_with_the_rows_and_never_before(
    stage: Fixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    await stage.begun()
    before = await stage.since()
    write, failed = stage.rig.db.write, 0

    async def failing(fn: Callable[..., Any], *args: Any, **options: Any) -> Any:
        nonlocal failed
        if options.get("name") == "matrix.keep" and failed < 2:
            failed += 1
            raise StoreUnavailable("the disk is full")
        return await write(fn, *args, **options)

    monkeypatch.setattr(stage.rig.db, "write", failing)
    new = stage.server.add()
    await stage.until(lambda: stage.ids == [new])
    assert failed == 2
    assert stage.server.asked[-3:] == [before, before, before] or (
        stage.server.asked[-4:-1] == [before, before, before]
    )
    assert await stage.since() == f"s{len(stage.server.stream)}"


async def test_a_quiet_night_writes_nothing(stage: Fixture) -> None:
    await stage.begun()
    commits = stage.rig.db.stats.commits
    await asyncio.sleep(3_600)
    assert len(stage.server.asked) > 100
    assert stage.rig.db.stats.commits == commits
    assert set(stage.states) == {ChannelState.UP}


@pytest.mark.parametrize("missed", [LIMIT, LIMIT + 1, 340])
async def test_a_cut_timeline_is_made_whole_and_in_order(stage: Fixture, missed: int) -> None:
    await stage.begun()
    await stage.stop()
    said = [stage.server.add() for _ in range(missed)]
    stage.start()
    await stage.until(lambda: len(stage.taken) >= missed)
    assert stage.ids == said


async def test_beyond_the_bound_the_newest_are_read_and_the_gap_is_kept_as_one(
    stage: Fixture,
) -> None:
    await stage.begun()
    await stage.stop()
    said = [stage.server.add() for _ in range(900)]
    stage.start()
    await stage.until(lambda: len(stage.taken) >= 551)
    gap, *rest = stage.taken
    assert GAP in gap.raw
    assert [row.external_id for row in rest] == said[-550:]


async def test_a_room_whose_past_can_not_be_had_makes_nobody_deaf(stage: Fixture) -> None:
    await stage.begun()
    await stage.stop()
    said = [stage.server.add() for _ in range(60)]
    stage.server.page_trouble = [OutcomeUnknown("500")] * 50
    stage.start()
    await stage.until(lambda: len(stage.taken) >= 51)
    assert stage.server.pages <= 6
    assert stage.ids[1:] == said[-50:]
    assert GAP in stage.taken[0].raw


async def test_a_short_trouble_while_a_gap_is_filled_costs_nothing(stage: Fixture) -> None:
    await stage.begun()
    await stage.stop()
    said = [stage.server.add() for _ in range(60)]
    stage.server.page_trouble = [NotSent("no way"), RateLimited(3.0)]
    stage.start()
    await stage.until(lambda: len(stage.taken) >= 60)
    assert stage.ids == said


async def test_pauses_that_the_server_asks_for_lose_nothing_of_a_gap(stage: Fixture) -> None:
    await stage.begun()
    await stage.stop()
    said = [stage.server.add() for _ in range(240)]
    stage.server.page_trouble = [RateLimited(40.0)] * 12
    began = stage.rig.clock.monotonic()
    stage.start()
    await stage.until(lambda: len(stage.taken) >= 200)
    assert stage.ids == said
    assert 480.0 <= stage.rig.clock.monotonic() - began <= 490.0
    assert stage.server.pages == 12 + 2
    assert ChannelState.RETRYING in stage.states
    assert len(stage.told) == 2, "that nothing was heard for long, and that it is"


async def test_a_server_that_asks_for_pauses_for_ever_makes_nobody_deaf_for_ever(
    stage: Fixture,
) -> None:
    await stage.begun()
    await stage.stop()
    said = [stage.server.add() for _ in range(60)]
    stage.server.page_trouble = [RateLimited(600.0)] * 100
    began = stage.rig.clock.monotonic()
    stage.start()
    await stage.until(lambda: len(stage.taken) >= 51, 8000.0)
    assert 3_000 <= stage.rig.clock.monotonic() - began <= 4_000
    assert stage.ids[1:] == said[-50:]
    assert GAP in stage.taken[0].raw


async def test_what_followed_an_invitation_is_read_also_when_it_is_more_than_one_sync_holds(
    stage: Fixture,
) -> None:
    await stage.begun()
    other = "!o:here"
    for _ in range(70):
        stage.server.add(room=other)
    await stage.stop()
    # The bot sees nothing of a room that it is not in; here it is as if it had never asked.
    stage.server.stream, hidden = stage.server.stream[:-70], stage.server.stream[-70:]
    stage.start()
    await stage.until(lambda: bool(stage.server.asked))
    await stage.stop()
    stage.server.stream += hidden
    stage.server.enter(other)
    said = [stage.server.add(room=other) for _ in range(60)]
    stage.start()
    await stage.until(lambda: len(stage.taken) >= 60)
    assert stage.ids == said


async def test_of_a_new_room_what_was_said_before_the_invitation_is_left_alone(
    stage: Fixture,
) -> None:
    await stage.begun()
    other = "!o:here"
    for _ in range(5):
        stage.server.stream.append((other, stage.server.raw()))
    stage.server.enter(other)
    said = stage.server.add(room=other)
    await stage.until(lambda: bool(stage.taken))
    await asyncio.sleep(1)
    assert stage.ids == [said]


async def test_a_room_that_was_left_begins_anew(stage: Fixture) -> None:
    await stage.begun()
    first = stage.server.add()
    await stage.until(lambda: stage.ids == [first])
    stage.server.left = [ROOM]
    stage.server.news.set()
    await stage.until(lambda: not stage.server.left)
    await asyncio.sleep(1)
    for _ in range(3):
        stage.server.add()  # said while we were not there; the server shows it afterwards
    stage.server.enter()
    last = stage.server.add()
    await stage.until(lambda: len(stage.taken) >= 2)
    await asyncio.sleep(1)
    assert stage.ids == [first, last]


async def test_a_room_that_invites_us_anew_was_left_unseen(stage: Fixture) -> None:
    """Put out and invited again while nobody looked, which a sync tells as an invitation alone."""
    await stage.begun()
    first = stage.server.add()
    await stage.until(lambda: stage.ids == [first])
    await stage.stop()
    stage.server.invited = {ROOM: "@ann:here"}
    stage.start()
    await stage.until(lambda: len(stage.taken) >= 2)
    assert INVITE in stage.taken[-1].raw
    assert await stage.rig.db.read(lambda reader: known_rooms(reader, OWNER)) == {}
    for _ in range(3):
        stage.server.add()  # said while we were not there
    stage.server.enter()
    last = stage.server.add()
    await stage.until(lambda: len(stage.taken) >= 3)
    await asyncio.sleep(1)
    assert stage.ids[2:] == [last]


async def test_an_invitation_is_kept_once_and_a_later_one_is_another(stage: Fixture) -> None:
    await stage.begun()
    for _ in range(2):
        stage.server.invited = {"!new:here": "@ann:here"}
        stage.server.add()
        await stage.until(lambda: not stage.server.invited)
    await stage.until(lambda: len([r for r in stage.taken if INVITE in r.raw]) == 2)


async def test_a_token_that_the_server_forgot_is_given_up_and_nothing_new_is_lost(
    stage: Fixture,
) -> None:
    await stage.begun()
    first = stage.server.add()
    await stage.until(lambda: stage.ids == [first])
    await stage.stop()
    said = [stage.server.add() for _ in range(3)]
    stage.server.oldest = len(stage.server.stream)
    stage.start()
    await stage.until(lambda: len(stage.taken) >= 4)
    assert stage.ids == [first, *said]
    assert None in stage.server.asked[1:]


async def test_another_refusal_is_waited_out_with_the_token_that_there_is(stage: Fixture) -> None:
    await stage.begun()
    first = stage.server.add()
    await stage.until(lambda: stage.ids == [first])
    asked = len(stage.server.asked)
    stage.server.trouble = [
        *[RequestRefused(400, "the filter makes no sense", "M_BAD_JSON")] * 4,
        *[RequestRefused(400, "out of order", "M_UNKNOWN")] * 4,
        *[NotAllowed(403, "no token for this door", "M_FORBIDDEN")] * 4,
    ]
    stage.server.news.set()
    await stage.until(lambda: not stage.server.trouble)
    said = stage.server.add()
    await stage.until(lambda: len(stage.taken) >= 2)
    assert None not in stage.server.asked[asked:]
    assert stage.ids == [first, said]
    assert not [row for row in stage.taken if GAP in row.raw]


@pytest.mark.parametrize("missed", [3, LIMIT + 20])
async def test_after_a_lost_token_only_what_followed_the_last_known_event_is_taken(
    stage: Fixture, missed: int
) -> None:
    await stage.begun()
    old = [stage.server.add() for _ in range(30)]
    await stage.until(lambda: stage.ids == old)
    await stage.stop()
    await stage.rig.db.write(forget_events)  # as the store does after some days
    said = [stage.server.add() for _ in range(missed)]
    stage.server.oldest = len(stage.server.stream)
    stage.start()
    await stage.until(lambda: len(stage.taken) >= 30 + missed)
    await asyncio.sleep(60)
    assert stage.ids == [*old, *said]
    assert not [row for row in stage.taken if DOUBTFUL in row.raw]


async def test_without_the_last_known_event_what_was_said_later_is_taken_with_doubt(
    stage: Fixture,
) -> None:
    await stage.begun()
    old = [stage.server.add() for _ in range(30)]
    await stage.until(lambda: stage.ids == old)
    await stage.stop()
    await stage.rig.db.write(forget_events)
    stage.server.lost.add(old[-1])
    await asyncio.sleep(60)
    said = [stage.server.add() for _ in range(3)]
    stage.server.oldest = len(stage.server.stream)
    stage.start()
    await stage.until(lambda: len(stage.taken) >= 33)
    await asyncio.sleep(60)
    assert stage.ids == [*old, *said]
    assert all(DOUBTFUL in row.raw for row in stage.taken[30:])
    after = stage.server.add()
    await stage.until(lambda: stage.ids[-1] == after)
    assert DOUBTFUL not in stage.taken[-1].raw


async def test_a_room_left_while_the_token_was_lost_begins_anew(stage: Fixture) -> None:
    await stage.begun()
    other = "!o:here"
    stage.server.enter(other)
    kept = stage.server.add(room=other)
    await stage.until(lambda: stage.ids == [kept])
    await stage.stop()
    stage.server.stream = [each for each in stage.server.stream if each[0] == ROOM]
    stage.server.oldest = 1000
    stage.start()
    await stage.until(lambda: None in stage.server.asked[1:])
    await stage.until(lambda: other in stage.changed)
    assert other not in await stage.rig.db.read(lambda reader: known_rooms(reader, OWNER))


def forget_events(tx: Tx) -> None:
    tx.execute("DELETE FROM received")


async def test_a_cut_timeline_may_hide_who_came_or_went(stage: Fixture) -> None:
    await stage.begun()
    await stage.stop()
    stage.changed.clear()
    stage.server.add("m.room.member", state_key="@eve:here", content={"membership": "join"})
    for _ in range(LIMIT):
        stage.server.add()
    stage.start()
    await stage.until(lambda: len(stage.taken) >= LIMIT)
    assert ROOM in stage.changed


async def test_own_words_and_comings_and_goings_are_not_kept(stage: Fixture) -> None:
    await stage.begun()
    stage.server.add(sender=ME)
    stage.server.add("m.room.member", state_key="@eve:here", content={"membership": "join"})
    new = stage.server.add()
    await stage.until(lambda: stage.ids == [new])
    assert ROOM in stage.changed


async def test_one_failed_sync_is_no_news(stage: Fixture) -> None:
    await stage.begun()
    stage.server.trouble = [OutcomeUnknown("502")]
    said = [stage.server.add()]
    await stage.until(lambda: not stage.server.trouble)
    said.append(stage.server.add())
    await stage.until(lambda: stage.ids == said)
    assert set(stage.states) == {ChannelState.UP}


async def test_a_pause_that_the_server_asks_for_is_kept_and_a_long_one_is_told(
    stage: Fixture,
) -> None:
    await stage.begun()
    stage.server.trouble = [RateLimited(900.0)]
    stage.server.add()
    await stage.until(lambda: not stage.server.trouble)
    began = stage.rig.clock.monotonic()
    stage.server.add()
    await stage.until(lambda: ChannelState.RETRYING in stage.states, 1.0)
    await stage.until(lambda: bool(stage.told), 300.0)
    await stage.until(lambda: len(stage.taken) == 2)
    assert 899.0 <= stage.rig.clock.monotonic() - began <= 901.0


async def test_a_refused_token_ends_the_life(stage: Fixture) -> None:
    await stage.begun()
    stage.server.trouble = [TokenRefused("gone")]
    stage.server.add()
    assert stage.run is not None
    with pytest.raises(TokenRefused):
        await stage.run
