"""Slots: given back while a turn waits, taken again before new work, never lost or doubled."""

import asyncio
from contextlib import suppress

import pytest

from agentsup.mailbox.slots import Slots
from agentsup.model.message import Lane

pytestmark = pytest.mark.virtual

P = Lane.PEER


def slots_of(peer: int) -> tuple[Slots, list[int]]:
    frees: list[int] = []
    slots = Slots({Lane.INTERACTIVE: 1, P: peer, Lane.BACKGROUND: 1}, lambda: frees.append(1))
    return slots, frees


async def test_a_wait_frees_the_slot_and_takes_it_again() -> None:
    slots, frees = slots_of(1)
    mine = slots.take(P)
    assert slots.free()[P] == 0
    async with mine.released():
        assert slots.free()[P] == 1
        assert frees
    assert slots.free()[P] == 0
    mine.finish()
    mine.finish()
    assert slots.free()[P] == 1


async def test_a_failed_wait_takes_the_slot_again_too() -> None:
    slots, _ = slots_of(1)
    mine = slots.take(P)
    with pytest.raises(TimeoutError):
        async with mine.released():
            raise TimeoutError
    assert slots.free()[P] == 0
    mine.finish()
    assert slots.free()[P] == 1


async def test_who_comes_back_goes_before_new_work() -> None:
    slots, _ = slots_of(1)
    first = slots.take(P)
    answered = asyncio.Event()
    back = asyncio.Event()

    async def waits() -> None:
        async with first.released():
            await answered.wait()
        back.set()

    task = asyncio.ensure_future(waits())
    await asyncio.sleep(0)
    second = slots.take(P)
    answered.set()
    await asyncio.sleep(1)
    assert not back.is_set()
    assert slots.free()[P] == 0
    second.finish()
    assert slots.free()[P] == 0, "kept for the one that comes back"
    await asyncio.sleep(0)
    assert back.is_set()
    await task
    first.finish()
    assert slots.free()[P] == 1


async def test_parallel_waits_share_one_slot() -> None:
    slots, _ = slots_of(1)
    mine = slots.take(P)

    async def wait(seconds: float) -> None:
        async with mine.released():
            await asyncio.sleep(seconds)

    await asyncio.gather(wait(1), wait(3), wait(2))
    assert slots.free()[P] == 0
    mine.finish()
    assert slots.free()[P] == 1


async def test_a_wait_begun_while_the_slot_is_being_retaken_takes_it_once() -> None:
    slots, _ = slots_of(1)
    mine = slots.take(P)

    async def wait(seconds: float) -> None:
        async with mine.released():
            await asyncio.sleep(seconds)

    first = asyncio.ensure_future(wait(1))
    await asyncio.sleep(0.5)
    other = slots.take(P)
    await asyncio.sleep(1)  # the first wait is over and queues for the slot
    again = asyncio.ensure_future(wait(1))
    await asyncio.sleep(0.5)
    other.finish()
    await asyncio.gather(first, again)
    assert slots.free()[P] == 0
    mine.finish()
    assert slots.free()[P] == 1


@pytest.mark.parametrize("moment", ["waiting", "retaking"])
async def test_a_cancelled_turn_leaves_no_slot_taken(moment: str) -> None:
    slots, _ = slots_of(1)
    mine = slots.take(P)

    async def turn() -> None:
        async with mine.released():
            await asyncio.sleep(1)

    task = asyncio.ensure_future(turn())
    await asyncio.sleep(0.5)
    other = slots.take(P)
    if moment == "retaking":
        await asyncio.sleep(1)
    task.cancel()
    with suppress(asyncio.CancelledError):
        await task
    mine.finish()
    other.finish()
    assert slots.free()[P] == 1


async def test_a_turn_left_behind_takes_no_slot_any_more() -> None:
    slots, _ = slots_of(1)
    mine = slots.take(P)

    async def turn() -> None:
        async with mine.released():
            await asyncio.sleep(1)

    task = asyncio.ensure_future(turn())
    await asyncio.sleep(0.5)
    mine.finish()
    await task
    assert slots.free()[P] == 1


async def test_resizing_live() -> None:
    slots, _ = slots_of(1)
    mine, other = slots.take(P), slots.take(P)  # a take over the limit: the limit was lowered
    assert slots.free()[P] == 0
    slots.resize({Lane.INTERACTIVE: 1, P: 4, Lane.BACKGROUND: 1})
    assert slots.free()[P] == 2
    assert slots.limit(P) == 4
    assert slots.total() == 6
    mine.finish()
    other.finish()
    assert slots.free()[P] == 4
