"""Who may write to a room, and when: answers before courtesies, a pause for one room only."""

from __future__ import annotations

import asyncio

import pytest

from agentsup.channels.core.errors import LowPriorityDropped, NotSent, RateLimited
from agentsup.channels.matrix.sender import LOW_PRIORITY_MAX, Sender
from agentsup.kit.tasks import TaskOwner
from tests.support.loop_clock import LoopClock
from tests.support.matrix_rooms import Rooms

pytestmark = pytest.mark.virtual
ROOM, OTHER = "!r:localhost", "!s:localhost"


class Fixture:
    def __init__(self) -> None:
        self.clock = LoopClock()
        self.rooms = Rooms(self.clock)
        self.sender = Sender(self.rooms, self.clock)  # type: ignore[arg-type]  # a twin of what is used
        self.sent = 0

    async def send(self, room: str = ROOM, *, droppable: bool = False) -> str:
        self.sent += 1
        return await self.sender.send(
            room, "m.room.message", {"body": "x"}, txn_id=f"t{self.sent}", droppable=droppable
        )


async def test_a_pause_holds_the_room_and_all_courtesies() -> None:
    bench = Fixture()
    bench.rooms.before["send"] = [RateLimited(10.0)]
    with pytest.raises(RateLimited):
        await bench.send()
    await bench.send(OTHER)
    with pytest.raises(RateLimited) as caught:
        await bench.send()
    assert caught.value.retry_after_s == pytest.approx(10.0)
    with pytest.raises(LowPriorityDropped):
        await bench.send(OTHER, droppable=True)
    await bench.clock.sleep(10.0)
    await bench.send()
    with pytest.raises(LowPriorityDropped):
        await bench.send(droppable=True)
    assert len(bench.rooms.times("send")) == 3, "what had to wait did not ask the server"
    await bench.clock.sleep(20.1)
    await bench.send(droppable=True)


async def test_what_a_courtesy_was_told_holds_no_answer() -> None:
    bench = Fixture()
    bench.rooms.before["send"] = [RateLimited(10.0)]
    with pytest.raises(RateLimited):
        await bench.send(droppable=True)
    assert bench.sender.pause_s(ROOM) == pytest.approx(30.0)
    await bench.send()
    with pytest.raises(LowPriorityDropped):
        await bench.sender.typing(ROOM, True, 1_000)
    with pytest.raises(LowPriorityDropped):
        await bench.sender.redact(ROOM, "$e1", txn_id="x", droppable=True)


async def test_courtesies_that_hang_leave_room_for_answers() -> None:
    bench = Fixture()
    never = asyncio.Event()
    bench.rooms.before["typing"] = [never.wait] * 99
    owner = TaskOwner("test")
    for number in range(LOW_PRIORITY_MAX):
        owner.spawn(bench.sender.typing(f"!{number}:localhost", True, 1_000), name="typing")
    await bench.clock.sleep(0.1)
    with pytest.raises(LowPriorityDropped):
        await bench.send(droppable=True)
    await bench.send()
    await owner.close(1.0)
    await bench.send(droppable=True)


async def test_after_the_end_nothing_goes() -> None:
    bench = Fixture()
    await bench.sender.close()
    with pytest.raises(NotSent):
        await bench.send()
    assert bench.rooms.calls == []
