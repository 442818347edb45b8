"""Slots: given back while a turn waits, taken again before new work, never lost or doubled."""

from __future__ import annotations

import asyncio
from contextlib import suppress

import pytest

from agentsup.mailbox.work.slots import SharedSlots, SlotPool
from agentsup.model.message import LaneName

pytestmark = pytest.mark.virtual

P = LaneName.PEER


def slots_of(peer: int) -> tuple[SlotPool, list[int]]:
    frees: list[int] = []
    slots = SlotPool(
        {LaneName.INTERACTIVE: 1, P: peer, LaneName.BACKGROUND: 1}, lambda: frees.append(1)
    )
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
    slots.resize({LaneName.INTERACTIVE: 1, P: 4, LaneName.BACKGROUND: 1})
    assert slots.free()[P] == 2
    assert slots._limits[P] == 4
    assert sum(slots._limits.values()) == 6
    mine.finish()
    other.finish()
    assert slots.free()[P] == 4


# -- slots that several agents share ---------------------------------------------------------------


def test_a_shared_slot_is_kept_for_the_next_turn_unless_another_agent_waits() -> None:
    limit = 1
    shared = SharedSlots(lambda: limit)

    def wake_ann() -> None: ...

    def wake_ben() -> None: ...

    shared.take(reserved=False)
    assert shared.may_pass_on(wake_ann)
    shared.want(wake_ann)
    assert shared.may_pass_on(wake_ann), "she has more to do herself"
    shared.want(wake_ben)
    assert not shared.may_pass_on(wake_ann)
    shared.remove_waker(wake_ben)
    limit = 0
    assert not shared.may_pass_on(wake_ann), "the limit was lowered"


async def test_a_wait_gives_both_slots_back_and_takes_both_again() -> None:
    shared = SharedSlots(lambda: 1)
    limits = dict.fromkeys(LaneName, 2)
    mine, others = (SlotPool(limits, lambda: None, {P: shared}) for _ in range(2))
    assert (mine.free()[P], others.free()[P]) == (1, 1)
    turn = mine.take(P)
    assert (mine.free()[P], others.free()[P]) == (0, 0)
    assert others.free()[LaneName.INTERACTIVE] == 2, "only that lane is shared"
    async with turn.released():
        assert (mine.free()[P], others.free()[P]) == (1, 1)
    assert (shared._used, others.free()[P]) == (1, 0)
    turn.finish()
    assert shared._used == 0
