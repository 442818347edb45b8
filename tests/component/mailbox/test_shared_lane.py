"""Slots that all agents have together: never one too many, and no wake is lost on the way to whoever
can use one."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest

from agentsup.kit.tasks import TaskOwner
from agentsup.mailbox.work import SharedSlots, Work
from agentsup.mailbox.work.pump import NET_S, Pump
from agentsup.model.ids import AgentId, InstanceId
from agentsup.model.message import LaneName, MessageKind
from tests.support.mailbox_fixture import MailboxFixture

pytestmark = pytest.mark.virtual

B = LaneName.BACKGROUND
SOON_S = 1.0
"""Far below the time after which a lost wake would be noticed."""


class Agent:
    """One agent's pump; a message says in seconds how long its turn takes, or ``wait:A:B:C``: it works,
    waits for others without a slot, and works again."""

    def __init__(self, town: Fixture, name: str) -> None:
        self.town = town
        self.name = name
        self.draining = asyncio.Event()
        self.begun: list[str] = []
        self.done: list[str] = []
        self.pump = Pump(
            mailbox=town.rig.mailbox,
            agent_id=AgentId(name),
            instance_id=InstanceId(f"i-{name}"),
            slots={LaneName.INTERACTIVE: 1, LaneName.PEER: 1, B: 2},
            handler=self,
            shared={B: town.shared},
        )
        self.life = town.tasks.spawn(
            self.pump.run(lambda: None, self.draining), name=f"pump:{name}"
        )

    async def put(self, text: str, lane: LaneName = B) -> None:
        await self.town.rig.put(
            text,
            agent=self.name,
            kind=MessageKind.TASK,
            lane=lane,
            conversation=f"{text}-{len(self.begun)}",
        )

    async def handle(self, work: Work) -> None:
        text, town = work.lease.message.text, self.town
        is_counted = work.lease.message.lane is B
        self.begun.append(text)
        kind, *times = text.split(":")
        if kind == "crash":
            raise RuntimeError("boom")
        if kind != "wait":
            times = [kind]
        with town.counted(is_counted):
            await asyncio.sleep(float(times[0]))
        if kind == "wait":
            async with work.slot.released():
                await asyncio.sleep(float(times[1]))
            with town.counted(is_counted):
                await asyncio.sleep(float(times[2]))
        await town.rig.end_turn(work)
        self.done.append(text)


class _Counted:
    def __init__(self, town: Fixture, is_counted: bool) -> None:
        self._town, self._is_counted = town, is_counted

    def __enter__(self) -> None:
        self._town.running += self._is_counted
        self._town.most = max(self._town.most, self._town.running)

    def __exit__(self, *_: object) -> None:
        self._town.running -= self._is_counted


class Fixture:
    """Several pumps over one mailbox, and the slots that they share."""

    def __init__(self, rig: MailboxFixture) -> None:
        self.rig = rig
        self.tasks = TaskOwner("town", on_error=lambda task, error: None)
        self.limit = 1
        self.shared = SharedSlots(lambda: self.limit)
        self.agents: list[Agent] = []
        self.running = 0
        self.most = 0

    def counted(self, is_counted: bool) -> _Counted:
        """Inside the block a background turn works, if it is one."""
        return _Counted(self, is_counted)

    def __call__(self, *names: str) -> list[Agent]:
        made = [Agent(self, name) for name in names]
        self.agents += made
        return made

    async def close(self) -> None:
        for agent in self.agents:
            agent.draining.set()
        await asyncio.sleep(300)
        await self.tasks.close(5)
        assert self.shared._used == 0
        assert sum(agent.pump.stats.lost_wakes for agent in self.agents) == 0
        await self.rig.check()
        await self.rig.close()


@pytest.fixture
async def town(tmp_path: Path) -> AsyncIterator[Fixture]:
    town = Fixture(await MailboxFixture.open(tmp_path))
    yield town
    await town.close()


async def soon(is_so: Callable[[], object], within_s: float = SOON_S) -> None:
    async with asyncio.timeout(within_s):
        while not is_so():
            await asyncio.sleep(0.01)


async def test_two_agents_and_one_slot_take_turns(town: Fixture) -> None:
    ann, ben = town("ann", "ben")
    for number in range(10):
        await ann.put(f"1.{number}1")
        await ben.put(f"1.{number}2")
    for second in range(40):
        await asyncio.sleep(1)
        assert abs(len(ann.done) - len(ben.done)) <= 2, second
    assert (len(ann.done), len(ben.done), town.most) == (10, 10, 1)


async def test_a_raised_limit_is_used_at_once_and_a_lowered_one_from_the_next_on(
    town: Fixture,
) -> None:
    ann, ben, cat = town("ann", "ben", "cat")
    await ann.put("50")
    await soon(lambda: ann.begun)
    for other in (ben, cat):
        await other.put("20")
        await other.put("21")
    await asyncio.sleep(5)
    assert not ben.begun + cat.begun
    town.limit = 3
    town.shared.resized()
    await soon(lambda: town.running == 3)
    town.limit = 1
    town.shared.resized()
    await asyncio.sleep(30)
    assert (town.running, len(ben.done + cat.done)) == (1, 2), "nothing is begun over the limit"
    await soon(lambda: len(ben.done + cat.done) == 4, 2 * NET_S)


@pytest.mark.parametrize("when", ["before", "with", "after"])
async def test_one_that_ends_while_woken_wakes_the_next(town: Fixture, when: str) -> None:
    ann, ben, cat = town("ann", "ben", "cat")
    await ann.put("10")
    await soon(lambda: ann.begun)
    await ben.put("5")
    await asyncio.sleep(1)
    await cat.put("6")
    await asyncio.sleep(1)
    if when == "before":
        ben.draining.set()
    await soon(lambda: ann.done, 20)
    if when == "with":
        ben.draining.set()
    elif when == "after":
        ben.life.cancel()
    await soon(lambda: cat.begun, SOON_S if when != "with" else 7)


async def test_one_that_drains_for_long_passes_on_what_it_can_not_use(town: Fixture) -> None:
    ann, ben, cat = town("ann", "ben", "cat")
    await ann.put("10")
    await soon(lambda: ann.begun)
    await ben.put("90", LaneName.INTERACTIVE)
    await ben.put("5")
    await asyncio.sleep(1)
    await cat.put("6")
    await asyncio.sleep(1)
    ben.draining.set()
    await soon(lambda: ann.done, 20)
    await soon(lambda: cat.begun)
    assert ben.begun == ["90"]


async def test_a_turn_comes_back_though_its_agent_has_no_slot_for_anything_new(
    town: Fixture,
) -> None:
    ann, ben, cat = town("ann", "ben", "cat")
    await ben.put("wait:1:5:1")
    await soon(lambda: ben.begun)
    await ben.put("90", LaneName.INTERACTIVE)
    await ben.put("91", LaneName.PEER)
    await ann.put("20")
    await soon(lambda: ann.begun, 3)
    await cat.put("6")
    await soon(lambda: ann.done, 30)
    await soon(lambda: ben.done and cat.done, 10)
    assert town.most == 1


async def test_new_work_begins_beside_a_turn_that_came_back(town: Fixture) -> None:
    ann, ben, cat = town("ann", "ben", "cat")
    town.limit = 2
    await ben.put("wait:1:5:30")
    await soon(lambda: ben.begun)
    await ann.put("20")
    await cat.put("20")
    await soon(lambda: town.running == 2, 3)
    await ben.put("31")
    await soon(lambda: ann.done and cat.done, 30)
    await soon(lambda: "31" in ben.begun)
    assert town.most == 2


async def test_a_turn_that_was_to_come_back_and_is_stopped_leaves_its_place(town: Fixture) -> None:
    ann, ben = town("ann", "ben")
    await ben.put("wait:1:5:1")
    await soon(lambda: ben.begun)
    await ann.put("20")
    await soon(lambda: ann.begun, 3)
    await asyncio.sleep(10)
    await ben.put("7")
    await ben.pump.abort(lambda message: message.text.startswith("wait"), cancel_s=1)
    await soon(lambda: ann.done, 20)
    await soon(lambda: "7" in ben.begun)


async def test_the_slots_of_one_that_crashes_are_the_others(town: Fixture) -> None:
    ann, ben = town("ann", "ben")
    town.limit = 2
    await ann.put("50")
    await soon(lambda: ann.begun)
    await ben.put("8")
    await ben.put("9")
    await soon(lambda: ben.begun)
    await ann.put("crash", LaneName.INTERACTIVE)
    await soon(ann.life.done, 10)
    await soon(lambda: len(ben.begun) == 2)


@pytest.mark.parametrize("seed", range(12))
async def test_any_work_ends_in_time_and_never_over_the_limit(town: Fixture, seed: int) -> None:
    chance = random.Random(seed)
    names = ("ann", "ben", "cat", "dan")[: chance.randint(2, 4)]
    agents = town(*names)
    town.limit = limit = chance.randint(1, 3)
    works = 0.0
    for number in range(40):
        parts = [f"{chance.uniform(0.1, 3):.3f}" for _ in range(3)]
        text = ":".join(["wait", *parts]) if chance.random() < 0.5 else parts[0]
        works += float(parts[0]) + (float(parts[2]) if ":" in text else 0.0)
        lane = chance.choice([B, B, B, LaneName.INTERACTIVE, LaneName.PEER])
        await chance.choice(agents).put(f"{text}{number:02}", lane)
        await asyncio.sleep(chance.choice([0, 0, 0.5]))
    await soon(lambda: sum(len(agent.done) for agent in agents) == 40, works + 60)
    assert town.most <= limit
