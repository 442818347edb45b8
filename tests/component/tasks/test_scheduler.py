"""The scheduler over a real store and mailbox, in virtual time: each slot once, or its skip."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from agentsup.fakes.entropy import SeededEntropy
from agentsup.mailbox.mail import DirectoryEntry
from agentsup.mailbox.messages import MailboxLimits
from agentsup.model.errors import Conflict, NotFound, StoreUnavailable
from agentsup.model.event import EventType
from agentsup.model.ids import AgentId
from agentsup.model.task import (
    Misfire,
    NewSchedule,
    NewTask,
    OccurrenceSkipReason,
    Overlap,
    Run,
    Schedule,
    SkippedOccurrence,
)
from agentsup.store import Database, EventLog, StoreOptions, Tx
from agentsup.tasks import Runs, Scheduler, occurrences, rows, schedules, skip_text
from agentsup.tasks.composing import task_from
from agentsup.tasks.starting import Starter
from tests.support.empty_store import lay_store
from tests.support.inline_runner import InlineRunner
from tests.support.mailbox_fixture import BOB, MailboxFixture, StillClock
from tests.support.task_fixture import offer_nothing

pytestmark = pytest.mark.virtual

S, M, H, D = 1000, 60_000, 3_600_000, 86_400_000


class Fixture:
    """Who exists: everybody but those who were removed."""

    def __init__(self) -> None:
        self.removed: set[str] = set()

    def lookup(self, name: str) -> DirectoryEntry:
        found = self.by_id(name)
        if found is None:
            raise NotFound(f"there is no agent {name}")
        return found

    def by_id(self, agent_id: str) -> DirectoryEntry | None:
        gone = agent_id in self.removed
        return None if gone else DirectoryEntry(AgentId(agent_id), agent_id, "running")

    def names(self) -> tuple[str, ...]:
        return ()


class Hands(Starter):
    """The real starter; ``meddle`` runs after it has started a run, inside the transaction."""

    meddle: Callable[[Tx, str], None] = staticmethod(lambda tx, task_id: None)
    can_skip = True

    def start_occurrence_tx(self, tx: Tx, task_id: str, slot_at: int) -> Run | None:
        run = super().start_occurrence_tx(tx, task_id, slot_at)
        self.meddle(tx, task_id)
        return run

    def skip_occurrence_tx(
        self, tx: Tx, task_id: str, slot_at: int, skipped: SkippedOccurrence, *, at: int
    ) -> None:
        if not self.can_skip and task_id == "bad":
            raise TypeError("planted")
        super().skip_occurrence_tx(tx, task_id, slot_at, skipped, at=at)


class World:
    """A store that can be killed and opened again, with its mailbox and a scheduler."""

    def __init__(self, path: Path, limits: MailboxLimits | None = None) -> None:
        self.path = path
        self.clock = StillClock()
        self.town = Fixture()
        self.limits = limits or MailboxLimits()
        self.mail: MailboxFixture
        self.hands: Hands
        self.told: list[str] = []

    async def _hear(self, task_id: str, why: SkippedOccurrence) -> None:
        self.told.append(f"{task_id}: {skip_text(why)}")

    def step(self, seconds: float) -> None:
        """Put the wall clock on or back, while no time passes."""
        self.clock.jump_ms(round(seconds * 1000))

    async def boot(self) -> None:
        entropy = SeededEntropy(self.clock, 3)
        runner = InlineRunner(self.path, clock=self.clock, entropy=entropy, max_delay_s=0)
        self.runner = runner
        self.db = await Database.open(
            lay_store(self.path),
            clock=self.clock,
            runner=runner,
            options=StoreOptions(reserve_bytes=0, slow_ms=10_000),
        )
        self.mail = MailboxFixture(self.db, self.clock, self.limits)
        mailbox = self.mail.mailbox
        runs = Runs(mailbox, self.db, abort=_abort_nothing)
        self.hands = Hands(runs, self.town, offer_nothing)

    async def reboot(self) -> None:
        """A new life after a kill, on what was durable."""
        with suppress(StoreUnavailable):
            await self.db.close()
        await self.boot()

    @property
    def now(self) -> int:
        return self.clock.now_ms()

    async def plan(self, task_id: str = "t1", *, agent: str = "ann", **new: Any) -> Schedule:
        """A task with a schedule."""
        schedule = occurrences.parse(NewSchedule(**new), task_id, now_ms=self.now, zone="UTC")
        task = task_from(
            NewTask("look after the garden", name=f"name of {task_id}", agent=agent),
            task_id=task_id,
            caller=BOB,
            parent=None,
            directory=self.town,
            at=self.now,
        )

        def write(tx: Tx) -> Schedule:
            rows.add_task_tx(tx, task)
            schedules.add_tx(tx, schedule)
            return schedule

        return await self.db.write(write)

    async def pause(self, is_paused: bool = True, task_id: str = "t1") -> Schedule:
        await self.db.write(
            lambda tx: schedules.pause_tx(tx, task_id, self.hands, is_paused=is_paused, at=self.now)
        )
        return await self.schedule(task_id)

    async def schedule(self, task_id: str = "t1") -> Schedule:
        found = await self.db.read(lambda reader: schedules.get(reader, task_id))
        assert found is not None
        return found

    async def slots(self, task_id: str = "t1") -> list[tuple[int, str]]:
        """Each slot on record, with why it was let pass."""
        runs = await self.db.read(lambda reader: rows.runs_of(reader, task_id, limit=10_000))
        return sorted(
            (run.slot_at or 0, skip_text(run.skipped) if run.skipped else "") for run in runs
        )

    async def ran(self, task_id: str = "t1") -> list[int]:
        return [slot for slot, why in await self.slots(task_id) if not why]

    async def finish_all(self, agent: str = "ann") -> int:
        """Whatever waits is done, as if by the agent; returns how many runs that were."""
        done = 0
        while leases := await self.mail.claim(agent):
            for lease in leases:
                await self.mail.finish(lease)
                done += 1
        return done

    @asynccontextmanager
    async def scheduler(self) -> AsyncIterator[asyncio.Task[None]]:
        """A life of the scheduler, drained at the end unless it ended."""
        ready, draining = asyncio.Event(), asyncio.Event()
        keeper = Scheduler(self.db, self.clock, self.hands, self._hear, {"no_key"})
        task = asyncio.create_task(keeper.run(ready.set, draining))
        await ready.wait()
        try:
            yield task
        finally:
            draining.set()
            await asyncio.wait({task})

    async def kill(self, task: asyncio.Task[None]) -> None:
        """The end of the process."""
        self.runner.kill()
        task.cancel()
        await asyncio.wait({task})


async def _abort_nothing(_message_id: str) -> None:
    return


@pytest_asyncio.fixture
async def world(tmp_path: Path) -> AsyncIterator[World]:
    world = World(tmp_path / "state.db")
    await world.boot()
    yield world
    with suppress(StoreUnavailable):
        await world.db.close()


# -- in time ---------------------------------------------------------------------------------------


async def test_each_slot_is_run_at_its_time(world: World) -> None:
    plan = await world.plan(every_s=90)
    async with world.scheduler():
        for _ in range(4):
            await world.clock.sleep(90)
            await world.clock.sleep(0.02)
            await world.finish_all()
    found = await world.mail.sql(
        "SELECT slot_at, created_at - slot_at, run_no FROM runs WHERE skip_reason IS NULL"
    )
    assert [slot for slot, _, _ in found] == [plan.anchor_at + n * 90 * S for n in (1, 2, 3, 4)]
    assert all(0 <= late < 10 for _, late, _ in found)
    assert [number for _, _, number in found] == [1, 2, 3, 4]
    kept = await world.schedule()
    assert (kept.last_at, kept.next_at) == (found[-1][0], found[-1][0] + 90 * S)


async def test_a_new_schedule_wakes_the_sleeper(world: World) -> None:
    await world.plan("far", every_s=20_000)
    async with world.scheduler():
        await world.clock.sleep(1)
        at = occurrences.local_time(world.now + 5 * S, "UTC")
        plan = await world.plan(at=at)
        await world.clock.sleep(5.01)
        assert await world.ran() == [plan.anchor_at]
        assert (await world.schedule()).next_at is None
        await world.clock.sleep(3600)
    assert await world.ran() == [plan.anchor_at]


async def test_nothing_is_looked_at_while_nothing_is_due(world: World) -> None:
    await world.plan(every_s=3600)
    async with world.scheduler():
        await world.clock.sleep(1)
        before, commits = world.db.stats.reads, world.db.stats.commits
        await world.clock.sleep(3000)
        assert world.db.stats.reads - before <= 101, "the net, twice a minute"
        assert world.db.stats.commits == commits


async def test_a_slot_is_skipped_while_the_run_before_it_goes_on(world: World) -> None:
    plan = await world.plan(every_s=60)
    first = plan.anchor_at + M
    async with world.scheduler():
        await world.clock.sleep(185)
        assert await world.slots() == [
            (first, ""),
            (first + M, "the run before it had not ended"),
            (first + 2 * M, "the run before it had not ended"),
        ]
        await world.finish_all()
        await world.clock.sleep(60)
        assert await world.ran() == [first, first + 3 * M]
    told = (await EventLog(world.db).page(0, types=[EventType.SLOT_SKIPPED])).events
    assert [(event.agent_id, event.data) for event in told] == [
        (
            "ann",
            {
                "task_id": "t1",
                "slot_at": first + number * M,
                "name": "name of t1",
                "why": "the run before it had not ended",
            },
        )
        for number in (1, 2)
    ]


async def test_a_slot_waits_behind_the_run_before_it(world: World) -> None:
    await world.plan(every_s=60, overlap=Overlap.QUEUE)
    async with world.scheduler():
        await world.clock.sleep(185)
        assert len(await world.ran()) == 3
        (lease,) = await world.mail.claim()  # one session: one at a time
        await world.mail.finish(lease)
        assert await world.finish_all() == 2


# -- runs that fail -------------------------------------------------------------------------------


async def fail_next(world: World, code: str) -> None:
    """The next time comes, and its run fails."""
    await world.clock.sleep(1800)
    (lease,) = await world.mail.claim()
    await world.mail.fail(lease, f"this is {code}", code=code)
    await world.clock.sleep(1800)


async def test_a_schedule_that_fails_for_want_of_something_pauses_after_three(world: World) -> None:
    await world.plan(every_s=3600)
    async with world.scheduler():
        await world.clock.sleep(1810)
        for code in ("no_key", "no_key", "other", "no_key", "no_key"):
            await fail_next(world, code)
        assert not (await world.schedule()).is_paused
        assert world.told == []
        await fail_next(world, "no_key")
        assert (await world.schedule()).is_paused
        assert world.told == ["t1: the last 3 runs failed: this is no_key"]
        await world.clock.sleep(20_000)
        assert len(await world.ran()) == 6
        await world.pause(False)
        await world.clock.sleep(100)
        assert not (await world.schedule()).is_paused, "it is tried again"
    async with world.scheduler():
        await world.clock.sleep(100)
        assert not (await world.schedule()).is_paused, "so it is in another life"
    assert len(world.told) == 1


# -- kills and times that passed -------------------------------------------------------------------


@pytest.mark.parametrize("instant", ["before the commit", "after the commit"])
async def test_a_kill_neither_loses_nor_doubles_a_slot(world: World, instant: str) -> None:
    plan = await world.plan(every_s=3600)
    slot = plan.anchor_at + H

    def kill(tx: Tx, task_id: str) -> None:
        if instant == "before the commit":
            world.runner.kill()
        else:
            tx.after_commit(world.runner.kill)

    world.hands.meddle = kill
    async with world.scheduler() as task:
        await world.clock.sleep(3601)
        assert world.runner.is_dead
        await world.kill(task)
    await world.reboot()
    assert await world.ran() == ([] if instant == "before the commit" else [slot])
    async with world.scheduler():
        await world.clock.sleep(5)
        assert await world.slots() == [(slot, "")]
        assert await world.finish_all() == 1
        await world.clock.sleep(3600)
        assert await world.slots() == [(slot, ""), (slot + H, "")]


@pytest.mark.parametrize(
    "misfire,ran,skipped",
    [
        (Misfire.ONCE, [3], [1, 2]),
        (Misfire.SKIP, [], [1, 2, 3]),
        (Misfire.ALL, [1, 2, 3], []),
    ],
)
async def test_times_that_passed_while_it_was_down(
    world: World, misfire: Misfire, ran: list[int], skipped: list[int]
) -> None:
    plan = await world.plan(every_s=3600, misfire=misfire)
    await world.clock.sleep(3 * 3600 + 600)
    async with world.scheduler():
        await world.clock.sleep(1)
        found = await world.slots()
        assert [slot for slot, why in found if not why] == [plan.anchor_at + n * H for n in ran]
        assert [slot for slot, why in found if why] == [plan.anchor_at + n * H for n in skipped]
        assert all(why.startswith("missed: ") for _, why in found if why)
        assert await world.finish_all() == len(ran)
        await world.clock.sleep(3600)
        assert (await world.ran())[-1] == plan.anchor_at + 4 * H


async def test_very_many_passed_times_are_told_as_a_range(world: World) -> None:
    plan = await world.plan(every_s=1)
    world.mail.later(30 * 86_400)
    async with world.scheduler():
        await world.clock.sleep(0.5)
        found = await world.slots()
    assert len(found) == 101
    first, why = found[0]
    assert first == plan.next_at
    assert why.endswith(f"so were all times before {occurrences.local_time(found[1][0], 'UTC')}")
    told = (await EventLog(world.db).page(0, types=[EventType.SLOT_SKIPPED])).events
    assert told[0].data["until_at"] == found[1][0]
    assert found[-1][1] == "", "the latest one is run"


async def test_a_full_queue_takes_what_it_can(tmp_path: Path) -> None:
    world = World(tmp_path / "state.db", MailboxLimits(queue_limit=4))
    await world.boot()
    await world.plan(every_s=60, misfire=Misfire.ALL)
    world.mail.later(10 * 60 + 30)
    async with world.scheduler():
        await world.clock.sleep(1)
        found = await world.slots()
        assert [bool(why) for _, why in found] == [False] * 4 + [True] * 6
        assert "full" in found[-1][1]
    await world.db.close()


# -- a clock that jumps ----------------------------------------------------------------------------


async def test_a_jump_forward_is_seen_within_the_net(world: World) -> None:
    plan = await world.plan(cron="0 * * * *")
    assert plan.next_at is not None
    async with world.scheduler():
        await world.clock.sleep(1)
        world.step(5 * 3600)
        await world.clock.sleep(31)
        assert await world.ran() == [plan.next_at + 4 * H]
        assert len(await world.slots()) == 5


async def test_after_a_jump_back_no_slot_is_run_again(world: World) -> None:
    plan = await world.plan(every_s=600)
    slot = plan.anchor_at + 600 * S
    async with world.scheduler():
        await world.clock.sleep(601)
        await world.finish_all()
        world.step(-3600)
        await world.clock.sleep(3600 + 590)
        assert await world.ran() == [slot]
        await world.clock.sleep(20)
        assert await world.ran() == [slot, slot + 600 * S]


@pytest.mark.parametrize("is_down", [False, True])
async def test_a_year_ahead_by_mistake_silences_nothing(world: World, is_down: bool) -> None:
    plan = await world.plan(cron="0 * * * *")
    assert plan.next_at is not None
    world.step(365 * 86_400)
    async with world.scheduler():
        await world.clock.sleep(1)
        await world.finish_all()
        ahead = await world.slots()
        assert len(ahead) == 101
        if not is_down:
            world.step(-365 * 86_400)
            await world.clock.sleep(7240)
            await world.finish_all()
    if is_down:
        world.step(-365 * 86_400)
        async with world.scheduler():
            await world.clock.sleep(7240)
            await world.finish_all()
    # The very first time is the one that the range of what had passed is recorded at.
    new = [pair for pair in await world.slots() if pair not in ahead]
    assert [why for _, why in new] == [""]
    assert world.now - new[0][0] < H


async def test_a_slot_that_a_wrong_clock_has_run_is_not_run_again(world: World) -> None:
    plan = await world.plan(every_s=6 * 3600)
    slot = plan.anchor_at + 6 * H
    async with world.scheduler():
        world.step(6 * 3600 + 5)
        await world.clock.sleep(31)
        assert await world.ran() == [slot]
        await world.finish_all()
        world.step(-6 * 3600)
        await world.clock.sleep(31)
        assert (await world.schedule()).next_at == slot, "found anew"
        await world.clock.sleep(6 * 3600)
        assert await world.ran() == [slot]
        await world.clock.sleep(6 * 3600)
        assert await world.ran() == [slot, slot + 6 * H]


# -- one task's trouble ----------------------------------------------------------------------------


async def test_a_removed_agent_stops_no_other(world: World) -> None:
    await world.plan("bad", agent="bob", every_s=60)
    await world.plan("good", agent="ann", every_s=60)
    world.town.removed.add("bob")
    async with world.scheduler():
        await world.clock.sleep(65)
        ((_, why),) = await world.slots("bad")
        assert "was removed" in why
        assert len(await world.ran("good")) == 1
        assert await world.mail.sql("SELECT count(*) FROM messages") == [(1,)]


async def test_of_a_run_that_is_refused_nothing_stays(world: World) -> None:
    plan = await world.plan("bad", agent="bob", every_s=60)
    await world.plan("good", agent="ann", every_s=60)

    def refuse(tx: Tx, task_id: str) -> None:
        if task_id == "bad":
            raise Conflict("it can't work now")

    world.hands.meddle = refuse
    async with world.scheduler():
        await world.clock.sleep(61)
        assert await world.slots("bad") == [(plan.anchor_at + M, "it can't work now")]
        assert await world.mail.sql("SELECT agent_id FROM messages") == [("ann",)]
        state = "SELECT state, runs FROM tasks WHERE task_id = 'bad'"
        assert await world.mail.sql(state) == [("todo", 0)]


@pytest.mark.parametrize("can_skip", [True, False])
async def test_a_mistake_over_one_task_stops_no_other(world: World, can_skip: bool) -> None:
    await world.plan("bad", agent="bob", every_s=60)
    await world.plan("good", agent="ann", every_s=60)
    world.hands.can_skip = can_skip

    def fail(tx: Tx, task_id: str) -> None:
        if task_id == "bad":
            raise TypeError("planted")

    world.hands.meddle = fail
    async with world.scheduler():
        await world.clock.sleep(61)
        await world.finish_all("ann")
        assert len(await world.ran("good")) == 1
        expected = [f"it could not be started: {TypeError.__name__}"] if can_skip else []
        assert [why for _, why in await world.slots("bad")] == expected
        await world.clock.sleep(60)
        assert len(await world.ran("good")) == 2
        if not can_skip:
            world.hands.can_skip = True
            world.hands.meddle = lambda tx, task_id: None
            await world.clock.sleep(91)
            decided = await world.slots("bad")
            assert len(decided) == len({slot for slot, _ in decided}) >= 3, "tried again later"


async def test_a_closed_store_ends_it(world: World) -> None:
    await world.plan(every_s=60)
    async with world.scheduler() as task:
        await world.db.close()
        await world.clock.sleep(61)
        assert isinstance(task.exception(), StoreUnavailable)


# -- pauses ----------------------------------------------------------------------------------------


async def test_a_paused_schedule_rests(world: World) -> None:
    plan = await world.plan(every_s=60)
    async with world.scheduler():
        await world.clock.sleep(61)
        await world.finish_all()
        paused = await world.pause()
        assert (paused.is_paused, paused.next_at) == (True, None)
        await world.clock.sleep(600)
        assert await world.ran() == [plan.anchor_at + M]
        going = await world.pause(is_paused=False)
        assert going.next_at == plan.anchor_at + 12 * M
        await world.clock.sleep(60)
        assert await world.ran() == [plan.anchor_at + M, plan.anchor_at + 12 * M]
        assert len(await world.slots()) == 2


async def test_it_goes_on_after_what_it_did_though_the_clock_went_back(world: World) -> None:
    plan = await world.plan(every_s=600)
    slot = plan.anchor_at + 600 * S
    async with world.scheduler():
        await world.clock.sleep(601)
        world.step(-900)
        await world.pause()
        assert (await world.pause(is_paused=False)).next_at == slot + 600 * S


async def test_what_had_come_before_a_pause_or_an_end_is_recorded(world: World) -> None:
    for task_id in ("t1", "t2"):
        await world.plan(task_id, every_s=60)
    await world.clock.sleep(60)
    await world.pause()
    cancelled = SkippedOccurrence(OccurrenceSkipReason.CANCELLED, {"who": "Ann"})
    await world.db.write(
        lambda tx: schedules.end_tx(tx, "t2", world.hands, cancelled, at=world.now)
    )
    assert [why for _, why in await world.slots("t1")] == ["the schedule was paused"]
    assert [why for _, why in await world.slots("t2")] == ["cancelled by Ann"]
    async with world.scheduler():
        await world.clock.sleep(600)
    assert not await world.ran("t1")
    assert not await world.ran("t2")
    assert not await world.db.write(
        lambda tx: schedules.end_tx(tx, "t2", world.hands, cancelled, at=world.now)
    )


async def test_a_pause_of_nothing_is_refused(world: World) -> None:
    with pytest.raises(NotFound):
        await world.pause(task_id="no")


# -- many, and anything ----------------------------------------------------------------------------


async def test_a_thousand_at_once(world: World) -> None:
    at = occurrences.local_time(world.now + 10 * S, "UTC")
    for number in range(1000):
        await world.plan(f"t{number}", agent=f"agent{number % 20}", at=at)
    async with world.scheduler():
        await world.clock.sleep(9)
        commits = world.db.stats.commits
        await world.clock.sleep(2)
        assert await world.mail.sql("SELECT count(*), sum(skip_reason IS NULL) FROM runs") == [
            (1000, 1000)
        ]
        assert world.db.stats.commits - commits <= 40
    ((latest,),) = await world.mail.sql("SELECT max(created_at - slot_at) FROM runs")
    assert latest < 1000


@pytest.mark.parametrize("seed", range(12))
async def test_whatever_happens_each_slot_is_run_or_recorded(world: World, seed: int) -> None:
    """Kills, jumps of the clock, pauses, and agents that finish or don't, in any order.

    The clock is wrong by less than an hour and a half, so nothing is ever found anew.
    """
    chance = random.Random(seed)
    wrong_s = 0.0
    misfire = chance.choice(list(Misfire))
    overlap = chance.choice(list(Overlap))
    new = {"every_s": 60.0} if chance.random() < 0.5 else {"cron": "*/2 * * * *"}
    plan = await world.plan(misfire=misfire, overlap=overlap, **new)
    resting: list[tuple[int, int]] = []
    paused_at: int | None = None
    for _ in range(12):
        async with world.scheduler() as task:
            for _ in range(chance.randint(1, 4)):
                await world.clock.sleep(chance.uniform(0, 200))
                match chance.randint(0, 4):
                    case 0:
                        await world.finish_all()
                    case 1:
                        before_s, wrong_s = wrong_s, chance.uniform(-5000, 5000)
                        world.step(wrong_s - before_s)
                    case 2 if paused_at is None:
                        before = (await world.pause()).last_at or 0
                        paused_at = max(before, world.now)
                    case 2:
                        next_at = (await world.pause(is_paused=False)).next_at
                        assert paused_at is not None
                        assert next_at is not None
                        resting.append((paused_at, next_at))
                        paused_at = None
            if chance.random() < 0.7:
                await world.kill(task)
        if world.runner.is_dead:
            world.mail.later(chance.uniform(0, 900))
            await world.reboot()
    end = (await world.schedule()).last_at
    assert end is not None
    decided = dict(await world.slots())
    told = (await EventLog(world.db).page(0, types=[EventType.SLOT_SKIPPED], limit=1000)).events
    assert {event.data["slot_at"] for event in told} == {at for at, why in decided.items() if why}
    spans = [(event.data["slot_at"], event.data.get("until_at", 0)) for event in told] + resting
    slot = occurrences.next_after(plan, plan.anchor_at)
    while slot is not None and slot <= end:
        is_told = any(begin < slot < until for begin, until in spans)
        assert is_told or slot in decided, (slot, spans)
        slot = occurrences.next_after(plan, slot)
    assert max(decided) == end
    holds, sums = await world.mail.mailbox.messages.conservation()
    assert holds, sums


async def test_a_single_time_that_passed_in_a_pause_is_on_record(world: World) -> None:
    plan = await world.plan(at=occurrences.local_time(world.now + M, "UTC"))
    await world.pause()
    await world.clock.sleep(120)
    assert (await world.pause(is_paused=False)).next_at is None
    assert await world.slots() == [(plan.anchor_at, "the schedule was paused")]
