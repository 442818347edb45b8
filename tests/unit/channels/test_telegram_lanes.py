"""Order within a chat, no waiting between chats, and bounds; in virtual time."""

from __future__ import annotations

import asyncio
from contextlib import suppress

import pytest

from agentsup.channels.core.receiving import messages
from agentsup.channels.core.receiving.lanes import ChatLanes
from agentsup.channels.core.receiving.rows import ReceivedRow
from agentsup.channels.telegram.event import UpdateEvent, UpdateKind
from agentsup.channels.telegram.messages import Lane, ReceivedItem
from agentsup.channels.telegram.received import row_owner

pytestmark = pytest.mark.virtual


def item(chat_id: int, number: int) -> ReceivedItem:
    event = UpdateEvent(number, UpdateKind.MESSAGE, chat_id=chat_id, text=str(number))
    return messages.ReceivedItem(
        ReceivedRow(number, row_owner("1"), str(chat_id), str(number), ""), event
    )


class Work:
    """Takes ``seconds[chat]`` for each item, and notes what happened."""

    def __init__(self, seconds: dict[int, float] | None = None) -> None:
        self.seconds = seconds or {}
        self.done: list[tuple[int, int]] = []
        self.at_once = self.most = 0

    async def handle(self, item: ReceivedItem, lane: Lane) -> None:
        del lane
        assert item.event is not None
        chat_id = item.event.chat_id or 0
        self.at_once += 1
        self.most = max(self.most, self.at_once)
        await asyncio.sleep(self.seconds.get(chat_id, 0.0))
        self.at_once -= 1
        self.done.append((chat_id, item.row.row_id))


async def test_a_slow_chat_keeps_its_order_and_holds_up_no_other() -> None:
    work = Work({1: 5.0})
    lanes: ChatLanes[ReceivedItem] = ChatLanes(work.handle, name="t", at_once=4, backlog=100)
    for number in range(3):
        await lanes.put(1, item(1, number))
        await lanes.put(2, item(2, number))
    await asyncio.sleep(1)
    assert work.done == [(2, 0), (2, 1), (2, 2)]
    await asyncio.sleep(20)
    assert [number for chat, number in work.done if chat == 1] == [0, 1, 2]
    assert lanes.waiting == 0
    await lanes.close(1.0)


async def test_no_more_chats_than_allowed_are_worked_on_at_once() -> None:
    work = Work(dict.fromkeys(range(1, 9), 1.0))
    lanes: ChatLanes[ReceivedItem] = ChatLanes(work.handle, name="t", at_once=3, backlog=100)
    for chat_id in range(1, 9):
        await lanes.put(chat_id, item(chat_id, chat_id))
    await asyncio.sleep(10)
    assert len(work.done) == 8
    assert work.most == 3
    await lanes.close(1.0)


async def test_a_full_memory_holds_up_the_giver() -> None:
    work = Work({1: 1.0})
    lanes: ChatLanes[ReceivedItem] = ChatLanes(work.handle, name="t", at_once=1, backlog=2)
    loop = asyncio.get_running_loop()
    began_at = loop.time()
    for number in range(5):
        await lanes.put(1, item(1, number))
        assert lanes.waiting <= 2
    assert loop.time() - began_at >= 2.0
    await asyncio.sleep(10)
    assert [number for _, number in work.done] == list(range(5))
    await lanes.close(1.0)


async def test_what_must_not_wait_passes_what_waits_in_its_chat() -> None:
    work = Work({1: 5.0})
    lanes: ChatLanes[ReceivedItem] = ChatLanes(work.handle, name="t", at_once=4, backlog=100)
    await lanes.put(1, item(1, 0))
    await lanes.put(1, item(1, 1))
    await asyncio.sleep(0.1)
    work.seconds[1] = 0.0
    assert lanes.pass_by(1, item(1, 2))
    await asyncio.sleep(0.1)
    assert work.done == [(1, 2)]
    await asyncio.sleep(10)
    assert work.done == [(1, 2), (1, 0), (1, 1)]
    await lanes.close(1.0)


async def test_what_passes_waits_for_no_place_and_no_memory() -> None:
    work = Work({1: 50.0, 2: 50.0})
    lanes: ChatLanes[ReceivedItem] = ChatLanes(work.handle, name="t", at_once=2, backlog=1)
    for chat_id in (1, 2, 3):
        await lanes.put(chat_id, item(chat_id, 0))
        await asyncio.sleep(0)
    assert lanes.is_full
    async with asyncio.timeout(1):
        assert lanes.pass_by(4, item(4, 0), "stop")
        await asyncio.sleep(0.1)
    assert work.done == [(4, 0)]
    await lanes.close(1.0)


