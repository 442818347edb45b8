"""The pump in virtual time: no lease stays held, no slot is lost, no wake is missed."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from agentsup.kit.tasks import TaskOwner
from agentsup.mailbox.mailbox import Completion
from agentsup.mailbox.pump import CANCEL_S, NET_S, Pump, Work
from agentsup.model.errors import ExitRequested, StoreUnavailable
from agentsup.model.ids import AgentId, InstanceId
from agentsup.model.message import LEASE_RENEW_S, Lane, Outcome
from agentsup.model.principal import OPERATOR
from agentsup.testing.mail import MailRig

pytestmark = pytest.mark.virtual

Behave = Callable[["Bench", Work], Awaitable[None]]


class Bench:
    """One pump over a real mailbox; what a turn does is named by its message's text."""

    def __init__(self, rig: MailRig) -> None:
        self.rig = rig
        self.tasks = TaskOwner("bench")
        self.acts: dict[str, Behave] = {}
        self.handled: list[str] = []
        self.draining = asyncio.Event()
        self.instances = 0

    def begin(self, interactive: int = 2, exit_drain_s: float = 30.0) -> asyncio.Task[None]:
        self.instances += 1
        self.draining = asyncio.Event()
        self.pump = Pump(
            mailbox=self.rig.mailbox,
            database=self.rig.db,
            clock=self.rig.clock,
            agent_id=AgentId("ann"),
            instance_id=InstanceId(f"i{self.instances}"),
            slots={Lane.INTERACTIVE: interactive, Lane.PEER: 1, Lane.BACKGROUND: 1},
            handler=self,
            exit_drain_s=exit_drain_s,
        )
        return self.tasks.spawn(
            self.pump.run(lambda: None, self.draining), name=f"pump:{self.instances}"
        )

    async def handle(self, work: Work) -> None:
        text = work.lease.message.text
        self.handled.append(text)
        act = self.acts.get(text)
        if act is not None:
            await act(self, work)
        await self.finish(work)

    async def finish(self, work: Work) -> None:
        await self.rig.mailbox.complete(work.lease, Completion(Outcome.OK, "done"))

    async def put(self, text: str, conversation: str = "") -> str:
        accepted = await self.rig.put(text, conversation=conversation or text)
        return str(accepted.message_id)

    async def row(self, message_id: str) -> tuple[object, ...]:
        ((*row,),) = await self.rig.sql(
            "SELECT state, attempts, crashes FROM messages WHERE message_id = ?", message_id
        )
        return tuple(row)

    async def done(self, *message_ids: str) -> None:
        for message_id in message_ids:
            await self.rig.mailbox.wait_done(message_id, 600)

    def all_slots_are_free(self) -> bool:
        free = self.pump.slots.free()
        return all(free[lane] == self.pump.slots.limit(lane) for lane in Lane)


async def sleeps(bench: Bench, work: Work) -> None:
    await asyncio.sleep(10)


async def crashes(bench: Bench, work: Work) -> None:
    raise RuntimeError("boom")


async def ignores(bench: Bench, work: Work) -> None:
    for _ in range(200):
        try:
            await asyncio.sleep(1)
        except asyncio.CancelledError:
            continue


@pytest.fixture
async def bench(tmp_path: Path) -> AsyncIterator[Bench]:
    rig = await MailRig.open(tmp_path)
    bench = Bench(rig)
    yield bench
    bench.draining.set()
    await asyncio.sleep(200)
    await bench.tasks.close(5)
    await rig.check()
    await rig.close()


async def test_work_is_done_as_it_comes(bench: Bench) -> None:
    bench.begin()
    ids = [await bench.put(f"m{n}") for n in range(20)]
    await bench.done(*ids)
    await asyncio.sleep(1)
    assert bench.all_slots_are_free()
    assert bench.pump.stats.finished == 20
    await asyncio.sleep(10 * NET_S)
    assert bench.pump.stats.lost_wakes == 0


async def test_a_drain_waits_for_turns_and_begins_none(bench: Bench) -> None:
    bench.acts["slow"] = sleeps
    task = bench.begin(interactive=1)
    slow = await bench.put("slow")
    await asyncio.sleep(1)
    later = await bench.put("later")
    bench.draining.set()
    await asyncio.wait({task}, timeout=60)
    assert task.done()
    assert task.exception() is None
    assert (await bench.row(slow))[0] == "done"
    assert await bench.row(later) == ("queued", 0, 0)
    assert bench.all_slots_are_free()


async def test_a_cancelled_pump_gives_everything_back(bench: Bench) -> None:
    bench.acts["slow"] = sleeps
    task = bench.begin()
    slow = await bench.put("slow")
    await asyncio.sleep(1)
    task.cancel()
    await asyncio.wait({task}, timeout=60)
    assert await bench.row(slow) == ("queued", 0, 0)


