"""Order within a chat, no waiting between chats, and bounds; in virtual time."""

from __future__ import annotations

import asyncio

import pytest

from agentsup.channels.telegram.event import Event, EventKind
from agentsup.channels.telegram.lanes import Item, Lane, Lanes
from agentsup.channels.telegram.updates import Row

pytestmark = pytest.mark.virtual


def item(chat_id: int, number: int) -> Item:
    event = Event(number, EventKind.MESSAGE, chat_id=chat_id, text=str(number))
    return Item(Row(number, 0, number, ""), event)


class Work:
    """Takes ``seconds[chat]`` for each item, and notes what happened."""

    def __init__(self, seconds: dict[int, float] | None = None, *, is_slow: bool = False) -> None:
        self.seconds = seconds or {}
        self.is_slow = is_slow
        self.done: list[tuple[int, int]] = []
        self.at_once = self.most = 0

    async def handle(self, item: Item, lane: Lane) -> None:
        assert item.event is not None
        chat_id = item.event.chat_id or 0
        self.at_once += 1
        self.most = max(self.most, self.at_once)
        lane.is_slow = self.is_slow
        await asyncio.sleep(self.seconds.get(chat_id, 0.0))
        lane.is_slow = False
        self.at_once -= 1
        self.done.append((chat_id, item.row.row_id))


async def test_a_slow_chat_keeps_its_order_and_holds_up_no_other() -> None:
    work = Work({1: 5.0})
    lanes = Lanes(work.handle, name="t", at_once=4, backlog=100)
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
    lanes = Lanes(work.handle, name="t", at_once=3, backlog=100)
    for chat_id in range(1, 9):
        await lanes.put(chat_id, item(chat_id, chat_id))
    await asyncio.sleep(10)
    assert len(work.done) == 8
    assert work.most == 3
    await lanes.close(1.0)


async def test_a_full_memory_holds_up_the_giver() -> None:
    work = Work({1: 1.0})
    lanes = Lanes(work.handle, name="t", at_once=1, backlog=2)
    loop = asyncio.get_running_loop()
    began_at = loop.time()
    for number in range(5):
        await lanes.put(1, item(1, number))
        assert lanes.waiting <= 2
    assert loop.time() - began_at >= 2.0
    await asyncio.sleep(10)
    assert [number for _, number in work.done] == list(range(5))
    await lanes.close(1.0)


async def test_what_must_not_wait_passes_what_is_slow_only() -> None:
    work = Work({1: 5.0}, is_slow=True)
    lanes = Lanes(work.handle, name="t", at_once=4, backlog=100)
    await lanes.put(1, item(1, 0))
    await lanes.put(1, item(1, 1))
    await asyncio.sleep(0.1)
    work.seconds[1] = 0.0
    await lanes.put(1, item(1, 2), may_pass=True)
    await asyncio.sleep(0.1)
    assert work.done == [(1, 2)]
    await asyncio.sleep(10)
    assert work.done == [(1, 2), (1, 0), (1, 1)]
    quick = Work({1: 5.0})
    ordered = Lanes(quick.handle, name="t", at_once=4, backlog=100)
    await ordered.put(1, item(1, 0))
    await ordered.put(1, item(1, 1), may_pass=True)
    await asyncio.sleep(20)
    assert quick.done == [(1, 0), (1, 1)]
    await lanes.close(1.0)
    await ordered.close(1.0)


async def test_an_end_lets_what_is_under_way_end_and_begins_nothing() -> None:
    work = Work({1: 2.0})
    lanes = Lanes(work.handle, name="t", at_once=4, backlog=100)
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

    def is_even(other: Item) -> bool:
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
