"""Kept events on their way to their rooms: in order, once, within memory; a stop passes them all."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from agentsup.channels.core.errors import (
    ChatGone,
    NotAllowed,
    NotSent,
    OutcomeUnknown,
    PlatformError,
    RateLimited,
    RequestRefused,
    TokenRefused,
)
from agentsup.channels.core.receiving import messages, quarantine
from agentsup.channels.core.receiving import rows as stored
from agentsup.channels.core.receiving.feed import Feed
from agentsup.channels.core.receiving.lanes import ChatLanes
from agentsup.channels.core.receiving.messages import ReceiveLimits
from agentsup.channels.core.receiving.rows import ReceivedRow
from agentsup.channels.matrix import received
from agentsup.channels.matrix.access import Room
from agentsup.channels.matrix.client import MatrixClient
from agentsup.channels.matrix.context import Lane, ReceivedItem
from agentsup.channels.matrix.event import BotUser, read
from agentsup.channels.matrix.received import RoomNews, row_owner, store_tx
from agentsup.channels.matrix.rooms import RoomMembers
from agentsup.kit.tasks import TaskOwner
from agentsup.model.agent import AgentSpec
from tests.support.mailbox_fixture import MailboxFixture

pytestmark = pytest.mark.virtual

OWNER = row_owner("a", "@bot:here")
ME = BotUser("@bot:here", "Bob")
ROOM, OTHER = "!r:here", "!o:here"
DEFERRED_MAX = 250


async def never_told(text: str) -> None:
    raise AssertionError(text)


class Fixture:
    """Takes ``pace_s`` for each event; memory holds 20."""

    def __init__(self, rig: MailboxFixture, folder: Path) -> None:
        self.rig = rig
        self.folder = folder
        self.done: list[str] = []
        self.pace_s = self.stop_s = 0.0
        self.numbers = 0
        self.open()

    def open(self) -> None:
        self.lanes: ChatLanes[ReceivedItem] = ChatLanes(
            self._handle, name="bob", at_once=4, backlog=20
        )
        self.feed = Feed(
            messages.ReceiveDependencies(
                agent_id="a",
                agent_name="bob",
                owner=OWNER,
                database=self.rig.db,
                mailbox=self.rig.mailbox,
                inbox=None,  # type: ignore[arg-type]  # a feed accepts no message
                commands=None,  # type: ignore[arg-type]
                clock=self.rig.clock,
                entropy=self.rig.entropy,
                workspace=self.folder,
                limits=ReceiveLimits(max_file_bytes=1, poll_s=30.0),
                spec=lambda: AgentSpec("bob"),
                tell=never_told,
                set_aside=lambda count: None,
                accepted=lambda *_: None,
            ),
            self.lanes,
            read=lambda row: messages.ReceivedItem(
                row, read(stored.load(row.raw), row.chat_id, ME)
            ),
            chat_of=lambda item: item.row.chat_id,
            urgent=lambda item: "urgent" if item.event and item.event.is_stop else "",
            deferred_max=DEFERRED_MAX,
        )

    async def _handle(self, item: ReceivedItem, lane: Lane) -> None:
        is_stop = item.event is not None and item.event.text == "/stop"
        await asyncio.sleep(self.stop_s if is_stop else self.pace_s)
        await self.rig.db.write(lambda tx: stored.done_tx(tx, [item.row]))
        self.done.append(item.event.text if item.event else "")

    async def come(self, *texts: str, room: str = ROOM) -> list[ReceivedRow]:
        """They are kept, as by a sync, and handed over."""
        rows = await self.keep(*texts, room=room)
        await self.feed.take(rows)
        return rows

    async def keep(self, *texts: str, room: str = ROOM) -> list[ReceivedRow]:
        """They are kept, as by a sync."""
        events: list[dict[str, Any]] = []
        for text in texts:
            self.numbers += 1
            content = {"msgtype": "m.text", "body": text}
            events.append(
                {
                    "event_id": f"${self.numbers}",
                    "type": "m.room.message",
                    "sender": "@ann:here",
                    "content": content,
                }
            )
        news = RoomNews(room, tuple(events), f"${self.numbers}")
        return await self.rig.db.write(lambda tx: store_tx(tx, OWNER, [news], since="s", at=0))

    async def until(self, count: int) -> None:
        async with asyncio.timeout(10_000):
            while len(self.done) < count:
                await asyncio.sleep(0.1)

    async def close(self) -> None:
        await self.feed.close()
        await self.lanes.close(0.0)


@pytest.fixture
async def stage(tmp_path: Path) -> AsyncIterator[Fixture]:
    rig = await MailboxFixture.open(tmp_path)
    made = Fixture(rig, tmp_path)
    yield made
    await made.close()
    await rig.close()


async def test_what_memory_can_not_hold_comes_later_in_order_and_once(stage: Fixture) -> None:
    stage.pace_s = 1.0
    for start in range(0, 200, 25):
        await stage.come(*(str(number) for number in range(start, start + 25)))
        assert stage.lanes.waiting <= 21
    await stage.until(200)
    await asyncio.sleep(60)
    assert stage.done == [str(number) for number in range(200)]
    await stage.come("at last")
    await stage.until(201)


async def test_the_source_waits_while_too_many_rows_wait_in_the_store(stage: Fixture) -> None:
    stage.pace_s = 1.0
    await stage.come(*(str(number) for number in range(DEFERRED_MAX)))
    assert not stage.done, "what fits into memory or the store is taken at once"
    await stage.come(*(str(number) for number in range(DEFERRED_MAX, DEFERRED_MAX + 600)))
    assert len(stage.done) > 100
    await stage.until(DEFERRED_MAX + 600)
    await asyncio.sleep(60)
    assert stage.done == [str(number) for number in range(DEFERRED_MAX + 600)]


async def test_rows_of_earlier_lives_count_to_what_waits_in_the_store(stage: Fixture) -> None:
    stage.pace_s = 1.0
    await stage.keep(*(str(number) for number in range(DEFERRED_MAX + 1)))
    await stage.feed.take_leftovers()
    await stage.come("new")
    assert stage.done, "the new row had to wait for room"
    await stage.until(DEFERRED_MAX + 2)
    assert stage.done[-1] == "new"


async def test_what_was_released_while_no_bot_ran_is_tried_again(stage: Fixture) -> None:
    rows = await stage.keep("ill", "well")
    await stage.rig.db.write(lambda tx: stored.quarantine_tx(tx, rows[0], "ill"))
    name = quarantine.name_of(received.CHANNEL, rows[0].row_id)
    await stage.rig.db.write(lambda tx: quarantine.retry_tx(tx, name))
    again = TaskOwner("again")
    again.spawn(stage.feed.try_again(), name="again:bob")
    await stage.feed.take_leftovers()
    await asyncio.sleep(10)
    await again.close(1.0)
    assert sorted(stage.done) == ["ill", "well"]


async def test_a_stop_passes_whatever_waits(stage: Fixture) -> None:
    stage.pace_s = 10.0
    await stage.come(*(str(number) for number in range(100)))
    began = stage.rig.clock.monotonic()
    await stage.come("behind", "/stop", "after")
    async with asyncio.timeout(15):
        while "/stop" not in stage.done:
            await asyncio.sleep(0.1)
    assert stage.rig.clock.monotonic() - began < 11
    await stage.until(103)
    assert stage.done[-2:] == ["behind", "after"]
    assert stage.done.count("/stop") == 1


async def test_what_passed_is_not_found_again_in_the_store_while_it_runs(stage: Fixture) -> None:
    stage.pace_s, stage.stop_s = 1.0, 500.0
    await stage.come(*(str(number) for number in range(60)), room=OTHER)
    await stage.come("/stop")
    await stage.until(61)
    await asyncio.sleep(1_000)
    assert stage.done.count("/stop") == 1


async def test_the_next_life_takes_up_what_this_one_leaves(stage: Fixture) -> None:
    stage.pace_s = 10.0
    await stage.come(*(str(number) for number in range(60)))
    await stage.until(5)
    await stage.close()
    left = 60 - len(stage.done)
    stage.open()
    stage.pace_s = 0.0
    await stage.feed.take_leftovers()
    await stage.come("new")
    await stage.until(60 - left + left + 1)
    await asyncio.sleep(60)
    assert stage.done == [*(str(number) for number in range(60)), "new"]


@pytest.mark.parametrize("text", ["words", "/stop"])
async def test_what_feeding_has_found_is_not_taken_again_from_its_sync(
    stage: Fixture, text: str
) -> None:
    """A sync keeps its rows a moment before it hands them over; feeding may read them in it."""
    stage.pace_s = 1.0
    rows = await stage.keep(text)
    await stage.feed.take_leftovers()
    await stage.until(1)
    await asyncio.sleep(10)  # feeding has ended
    await stage.feed.take(rows)
    await asyncio.sleep(10)
    assert stage.done == [text]


@pytest.mark.parametrize("text", ["words", "/stop"])
async def test_a_sync_while_feeding_waits_for_memory_takes_nothing_again(
    stage: Fixture, text: str
) -> None:
    stage.pace_s = 1.0
    await stage.keep(*(str(number) for number in range(60)))
    rows = await stage.keep(text)
    await stage.feed.take_leftovers()
    await asyncio.sleep(0.5)
    await stage.feed.take(rows)
    await stage.until(61)
    await asyncio.sleep(60)
    assert stage.done.count(text) == 1
    assert len(stage.done) == 61


async def test_what_an_operator_lets_be_tried_again_is_handled_once_also_while_feeding(
    stage: Fixture,
) -> None:
    stage.pace_s = 1.0
    rows = await stage.keep(*(str(number) for number in range(60)))
    await stage.rig.db.write(lambda tx: stored.quarantine_tx(tx, rows[30], "ill"))
    await stage.rig.db.write(lambda tx: stored.quarantine_tx(tx, rows[50], "ill"))
    again = TaskOwner("again")
    again.spawn(stage.feed.try_again(), name="again:bob")

    async def retry(row: ReceivedRow) -> None:
        name = quarantine.name_of(received.CHANNEL, row.row_id)
        await stage.rig.db.write(lambda tx: quarantine.retry_tx(tx, name))

    # What is read already, but waits for memory, is told of a moment after feeding has found it.
    await stage.rig.db.write(
        lambda tx: tx.execute(
            "UPDATE received SET state = 'received', retry_requested = 1 WHERE row_id = ?",
            (rows[50].row_id,),
        )
    )
    await stage.feed.take_leftovers()
    await asyncio.sleep(0.5)
    await retry(rows[30])
    await stage.until(60)
    await asyncio.sleep(100)
    await again.close(1.0)
    assert sorted(stage.done, key=int) == [str(number) for number in range(60)]


async def test_what_fails_again_may_be_tried_again_as_often_as_one_likes(stage: Fixture) -> None:
    """Nothing else has to come meanwhile."""
    again = TaskOwner("again")
    again.spawn(stage.feed.try_again(), name="again:bob")
    (row,) = await stage.come("ill")
    await stage.until(1)
    name = quarantine.name_of(received.CHANNEL, row.row_id)
    for count in (2, 3, 4):
        await stage.rig.db.write(lambda tx: stored.quarantine_tx(tx, row, "ill"))
        await stage.rig.db.write(lambda tx: quarantine.retry_tx(tx, name))
        await asyncio.sleep(10)
        assert stage.done == ["ill"] * count
    await again.close(1.0)


# -- who is in a room ------------------------------------------------------------------------------


class Asked(MatrixClient):
    """Answers in turn; what is missing is Ann alone."""

    user_id = "@bot:here"

    def __init__(self, *answers: Any) -> None:
        self.answers = list(answers)
        self.asked = 0
        self.trouble: PlatformError = NotSent("no way")

    async def members(self, room_id: str) -> dict[str, Any]:
        self.asked += 1
        await asyncio.sleep(0.1)
        answer = self.answers.pop(0) if self.answers else {"@ann:here": {"display_name": "Ann"}}
        if isinstance(answer, Exception):
            raise answer
        assert isinstance(answer, dict)
        return answer

    async def event(self, room_id: str, event_id: str) -> dict[str, Any]:
        raise self.trouble


async def test_who_is_in_a_room_is_never_guessed(stage: Fixture) -> None:
    asked = Asked(NotSent("no way"), OutcomeUnknown("502"))
    rooms = RoomMembers(asked, stage.rig.clock)
    assert await rooms.get(ROOM) == Room(ROOM, {"@ann:here": "Ann"})
    assert asked.asked == 3
    await rooms.get(ROOM)
    assert asked.asked == 3, "it is remembered until somebody comes or goes"
    rooms.forget(ROOM)
    await rooms.get(ROOM)
    assert asked.asked == 4


@pytest.mark.parametrize(
    "no",
    [
        NotAllowed(403, "You are not here", "M_FORBIDDEN"),
        ChatGone(403, "User not in room", "M_FORBIDDEN"),
        ChatGone(404, "no such room", "M_NOT_FOUND"),
    ],
)
async def test_only_a_clear_no_means_that_we_are_not_in_a_room(
    stage: Fixture, no: PlatformError
) -> None:
    assert await RoomMembers(Asked(no), stage.rig.clock).get(ROOM) is None
    others = (
        RateLimited(5.0),
        OutcomeUnknown("500"),
        RequestRefused(400, "x", "M_UNKNOWN"),
        RequestRefused(404, "x", "M_UNRECOGNIZED"),
        NotAllowed(403, "x", "M_CONSENT_NOT_GIVEN"),
        TokenRefused("x"),
    )
    asked = Asked(*others)
    assert await RoomMembers(asked, stage.rig.clock).get(ROOM) is not None
    assert asked.asked == len(others) + 1


async def test_a_room_that_the_homeserver_never_tells_of_is_given_up_after_an_hour(
    stage: Fixture,
) -> None:
    began = stage.rig.clock.monotonic()
    with pytest.raises(OutcomeUnknown):
        await RoomMembers(Asked(*[OutcomeUnknown("500")] * 10_000), stage.rig.clock).get(ROOM)
    assert 3_600 <= stage.rig.clock.monotonic() - began < 3_700


async def test_while_nobody_is_there_a_room_is_waited_for(stage: Fixture) -> None:
    began = stage.rig.clock.monotonic()
    asked = Asked(*[NotSent("no way")] * 500)
    assert await RoomMembers(asked, stage.rig.clock).get(ROOM) is not None
    assert stage.rig.clock.monotonic() - began > 10_000


async def test_an_answer_older_than_a_change_does_not_count(stage: Fixture) -> None:
    asked = Asked({"@ann:here": {}}, {"@ann:here": {}, "@eve:here": {}})
    rooms = RoomMembers(asked, stage.rig.clock)
    asking = asyncio.ensure_future(rooms.get(ROOM))
    await asyncio.sleep(0.05)
    rooms.forget(ROOM)  # Eve comes while the question is under way
    now = await asking
    assert now is not None
    assert "@eve:here" in now.members


async def test_what_is_replied_to_may_be_unknown(stage: Fixture) -> None:
    rooms = RoomMembers(Asked(), stage.rig.clock)
    began = stage.rig.clock.monotonic()
    with pytest.raises(NotSent):
        await rooms.quoted(Room(ROOM), "$1", patience_s=10.0)
    assert 10 <= stage.rig.clock.monotonic() - began < 12
    gone = Asked()
    gone.trouble = ChatGone(404, "no such event", "M_NOT_FOUND")
    assert await RoomMembers(gone, stage.rig.clock).quoted(Room(ROOM), "$1") is None