async def test_what_comes_after_what_passes_waits_for_it() -> None:
    work = Work({1: 5.0})
    lanes: ChatLanes[ReceivedItem] = ChatLanes(work.handle, name="t", at_once=4, backlog=100)
    assert lanes.pass_by(1, item(1, 0))
    await lanes.put(1, item(1, 1))
    await lanes.put(2, item(2, 2))
    await asyncio.sleep(1)
    assert work.done == [(2, 2)]
    await asyncio.sleep(20)
    assert work.done == [(2, 2), (1, 0), (1, 1)]
    await lanes.close(1.0)


async def test_what_passes_in_one_queue_keeps_its_order_and_is_one_task() -> None:
    work = Work({1: 0.1})
    lanes: ChatLanes[ReceivedItem] = ChatLanes(work.handle, name="t", at_once=4, backlog=100)
    before = len(asyncio.all_tasks())
    for number in range(50):
        assert lanes.pass_by(1, item(1, number), "press")
    assert lanes.pass_by(1, item(1, 99), "stop")
    await asyncio.sleep(0.15)
    assert len(asyncio.all_tasks()) - before <= 2
    assert (1, 99) in work.done
    await asyncio.sleep(20)
    assert [number for _, number in work.done if number != 99] == list(range(50))
    await lanes.close(1.0)


async def test_no_more_pass_than_are_borne_and_the_others_wait_their_turn() -> None:
    work = Work({1: 0.1})
    lanes: ChatLanes[ReceivedItem] = ChatLanes(work.handle, name="t", at_once=4, backlog=1000)
    passed = [lanes.pass_by(1, item(1, number)) for number in range(200)]
    assert passed.count(True) == 64
    assert passed.index(False) == 64
    await asyncio.sleep(60)
    assert len(work.done) == 64
    await lanes.close(1.0)


async def test_who_is_away_gives_the_place_to_another_chat() -> None:
    done: list[int] = []

    async def handle(item: ReceivedItem, lane: Lane) -> None:
        if item.row.row_id == 1:
            async with lane.away():
                await asyncio.sleep(5.0)
        done.append(item.row.row_id)

    lanes: ChatLanes[ReceivedItem] = ChatLanes(handle, name="t", at_once=1, backlog=100)
    await lanes.put(1, item(1, 1))
    await lanes.put(2, item(2, 2))
    await lanes.put(1, item(1, 3))
    await asyncio.sleep(1)
    assert done == [2]
    await asyncio.sleep(10)
    assert done == [2, 1, 3]
    assert await lanes.close(1.0) == []


async def test_who_fails_while_away_has_the_place_again() -> None:
    at_once, most = 0, 0

    async def handle(item: ReceivedItem, lane: Lane) -> None:
        nonlocal at_once, most
        if item.row.row_id == 1:
            with suppress(OSError):
                async with lane.away():
                    await asyncio.sleep(1.0)
                    raise OSError
        at_once += 1
        most = max(most, at_once)
        await asyncio.sleep(5.0)
        at_once -= 1

    lanes: ChatLanes[ReceivedItem] = ChatLanes(handle, name="t", at_once=1, backlog=100)
    await lanes.put(1, item(1, 1))
    await lanes.put(2, item(2, 2))
    await asyncio.sleep(20)
    assert (at_once, most) == (0, 1)
    assert await lanes.close(1.0) == []


async def test_an_end_lets_what_is_under_way_end_and_begins_nothing() -> None:
    work = Work({1: 2.0})
    lanes: ChatLanes[ReceivedItem] = ChatLanes(work.handle, name="t", at_once=4, backlog=100)
    await lanes.put(1, item(1, 0))
    await lanes.put(1, item(1, 1))
    await asyncio.sleep(0.1)
    assert await lanes.close(5.0) == []
    assert work.done == [(1, 0)]
    await lanes.put(1, item(1, 2))
    await asyncio.sleep(5)
    assert work.done == [(1, 0)]


async def test_the_next_of_a_kind_is_taken_or_waited_for() -> None:
    lane = Lane()
    lane.items.append(item(1, 1))

    def is_even(other: ReceivedItem) -> bool:
        return other.row.row_id % 2 == 0

    assert await lane.next_like(is_even, 1.0) is None
    lane.items.appendleft(item(1, 2))
    taken = await lane.next_like(is_even, 1.0)
    assert taken is not None
    assert taken.row.row_id == 2
    lane.give_back()
    assert [other.row.row_id for other in lane.items] == [2, 1]
    lane.items.clear()
    assert await lane.next_like(is_even, 1.0) is None