async def test_a_claim_under_way_when_the_pump_ends_is_given_back(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Cancelling a write doesn't undo it: the lease exists though no turn ever had it."""
    claim = bench.rig.mailbox.claim

    async def committed_not_returned(*args: Any, **more: Any) -> Any:
        leases = await claim(*args, **more)
        await asyncio.sleep(100 if leases else 0)
        return leases

    monkeypatch.setattr(bench.rig.mailbox, "claim", committed_not_returned)
    message = await bench.put("m")
    task = bench.begin()
    await asyncio.sleep(1)
    assert (await bench.row(message))[0] == "leased"
    task.cancel()
    await asyncio.wait({task}, timeout=10)
    assert await bench.row(message) == ("queued", 0, 0)
    assert bench.handled == []


async def test_a_session_opens_only_when_its_cancelled_turn_has_ended(bench: Bench) -> None:
    """The row is free with the commit; the turn may still act until it has really ended."""
    order: list[str] = []

    async def slow_to_end(bench: Bench, work: Work) -> None:
        try:
            await asyncio.sleep(1000)
        except asyncio.CancelledError:
            await asyncio.sleep(2)
            order.append("ended")
            raise

    async def follows(bench: Bench, work: Work) -> None:
        order.append("next")

    bench.acts |= {"first": slow_to_end, "second": follows}
    bench.begin()
    first = await bench.put("first", "same")
    await asyncio.sleep(1)
    second = await bench.put("second", "same")
    await bench.rig.mailbox.cancel(first, by=OPERATOR)
    await bench.pump.abort(lambda message: message.message_id == first, cancel_s=3)
    await bench.done(second)
    assert order == ["ended", "next"]


async def test_a_crash_names_its_culprit_once_and_spares_the_innocent(bench: Bench) -> None:
    bench.acts |= {"slow": sleeps, "bad": crashes}
    task = bench.begin()
    slow, bad = await bench.put("slow"), ""
    await asyncio.sleep(1)
    bad = await bench.put("bad")
    await asyncio.wait({task}, timeout=60)
    assert isinstance(task.exception(), RuntimeError)
    assert await bench.row(bad) == ("queued", 1, 1)
    assert await bench.row(slow) == ("queued", 0, 0)
    second = bench.begin()
    await asyncio.wait({second}, timeout=60)
    assert (await bench.row(bad))[0] == "dead"
    bench.begin()
    await bench.done(slow)
    assert (await bench.row(slow))[2] == 0


async def test_two_culprits_are_both_named(bench: Bench) -> None:
    started = asyncio.Event()

    async def crashes_when_cancelled(bench: Bench, work: Work) -> None:
        started.set()
        try:
            await asyncio.sleep(100)
        except asyncio.CancelledError:
            raise RuntimeError("it broke when it was cancelled") from None

    bench.acts |= {"bad": crashes, "worse": crashes_when_cancelled}
    task = bench.begin()
    worse = await bench.put("worse")
    await started.wait()
    bad = await bench.put("bad")
    await asyncio.wait({task}, timeout=60)
    assert (await bench.row(bad))[2] == 1
    assert (await bench.row(worse))[2] == 1


async def test_a_turn_whose_end_could_not_be_written_is_no_crash(bench: Bench) -> None:
    """Its lease is held by an ended task when another turn crashes: still innocent."""
    failed = asyncio.Event()

    async def disk_full(bench: Bench, work: Work) -> None:
        failed.set()
        raise StoreUnavailable("the disk is full")

    async def crashes_after(bench: Bench, work: Work) -> None:
        await failed.wait()
        raise RuntimeError("boom")

    bench.acts |= {"full": disk_full, "bad": crashes_after}
    task = bench.begin()
    full, bad = await bench.put("full"), await bench.put("bad")
    await asyncio.wait({task}, timeout=60)
    assert (await bench.row(bad))[2] == 1
    assert (await bench.row(full))[2] == 0
    assert (await bench.row(full))[0] == "queued"


async def test_a_turn_whose_end_could_not_be_written_is_tried_again_soon(bench: Bench) -> None:
    seen: list[int] = []

    async def full_once(bench: Bench, work: Work) -> None:
        seen.append(work.lease.message.attempts)
        if len(seen) == 1:
            raise StoreUnavailable("the disk is full")

    bench.acts["full"] = full_once
    bench.begin()
    began = bench.rig.clock.monotonic()
    await bench.done(await bench.put("full"))
    assert seen == [1, 2]
    assert bench.rig.clock.monotonic() - began < 10


async def test_an_exit_lets_the_other_turns_finish_first(bench: Bench) -> None:
    async def exits(bench: Bench, work: Work) -> None:
        await bench.finish(work)
        raise ExitRequested(42, "asked for")

    bench.acts |= {"slow": sleeps, "exit": exits}
    task = bench.begin()
    slow = await bench.put("slow")
    await asyncio.sleep(1)
    bye = await bench.put("exit")
    await asyncio.sleep(1)
    later = await bench.put("later")
    await asyncio.wait({task}, timeout=60)
    error = task.exception()
    assert isinstance(error, ExitRequested)
    assert error.exit_code == 42
    assert (await bench.row(slow))[:2] == ("done", 1)
    assert (await bench.row(bye))[:2] == ("done", 1)
    assert await bench.row(later) == ("queued", 0, 0)


async def test_an_exit_waits_no_longer_than_the_drain(bench: Bench) -> None:
    async def exits(bench: Bench, work: Work) -> None:
        await bench.finish(work)
        raise ExitRequested(42, "asked for")

    async def endless(bench: Bench, work: Work) -> None:
        await asyncio.sleep(10_000)

    bench.acts |= {"endless": endless, "exit": exits}
    task = bench.begin(exit_drain_s=30)
    endless_id = await bench.put("endless")
    await asyncio.sleep(1)
    await bench.put("exit")
    began = bench.rig.clock.monotonic()
    await asyncio.wait({task}, timeout=100)
    assert isinstance(task.exception(), ExitRequested)
    assert 29 < bench.rig.clock.monotonic() - began < 36
    assert await bench.row(endless_id) == ("queued", 0, 0)
    bench.acts.clear()


async def test_a_lost_lease_cancels_its_turn_only(bench: Bench) -> None:
    cancelled = asyncio.Event()

    async def watches(bench: Bench, work: Work) -> None:
        try:
            await asyncio.sleep(100)
        except asyncio.CancelledError:
            cancelled.set()
            raise

    bench.acts |= {"lost": watches, "kept": sleeps}
    bench.begin()
    lost, kept = await bench.put("lost"), await bench.put("kept")
    await asyncio.sleep(1)
    await bench.rig.db.write(
        lambda tx: (
            tx.execute(
                "UPDATE messages SET fence = fence + 1, lease_instance = 'other' WHERE message_id = ?",
                (lost,),
            ).rowcount
        )
    )
    await asyncio.sleep(LEASE_RENEW_S + 1)
    assert cancelled.is_set()
    assert (await bench.row(lost))[0] == "leased"
    await bench.done(kept)
    await bench.rig.mailbox.stop("all", OPERATOR)


async def test_a_turn_that_ignores_the_loss_of_its_lease_is_left_behind(bench: Bench) -> None:
    bench.acts["deaf"] = ignores
    bench.begin(interactive=1)
    deaf = await bench.put("deaf")
    await asyncio.sleep(1)
    await bench.rig.mailbox.cancel(deaf, OPERATOR)
    after = await bench.put("after")
    await asyncio.sleep(LEASE_RENEW_S + CANCEL_S + 1)
    assert bench.pump.stats.abandoned == 1
    assert (await bench.row(after))[0] == "done"


async def test_abort_ends_turns_and_frees_slots(bench: Bench) -> None:
    bench.acts |= {"slow": sleeps, "deaf": ignores}
    bench.begin()
    slow, deaf = await bench.put("slow"), await bench.put("deaf")
    await asyncio.sleep(1)
    await bench.rig.mailbox.stop("all", OPERATOR)
    count, left = await bench.pump.abort(lambda message: True, cancel_s=0.2)
    assert (count, left) == (2, [f"turn:{deaf}"])
    assert bench.all_slots_are_free()
    assert (await bench.row(slow))[0] == "cancelled"
    await bench.done(await bench.put("next"))


async def test_leases_are_renewed_for_hours(bench: Bench) -> None:
    async def hours(bench: Bench, work: Work) -> None:
        await asyncio.sleep(3 * 3600)

    bench.acts["long"] = hours
    bench.begin()
    long = await bench.put("long")
    await bench.rig.mailbox.wait_done(long, 4 * 3600)
    assert await bench.row(long) == ("done", 1, 0)


async def test_a_delayed_message_starts_when_it_is_due(bench: Bench) -> None:
    bench.begin()
    due = bench.rig.clock.now_ms() + 12_000
    accepted = await bench.rig.put("later", conversation="later", not_before=due)
    await bench.rig.mailbox.wait_done(accepted.message_id, 60)
    assert 0 <= bench.rig.clock.now_ms() - due < 100
    assert bench.pump.stats.lost_wakes == 0


async def test_a_lost_wake_is_found_and_counted(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bench.rig.db, "listen", lambda topic, callback: lambda: None)
    bench.begin()
    await asyncio.sleep(1)
    monkeypatch.undo()
    message = await bench.put("unheard")
    await bench.rig.mailbox.wait_done(message, 2 * NET_S)
    assert bench.pump.stats.lost_wakes == 1


async def test_an_unwritable_store_is_waited_for(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: list[float] = []
    claim = bench.rig.mailbox.claim

    async def unavailable(*args: object, **more: object) -> object:
        calls.append(bench.rig.clock.monotonic())
        raise StoreUnavailable("the disk is gone")

    monkeypatch.setattr(bench.rig.mailbox, "claim", unavailable)
    task = bench.begin()
    message = await bench.put("m")
    await asyncio.sleep(20)
    assert not task.done(), "trouble of the store is no crash of the agent"
    assert 5 < len(calls) < 60
    monkeypatch.setattr(bench.rig.mailbox, "claim", claim)
    await bench.done(message)
