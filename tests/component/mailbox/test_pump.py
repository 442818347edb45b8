"""The pump in virtual time: no lease stays held, no slot is lost, no wake is missed."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from agentsup.kit.tasks import TaskOwner
from agentsup.mailbox.messages import segments
from agentsup.mailbox.work import Work
from agentsup.mailbox.work.leases import CANCEL_S
from agentsup.mailbox.work.pump import NET_S, Pump
from agentsup.model.errors import ExitRequested, StoreUnavailable
from agentsup.model.ids import AgentId, InstanceId
from agentsup.model.message import LEASE_RENEW_S, LaneName, Lease
from agentsup.model.principal import OPERATOR
from agentsup.store import Tx
from tests.support.mailbox_fixture import MailboxFixture

pytestmark = pytest.mark.virtual

Behave = Callable[["Fixture", Work], Awaitable[None]]


class Fixture:
    """One pump over a real mailbox; what a turn does is named by its message's text."""

    def __init__(self, rig: MailboxFixture) -> None:
        self.rig = rig
        self.tasks = TaskOwner("bench")
        self.acts: dict[str, Behave] = {}
        self.handled: list[str] = []
        self.draining = asyncio.Event()
        self.instances = 0

    @staticmethod
    def begin_segment(tx: Tx, lease: Lease) -> int | None:
        if lease.resumed:
            return None
        return segments.begin_first_tx(tx, lease.message.message_id, lease.fence, 0)

    def begin(self, interactive: int = 2, exit_drain_s: float = 30.0) -> asyncio.Task[None]:
        self.instances += 1
        self.draining = asyncio.Event()
        self.pump = Pump(
            mailbox=self.rig.mailbox,
            agent_id=AgentId("ann"),
            instance_id=InstanceId(f"i{self.instances}"),
            slots={LaneName.INTERACTIVE: interactive, LaneName.PEER: 1, LaneName.BACKGROUND: 1},
            handler=self,
            exit_drain_s=exit_drain_s,
            begin=self.begin_segment,
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
        await self.rig.end_turn(work)

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
            await self.rig.mailbox.queue.wait_done(message_id, 600)

    def all_slots_are_free(self) -> bool:
        free = self.pump.slots.free()
        return all(free[lane] == self.pump.slots._limits[lane] for lane in LaneName)


async def sleeps(context: Fixture, work: Work) -> None:
    await asyncio.sleep(10)


async def crashes(context: Fixture, work: Work) -> None:
    raise RuntimeError("boom")


async def ignores(context: Fixture, work: Work) -> None:
    for _ in range(200):
        try:
            await asyncio.sleep(1)
        except asyncio.CancelledError:
            continue


@pytest.fixture
async def context(tmp_path: Path) -> AsyncIterator[Fixture]:
    rig = await MailboxFixture.open(tmp_path)
    bench = Fixture(rig)
    yield bench
    bench.draining.set()
    await asyncio.sleep(200)
    await bench.tasks.close(5)
    await rig.check()
    await rig.close()


async def test_work_is_done_as_it_comes(context: Fixture) -> None:
    context.begin()
    ids = [await context.put(f"m{n}") for n in range(20)]
    await context.done(*ids)
    await asyncio.sleep(1)
    assert context.all_slots_are_free()
    await asyncio.sleep(10 * NET_S)
    assert context.pump.stats.lost_wakes == 0


async def test_a_drain_waits_for_turns_and_begins_none(context: Fixture) -> None:
    context.acts["slow"] = sleeps
    task = context.begin(interactive=1)
    slow = await context.put("slow")
    await asyncio.sleep(1)
    later = await context.put("later")
    context.draining.set()
    await asyncio.wait({task}, timeout=60)
    assert task.done()
    assert task.exception() is None
    assert (await context.row(slow))[0] == "done"
    assert await context.row(later) == ("queued", 0, 0)
    assert context.all_slots_are_free()


async def test_a_cancelled_pump_gives_everything_back(context: Fixture) -> None:
    context.acts["slow"] = sleeps
    task = context.begin()
    slow = await context.put("slow")
    await asyncio.sleep(1)
    task.cancel()
    await asyncio.wait({task}, timeout=60)
    assert await context.row(slow) == ("queued", 0, 0)


async def test_a_claim_under_way_when_the_pump_ends_is_given_back(
    context: Fixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Cancelling a write doesn't undo it: the lease exists though no turn ever had it."""
    claim = context.rig.mailbox.leases.claim

    async def committed_not_returned(*args: Any, **more: Any) -> Any:
        leases = await claim(*args, **more)
        await asyncio.sleep(100 if leases else 0)
        return leases

    monkeypatch.setattr(context.rig.mailbox.leases, "claim", committed_not_returned)
    message = await context.put("m")
    task = context.begin()
    await asyncio.sleep(1)
    assert (await context.row(message))[0] == "leased"
    task.cancel()
    await asyncio.wait({task}, timeout=10)
    assert await context.row(message) == ("queued", 0, 0)
    assert context.handled == []


async def test_a_session_opens_only_when_its_cancelled_turn_has_ended(context: Fixture) -> None:
    """The row is free with the commit; the turn may still act until it has really ended."""
    order: list[str] = []

    async def slow_to_end(context: Fixture, work: Work) -> None:
        try:
            await asyncio.sleep(1000)
        except asyncio.CancelledError:
            await asyncio.sleep(2)
            order.append("ended")
            raise

    async def follows(context: Fixture, work: Work) -> None:
        order.append("next")

    context.acts |= {"first": slow_to_end, "second": follows}
    context.begin()
    first = await context.put("first", "same")
    await asyncio.sleep(1)
    second = await context.put("second", "same")
    await context.rig.mailbox.control.cancel(first, by=OPERATOR)
    await context.pump.abort(lambda message: message.message_id == first, cancel_s=3)
    await context.done(second)
    assert order == ["ended", "next"]


async def test_a_crash_names_its_culprit_once_and_spares_the_innocent(context: Fixture) -> None:
    context.acts |= {"slow": sleeps, "bad": crashes}
    task = context.begin()
    slow, bad = await context.put("slow"), ""
    await asyncio.sleep(1)
    bad = await context.put("bad")
    await asyncio.wait({task}, timeout=60)
    assert isinstance(task.exception(), RuntimeError)
    assert await context.row(bad) == ("queued", 1, 1)
    assert await context.row(slow) == ("queued", 0, 0)
    second = context.begin()
    await asyncio.wait({second}, timeout=60)
    assert (await context.row(bad))[0] == "dead"
    context.begin()
    await context.done(slow)
    assert (await context.row(slow))[2] == 0


async def test_two_culprits_are_both_named(context: Fixture) -> None:
    started = asyncio.Event()

    async def crashes_when_cancelled(context: Fixture, work: Work) -> None:
        started.set()
        try:
            await asyncio.sleep(100)
        except asyncio.CancelledError:
            raise RuntimeError("it broke when it was cancelled") from None

    context.acts |= {"bad": crashes, "worse": crashes_when_cancelled}
    task = context.begin()
    worse = await context.put("worse")
    await started.wait()
    bad = await context.put("bad")
    await asyncio.wait({task}, timeout=60)
    assert (await context.row(bad))[2] == 1
    assert (await context.row(worse))[2] == 1


async def test_a_turn_whose_end_could_not_be_written_is_no_crash(context: Fixture) -> None:
    """Its lease is held by an ended task when another turn crashes: still innocent."""
    failed = asyncio.Event()

    async def disk_full(context: Fixture, work: Work) -> None:
        failed.set()
        raise StoreUnavailable("the disk is full")

    async def crashes_after(context: Fixture, work: Work) -> None:
        await failed.wait()
        raise RuntimeError("boom")

    context.acts |= {"full": disk_full, "bad": crashes_after}
    task = context.begin()
    full, bad = await context.put("full"), await context.put("bad")
    await asyncio.wait({task}, timeout=60)
    assert (await context.row(bad))[2] == 1
    assert (await context.row(full))[2] == 0
    assert (await context.row(full))[0] == "queued"


async def test_a_turn_whose_end_could_not_be_written_is_tried_again_soon(context: Fixture) -> None:
    seen: list[int] = []

    async def full_once(context: Fixture, work: Work) -> None:
        seen.append(work.lease.message.attempts)
        if len(seen) == 1:
            raise StoreUnavailable("the disk is full")

    context.acts["full"] = full_once
    context.begin()
    began = context.rig.clock.monotonic()
    await context.done(await context.put("full"))
    assert seen == [1, 2]
    assert context.rig.clock.monotonic() - began < 10


async def test_an_exit_lets_the_other_turns_finish_first(context: Fixture) -> None:
    async def exits(context: Fixture, work: Work) -> None:
        await context.rig.end_turn(work)
        raise ExitRequested(42, "asked for")

    context.acts |= {"slow": sleeps, "exit": exits}
    task = context.begin()
    slow = await context.put("slow")
    await asyncio.sleep(1)
    bye = await context.put("exit")
    await asyncio.sleep(1)
    later = await context.put("later")
    await asyncio.wait({task}, timeout=60)
    error = task.exception()
    assert isinstance(error, ExitRequested)
    assert error.exit_code == 42
    assert (await context.row(slow))[:2] == ("done", 1)
    assert (await context.row(bye))[:2] == ("done", 1)
    assert await context.row(later) == ("queued", 0, 0)


async def test_an_exit_waits_no_longer_than_the_drain(context: Fixture) -> None:
    async def exits(context: Fixture, work: Work) -> None:
        await context.rig.end_turn(work)
        raise ExitRequested(42, "asked for")

    async def endless(context: Fixture, work: Work) -> None:
        await asyncio.sleep(10_000)

    context.acts |= {"endless": endless, "exit": exits}
    task = context.begin(exit_drain_s=30)
    endless_id = await context.put("endless")
    await asyncio.sleep(1)
    await context.put("exit")
    began = context.rig.clock.monotonic()
    await asyncio.wait({task}, timeout=100)
    assert isinstance(task.exception(), ExitRequested)
    assert 29 < context.rig.clock.monotonic() - began < 36
    assert await context.row(endless_id) == ("queued", 0, 0)
    context.acts.clear()


async def test_a_lost_lease_cancels_its_turn_only(context: Fixture) -> None:
    cancelled = asyncio.Event()

    async def watches(context: Fixture, work: Work) -> None:
        try:
            await asyncio.sleep(100)
        except asyncio.CancelledError:
            cancelled.set()
            raise

    context.acts |= {"lost": watches, "kept": sleeps}
    context.begin()
    lost, kept = await context.put("lost"), await context.put("kept")
    await asyncio.sleep(1)
    await context.rig.db.write(
        lambda tx: (
            tx.execute(
                "UPDATE messages SET fence = fence + 1, lease_instance = 'other' WHERE message_id = ?",
                (lost,),
            ).rowcount
        )
    )
    await asyncio.sleep(LEASE_RENEW_S + 1)
    assert cancelled.is_set()
    assert (await context.row(lost))[0] == "leased"
    await context.done(kept)
    await context.rig.mailbox.control.stop("all", OPERATOR)


async def test_a_turn_that_ignores_the_loss_of_its_lease_is_left_behind(context: Fixture) -> None:
    context.acts["deaf"] = ignores
    context.begin(interactive=1)
    deaf = await context.put("deaf")
    await asyncio.sleep(1)
    await context.rig.mailbox.control.cancel(deaf, OPERATOR)
    after = await context.put("after")
    await asyncio.sleep(LEASE_RENEW_S + CANCEL_S + 1)
    assert context.pump.stats.abandoned == 1
    assert (await context.row(after))[0] == "done"


async def test_abort_ends_turns_and_frees_slots(context: Fixture) -> None:
    context.acts |= {"slow": sleeps, "deaf": ignores}
    context.begin()
    slow, deaf = await context.put("slow"), await context.put("deaf")
    await asyncio.sleep(1)
    await context.rig.mailbox.control.stop("all", OPERATOR)
    count, left = await context.pump.abort(lambda message: True, cancel_s=0.2)
    assert (count, left) == (2, [f"turn:{deaf}"])
    assert context.all_slots_are_free()
    assert (await context.row(slow))[0] == "cancelled"
    await context.done(await context.put("next"))


async def test_leases_are_renewed_for_hours(context: Fixture) -> None:
    async def hours(context: Fixture, work: Work) -> None:
        await asyncio.sleep(3 * 3600)

    context.acts["long"] = hours
    context.begin()
    long = await context.put("long")
    await context.rig.mailbox.queue.wait_done(long, 4 * 3600)
    assert await context.row(long) == ("done", 1, 0)


async def test_a_delayed_message_starts_when_it_is_due(context: Fixture) -> None:
    context.begin()
    due = context.rig.clock.now_ms() + 12_000
    accepted = await context.rig.put("later", conversation="later", not_before=due)
    await context.rig.mailbox.queue.wait_done(accepted.message_id, 60)
    assert 0 <= context.rig.clock.now_ms() - due < 100
    assert context.pump.stats.lost_wakes == 0


async def test_a_lost_wake_is_found_and_counted(
    context: Fixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(context.rig.db, "listen", lambda topic, callback: lambda: None)
    context.begin()
    await asyncio.sleep(1)
    monkeypatch.undo()
    message = await context.put("unheard")
    await context.rig.mailbox.queue.wait_done(message, 2 * NET_S)
    assert context.pump.stats.lost_wakes == 1


async def test_an_unwritable_store_is_waited_for(
    context: Fixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: list[float] = []
    claim = context.rig.mailbox.leases.claim

    async def unavailable(*args: object, **more: object) -> object:
        calls.append(context.rig.clock.monotonic())
        raise StoreUnavailable("the disk is gone")

    monkeypatch.setattr(context.rig.mailbox.leases, "claim", unavailable)
    task = context.begin()
    message = await context.put("m")
    await asyncio.sleep(20)
    assert not task.done(), "trouble of the store is no crash of the agent"
    assert 5 < len(calls) < 60
    monkeypatch.setattr(context.rig.mailbox.leases, "claim", claim)
    await context.done(message)


async def test_a_message_behind_two_turns_that_end_together_is_not_overlooked(
    context: Fixture,
) -> None:
    gate = asyncio.Event()

    async def waits(bench: Fixture, work: Work) -> None:
        await gate.wait()

    context.acts |= {"a1": waits, "b1": waits, "c1": sleeps}
    context.begin(interactive=2)
    for text in ("a1", "b1", "c1", "a2"):
        await context.put(text, conversation=text[0])
    await asyncio.sleep(1)
    assert context.handled == ["a1", "b1"]
    gate.set()
    await asyncio.sleep(1)
    assert set(context.handled) == {"a1", "b1", "c1", "a2"}, "a slot is free beside c1"


async def test_what_was_claimed_and_not_started_begins_anew(context: Fixture) -> None:
    context.acts["first"] = exits
    context.begin(interactive=1)
    await context.put("first", conversation="one")
    second = await context.put("second", conversation="two")
    await asyncio.sleep(5)
    assert context.handled == ["first"]
    assert (await context.row(second))[0] == "queued"
    query = "SELECT count(*) FROM segments WHERE message_id = ?"
    assert await context.rig.sql(query, second) == [(0,)]


async def exits(context: Fixture, work: Work) -> None:
    await context.rig.end_turn(work)
    raise ExitRequested(42, "asked for")


async def test_a_look_that_fails_ends_no_turn(
    context: Fixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    context.acts["long"] = lambda bench, work: asyncio.sleep(3 * NET_S)

    async def broken(agent_id: str) -> bool:
        raise StoreUnavailable("no disk")

    monkeypatch.setattr(context.rig.mailbox.leases, "has_work", broken)
    running = context.begin()
    await context.done(await context.put("long"))
    assert not running.done()
    assert context.handled == ["long"]


async def test_a_message_that_falls_due_while_no_slot_is_free_costs_no_spinning(
    context: Fixture,
) -> None:
    context.acts |= {"peer": sleeps, "back": sleeps, "one": sleeps}
    context.begin(interactive=1)
    later = await context.rig.put(
        "later", conversation="later", not_before=context.rig.clock.now_ms() + 2_000
    )
    for lane, text in ((LaneName.PEER, "peer"), (LaneName.BACKGROUND, "back")):
        await context.rig.put(text, conversation=text, lane=lane)
    await context.put("one")
    await asyncio.sleep(1)
    rounds, claim_round = 0, context.pump._claim_round

    async def counted() -> bool:
        nonlocal rounds
        rounds += 1
        return await claim_round()

    context.pump._claim_round = counted  # type: ignore[method-assign]  # counts
    await context.done(str(later.message_id))
    assert rounds < 20
