"""The relay in virtual time, over a real database in the loop's thread."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from agentsup.channels import LocalChannel
from agentsup.fakes.entropy import SeededEntropy
from agentsup.mailbox.delivery import Relay, outbox, steps
from agentsup.mailbox.delivery.attempt import RelayLimits
from agentsup.model.channel import Channel, Delivery, DeliveryOutcome
from agentsup.model.errors import Conflict, NotFound, StoreUnavailable
from agentsup.model.event import EventType
from agentsup.store import Database, EventLog, Reader, Tx
from tests.support.empty_store import lay_store
from tests.support.inline_runner import InlineRunner
from tests.support.loop_clock import LoopClock
from tests.support.recording_channel import RecordingChannel, ids

UNKNOWN = Delivery(DeliveryOutcome.UNKNOWN, "timed out")
RETRY = Delivery(DeliveryOutcome.RETRY, "busy")
REFUSED = Delivery(DeliveryOutcome.REFUSED, "blocked by the user")

pytestmark = pytest.mark.virtual


class Fixture:
    """A database that can be killed and opened again, and relays on it."""

    def __init__(self, path: Path) -> None:
        self.clock = LoopClock()
        self.entropy = SeededEntropy(self.clock, 5)
        self.path = path
        self.boots = 0
        self.runner = self._new_runner()
        self.database: Database

    def _new_runner(self) -> InlineRunner:
        return InlineRunner(self.path, clock=self.clock, entropy=self.entropy, max_delay_s=0)

    async def boot(self) -> None:
        self.boots += 1
        self.runner = self._new_runner()
        self.database = await Database.open(
            lay_store(self.path), clock=self.clock, runner=self.runner
        )

    async def kill(self) -> None:
        self.runner.kill()
        with pytest.raises(StoreUnavailable):
            await self.database.write(lambda tx: None)

    def relay(self, *channels: Channel, **limits: Any) -> Relay:
        return Relay(
            self.database,
            self.clock,
            self.entropy,
            {channel.name: channel for channel in channels},
            boot_id=f"boot{self.boots}",
            limits=RelayLimits(**limits),
        )

    async def add(
        self, *texts: str, conversation: str = "c", channel: str = "recording", **fields: Any
    ) -> list[int]:
        def add(tx: Tx) -> list[int]:
            return [
                outbox.add_tx(
                    tx,
                    agent_id="a",
                    channel=channel,
                    conversation=conversation,
                    kind="answer",
                    body={"text": text},
                    at=self.clock.now_ms(),
                    **{"message_id": "m1", **fields},
                )
                for text in texts
            ]

        return await self.database.write(add)

    async def add_message(self, message_id: str, *, session_id: str) -> None:
        """A message that parts can be about."""

        def add(tx: Tx) -> None:
            tx.execute(
                "INSERT INTO sessions (session_id, agent_id, key, title, created_at, updated_at)"
                " VALUES (?, 'a', 'k', '', 1, 1)",
                (session_id,),
            )
            tx.execute(
                "INSERT INTO messages (message_id, agent_id, session_id, kind, lane, priority, state,"
                " parts, principal, deliver_to, root_id, accepted_at)"
                " VALUES (?1, 'a', ?2, 'chat', 'interactive', 1, 'queued', '[]', '{}', '{}', ?1, 1)",
                (message_id, session_id),
            )

        await self.database.write(add)

    async def states(self) -> dict[int, str]:
        return await self.database.read(
            lambda r: dict(map(tuple, r.all("SELECT outbox_id, state FROM outbox")))
        )

    async def row(self, outbox_id: int) -> dict[str, Any]:
        def look(reader: Reader) -> dict[str, Any]:
            row = reader.one("SELECT * FROM outbox WHERE outbox_id = ?", (outbox_id,))
            assert row is not None
            return dict(row)

        return await self.database.read(look)


@pytest_asyncio.fixture
async def context(tmp_path: Path) -> AsyncIterator[Fixture]:
    bench = Fixture(tmp_path / "state.db")
    await bench.boot()
    yield bench
    await bench.database.close()


@asynccontextmanager
async def running(relay: Relay) -> AsyncIterator[asyncio.Task[None]]:
    """The relay as a child; drained at the end."""
    ready, draining = asyncio.Event(), asyncio.Event()
    task = asyncio.create_task(relay.run(ready.set, draining))
    await ready.wait()
    try:
        yield task
    finally:
        draining.set()
        await task


async def until(is_so: Callable[[], bool], context: Fixture) -> None:
    for _ in range(10_000):
        if is_so():
            return
        await context.clock.sleep(0.01)
    raise AssertionError("did not come about")


async def test_parts_arrive_in_order_and_tell_it_in_the_same_commit(context: Fixture) -> None:
    await context.add_message("m1", session_id="s1")
    channel, relay_ids = RecordingChannel(), await context.add("one", "two")
    async with running(context.relay(channel)):
        relay_ids += await context.add("three")
        await channel.wait_sent(3)
    assert ids(channel.sent) == relay_ids
    assert [part.part_no for part in channel.sent] == [0, 1, 2]
    assert set((await context.states()).values()) == {"delivered"}
    told = (await EventLog(context.database).page(0, types=[EventType.CHAT_OUT])).events
    assert [event.data for event in told] == [
        {"text": text, "kind": "answer", "outbox_id": number}
        for text, number in zip(["one", "two", "three"], relay_ids, strict=True)
    ]
    assert {(e.conversation, e.agent_id, e.session_id, e.message_id) for e in told} == {
        ("recording:c", "a", "s1", "m1")
    }


async def test_where_the_event_is_the_delivery_one_commit_delivers_what_is_due(
    context: Fixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    channel, write, writes = LocalChannel("web"), context.database.write, list[str]()

    async def counting(fn: Any, *args: Any, name: str = "", **options: Any) -> Any:
        writes.append(name)
        return await write(fn, *args, name=name, **options)

    relay = context.relay(channel, net_s=1e6)
    first = await context.add("one", "two", "three", channel="web")
    monkeypatch.setattr(context.database, "write", counting)
    async with running(relay):
        await until(lambda: relay.stats.delivered == 3, context)
        assert writes == ["relay.step"]
        later = await context.add("four", channel="web")
        await until(lambda: relay.stats.delivered == 4, context)
    assert writes.count("relay.step") == 2
    assert relay.stats.lost_wakes == 0
    assert await context.states() == dict.fromkeys([*first, *later], "delivered")
    told = (await EventLog(context.database).page(0, types=[EventType.CHAT_OUT])).events
    assert [event.data["text"] for event in told] == ["one", "two", "three", "four"]


async def test_a_long_queue_of_such_parts_is_delivered_in_portions(context: Fixture) -> None:
    relay = context.relay(LocalChannel("web"), net_s=1e6)
    await context.add(*map(str, range(250)), channel="web")
    async with running(relay):
        await until(lambda: relay.stats.delivered == 250, context)
    assert set((await context.states()).values()) == {"delivered"}


async def test_a_part_added_while_idle_needs_no_net(context: Fixture) -> None:
    channel = RecordingChannel()
    relay = context.relay(channel, net_s=3600.0)
    async with running(relay):
        await context.clock.sleep(10)
        before = context.clock.monotonic()
        for number in range(20):
            await context.add(str(number), conversation=f"c{number % 3}")
            await channel.wait_sent(number + 1)
        assert context.clock.monotonic() - before < 1
    assert relay.stats.lost_wakes == 0


async def test_the_net_finds_what_lost_its_wake_and_counts_it(context: Fixture) -> None:
    channel = RecordingChannel()
    relay = context.relay(channel)
    async with running(relay):
        await context.clock.sleep(1)
        await context.database.write(
            lambda tx: (
                tx.execute(
                    "INSERT INTO outbox (message_id, agent_id, channel, conversation, part_no, kind,"
                    " body, state, created_at)"
                    " VALUES ('m', 'a', 'recording', 'c', 0, 'answer', '{}', 'pending', 1)"
                ).rowcount
            )
        )
        await channel.wait_sent(1)
    assert relay.stats.lost_wakes == 1


async def test_a_hanging_conversation_delays_no_other_even_when_there_are_many(
    context: Fixture,
) -> None:
    channel, never = RecordingChannel(), asyncio.Event()
    for number in range(50):
        channel.plan_for(f"sick{number}", never)
        await context.add("x", conversation=f"sick{number}")
    relay = context.relay(channel, slots=4, slow_s=2.0, timeout_s=60.0)
    async with running(relay):
        await until(lambda: len(channel.attempts) == 50, context)
        before = context.clock.monotonic()
        await context.add("hello", conversation="well")
        await channel.wait_sent(1)
        assert context.clock.monotonic() - before < 0.5
        await until(lambda: relay.stats.timed_out == 50, context)
    assert "hello" in channel.texts("well")
    assert relay.stats.lanes == 0


async def test_a_sick_channel_delays_no_other(context: Fixture) -> None:
    sick, well = RecordingChannel("sick"), RecordingChannel("well")
    sick.plan(*[asyncio.Event() for _ in range(40)])
    for number in range(40):
        await context.add("x", conversation=f"c{number}", channel="sick")
    async with running(context.relay(sick, well, slots=2, timeout_s=5.0)):
        before = context.clock.monotonic()
        await context.add("hello", channel="well")
        await well.wait_sent(1)
        assert context.clock.monotonic() - before < 0.1


async def test_no_more_deliveries_at_once_than_there_are_places(context: Fixture) -> None:
    channel, gate = RecordingChannel(), asyncio.Event()
    for number in range(20):
        channel.plan_for(f"c{number}", gate)
        await context.add("x", conversation=f"c{number}")
    async with running(context.relay(channel, slots=3, slow_s=30.0)):
        await until(lambda: channel.running == 3, context)
        await context.clock.sleep(5)
        gate.set()
        await channel.wait_sent(20)
    assert channel.most_running == 3


async def test_a_busy_conversation_lets_others_have_their_turn(context: Fixture) -> None:
    channel = RecordingChannel()
    await context.add(*map(str, range(100)), conversation="busy")
    await context.add("short", conversation="zz")
    async with running(context.relay(channel, slots=1, burst=8)):
        await channel.wait_sent(101)
    assert [part.conversation for part in channel.sent].index("zz") <= 16
    assert channel.texts("busy") == list(map(str, range(100)))


async def test_a_hang_through_a_blind_channel_is_unknown_and_noted_once(context: Fixture) -> None:
    channel = RecordingChannel()
    channel.plan(asyncio.Event())
    (lost,) = await context.add("a rather important answer " * 10)
    relay = context.relay(channel, timeout_s=10.0)
    async with running(relay):
        await channel.wait_sent(1, timeout_s=60)
        await context.clock.sleep(600)
    assert (await context.row(lost))["state"] == "unknown"
    assert [part.outbox_id for part in channel.attempts].count(lost) == 1
    (note,) = channel.sent
    assert (note.kind, note.body["again"], note.body["possible_repeat"]) == ("notice", lost, True)
    assert note.body["text"].endswith(f"/again {lost}")
    assert "“a rather important answer" in note.body["text"]
    assert len(note.body["text"]) < 250
    assert relay.stats.unknown == 1


async def test_an_unknown_outcome_is_never_sent_again_by_itself(context: Fixture) -> None:
    channel = RecordingChannel()
    channel.plan(UNKNOWN, UNKNOWN)
    (first,) = await context.add("one")
    async with running(context.relay(channel)):
        await channel.wait_sent(2)
        await context.clock.sleep(3600)
    counted = Counter(ids(channel.attempts))
    assert set(counted.values()) == {1}
    # The note's own fate was unknown too: no note about a note.
    assert await context.states() == {first: "unknown", first + 1: "unknown"}


async def test_again_shows_it_once_more_marked_as_a_repeat(context: Fixture) -> None:
    channel = RecordingChannel()
    channel.plan(UNKNOWN)
    (lost,) = await context.add("one")
    place: dict[str, Any] = {"agent_id": "a", "channel": "recording", "conversation": "c", "at": 1}
    async with running(context.relay(channel)):
        await channel.wait_sent(2)
        await until(lambda: channel.running == 0, context)
        repeat = await context.database.write(lambda tx: outbox.again_tx(tx, lost, **place))
        await channel.wait_sent(3)
    assert channel.sent[-1].outbox_id == repeat
    assert channel.sent[-1].body == {"text": "one", "repeat_of": lost, "possible_repeat": True}
    with pytest.raises(Conflict, match="delivered"):
        await context.database.write(lambda tx: outbox.again_tx(tx, repeat, **place))
    for wrong in ({**place, "conversation": "other"}, {**place, "agent_id": "b"}):
        with pytest.raises(NotFound):
            await context.database.write(partial(outbox.again_tx, outbox_id=lost, **wrong))


async def test_retries_keep_the_order_and_back_off(context: Fixture) -> None:
    channel = RecordingChannel()
    channel.plan(*[RETRY] * 12)
    await context.add("one", "two")
    relay = context.relay(channel)
    before = context.clock.monotonic()
    async with running(relay):
        await channel.wait_sent(2, timeout_s=3600)
    elapsed_s = context.clock.monotonic() - before
    assert channel.texts() == ["one", "two"]
    assert len(channel.attempts) == 14
    assert [part.attempts for part in channel.attempts[:13]] == list(range(13))
    assert 120 < elapsed_s < 800
    assert (relay.stats.retried, relay.stats.lost_wakes) == (12, 0)


async def test_a_storm_of_retries_stays_a_bounded_load(context: Fixture) -> None:
    channel = RecordingChannel()
    for number in range(30):
        channel.plan_for(f"c{number}", *[RETRY] * 1000)
        await context.add("x", conversation=f"c{number}")
    async with running(context.relay(channel)):
        await context.clock.sleep(600)
        attempts = len(channel.attempts)
        await context.add("through the storm", conversation="well")
        await channel.wait_sent(1)
    # About seven attempts on the way up to the cap, then one a minute (30 s at least).
    assert attempts <= 30 * 30
    assert attempts >= 30 * 8


async def test_the_pause_a_platform_asks_for_is_kept_also_over_a_restart(context: Fixture) -> None:
    channel = RecordingChannel()
    channel.plan(Delivery(DeliveryOutcome.RETRY, "flood", retry_after_s=300.0))
    (number,) = await context.add("one")
    begun = context.clock.monotonic()
    async with running(context.relay(channel)):
        await until(lambda: len(channel.attempts) == 1, context)
        await context.clock.sleep(1)
    row = await context.row(number)
    assert (row["state"], row["detail"], row["begun_boot"]) == ("pending", "flood", "")
    async with running(context.relay(channel)):
        await channel.wait_sent(1, timeout_s=3600)
    assert 300 <= context.clock.monotonic() - begun < 302


async def test_a_refused_part_is_dropped_with_its_reason_and_the_next_one_goes(
    context: Fixture,
) -> None:
    channel = RecordingChannel()
    channel.plan(REFUSED)
    first, second = await context.add("one", "two")
    async with running(context.relay(channel)):
        await channel.wait_sent(1)
    assert await context.states() == {first: "dropped", second: "delivered"}
    assert (await context.row(first))["detail"] == "blocked by the user"
    refused, said = (await EventLog(context.database).page(0)).events
    assert (refused.type, said.type) == ("chat.refused", "chat.out")
    assert refused.data["why"] == "blocked by the user"


async def test_a_channel_that_raises_is_survived(context: Fixture) -> None:
    channel = RecordingChannel()
    channel.plan(ValueError("bug in the channel"), asyncio.CancelledError())
    first, second, _ = await context.add("one", "two", "three")
    relay = context.relay(channel)
    async with running(relay):
        await channel.wait_sent(3)
    states = await context.states()
    assert (states[first], states[second]) == ("unknown", "unknown")
    assert "bug in the channel" in (await context.row(first))["detail"]
    assert relay.stats.faults == 2


async def test_an_idempotent_channel_is_tried_again_but_not_for_ever_by_a_bug(
    context: Fixture,
) -> None:
    channel = RecordingChannel(idempotent=True)
    channel.plan_for("twice", ValueError("a"), UNKNOWN)
    channel.plan_for("poison", *[ValueError("always") for _ in range(8)])
    (poison,) = await context.add("x", conversation="poison")
    await context.add("after it", conversation="poison")
    await context.add("x", conversation="twice")
    relay = context.relay(channel, unknown_max=8)
    async with running(relay):
        await channel.wait_sent(4, timeout_s=3600)
    assert (await context.row(poison))["state"] == "unknown"
    assert (await context.row(poison))["attempts"] == 8
    assert ids(channel.attempts).count(poison) == 8
    assert [part.conversation for part in channel.sent] == ["twice", "twice", "poison", "poison"]
    assert channel.texts("poison")[0] == "after it"


@pytest.mark.parametrize("idempotent", [False, True])
async def test_what_can_never_be_known_is_not_tried_again(
    context: Fixture, *, idempotent: bool
) -> None:
    """The platform no longer recognises a repeat: another attempt would be another message."""
    channel = RecordingChannel(idempotent=idempotent)
    channel.plan_for("old", replace(UNKNOWN, is_final=True))
    (old,) = await context.add("x", conversation="old")
    await context.add("after it", conversation="old")
    began = context.clock.monotonic()
    async with running(context.relay(channel)):
        await channel.wait_for(lambda: any(part.body.get("again") == old for part in channel.sent))
    assert context.clock.monotonic() - began < 1.0, "nobody waited for a repeat"
    assert "after it" in channel.texts("old")
    assert ids(channel.attempts).count(old) == 1
    row = await context.row(old)
    assert (row["state"], row["attempts"]) == ("unknown", 1)


async def test_killed_before_it_leaves_a_part_is_in_no_doubt(context: Fixture) -> None:
    """It waited for its turn: nothing was sent, so the next process sends it, without a note."""
    channel = RecordingChannel()
    channel.waits = asyncio.Event()
    first, second = await context.add("one", "two")
    doomed = asyncio.create_task(context.relay(channel).run(lambda: None, asyncio.Event()))
    await channel.wait_for(lambda: channel.running == 1)
    await context.kill()
    doomed.cancel()
    await asyncio.wait({doomed})
    channel.waits = None
    await context.boot()
    async with running(context.relay(channel)):
        await channel.wait_sent(2)
    assert ids(channel.sent) == [first, second]
    assert await context.states() == {first: "delivered", second: "delivered"}


async def test_a_part_that_is_settled_while_it_waits_does_not_leave(context: Fixture) -> None:
    channel = RecordingChannel()
    channel.waits = asyncio.Event()
    first, second = await context.add("one", "two")
    async with running(context.relay(channel)):
        await channel.wait_for(lambda: channel.running == 1)
        await context.database.write(
            lambda tx: (
                tx.execute(
                    "UPDATE outbox SET state = 'dropped' WHERE outbox_id = ?", (first,)
                ).rowcount
            )
        )
        channel.waits.set()
        await channel.wait_sent(1)
    assert ids(channel.sent) == [second]
    assert await context.states() == {first: "dropped", second: "delivered"}


async def test_what_takes_too_long_before_it_leaves_is_tried_again(context: Fixture) -> None:
    channel = RecordingChannel()
    channel.waits = asyncio.Event()
    (first,) = await context.add("one")
    async with running(context.relay(channel, timeout_s=1.0)):
        await channel.wait_for(lambda: len(channel.attempts) == 2)
        channel.waits.set()
        await channel.wait_sent(1)
    assert await context.states() == {first: "delivered"}


@pytest.mark.parametrize("idempotent", [False, True])
@pytest.mark.parametrize("arrived", [False, True])
async def test_killed_in_the_midst_of_a_delivery(
    context: Fixture, *, idempotent: bool, arrived: bool
) -> None:
    channel, gate = RecordingChannel(idempotent=idempotent), asyncio.Event()
    channel.plan(gate)
    first, second = await context.add("one", "two")
    draining = asyncio.Event()
    doomed = asyncio.create_task(context.relay(channel).run(lambda: None, draining))
    await channel.wait_for(lambda: channel.begun == 1)
    if arrived:
        context.runner.kill()
        gate.set()
        await channel.wait_sent(1)
    await context.kill()
    doomed.cancel()
    await asyncio.wait({doomed})
    await context.boot()
    async with running(context.relay(channel)):
        last = second if idempotent else second + 1
        await channel.wait_for(lambda: last in ids(channel.sent))
    counted = Counter(ids(channel.sent))
    states = await context.states()
    if idempotent:
        assert states == {first: "delivered", second: "delivered"}
        assert counted[first] == 1 + arrived
    else:
        assert states == {first: "unknown", second: "delivered", second + 1: "delivered"}
        assert counted[first] == arrived, "a blind part is never sent again"
        assert channel.sent[-1].body["again"] == first
        assert "boot1" in (await context.row(first))["detail"]


async def test_a_cancelled_relay_leaves_the_row_to_the_next_one(context: Fixture) -> None:
    channel = RecordingChannel()
    channel.plan(asyncio.Event())
    (first,) = await context.add("one")
    task = asyncio.create_task(context.relay(channel).run(lambda: None, asyncio.Event()))
    await channel.wait_for(lambda: channel.begun == 1)
    task.cancel()
    await asyncio.wait({task})
    assert task.cancelled()
    assert channel.running == 0
    row = await context.row(first)
    assert (row["state"], row["begun_boot"]) == ("pending", "boot1")
    async with running(context.relay(channel)):
        await channel.wait_sent(1)
    assert (await context.states())[first] == "unknown"
    assert ids(channel.attempts).count(first) == 1


async def test_draining_lets_what_is_under_way_end_and_begins_nothing(context: Fixture) -> None:
    channel, gate = RecordingChannel(), asyncio.Event()
    channel.plan(gate)
    first, second = await context.add("one", "two")
    draining = asyncio.Event()
    task = asyncio.create_task(context.relay(channel).run(lambda: None, draining))
    await channel.wait_for(lambda: channel.running == 1)
    draining.set()
    await context.clock.sleep(1)
    assert not task.done()
    gate.set()
    await task
    assert await context.states() == {first: "delivered", second: "pending"}
    assert (await context.row(second))["begun_boot"] == ""
    assert not context.database._topics._listeners


async def test_emptied_waits_for_what_is_due_and_no_longer_than_it_may(context: Fixture) -> None:
    channel, gate = RecordingChannel(), asyncio.Event()
    channel.plan(gate)
    relay, draining = context.relay(channel), asyncio.Event()
    assert await relay.emptied(1)
    await context.add("one", "two")
    task = asyncio.create_task(relay.run(lambda: None, draining))
    await channel.wait_for(lambda: channel.running == 1)
    began = context.clock.monotonic()
    assert not await relay.emptied(3)
    assert context.clock.monotonic() - began == pytest.approx(3)
    gate.set()
    assert await relay.emptied(3)
    assert set((await context.states()).values()) == {"delivered"}
    draining.set()
    await task
    assert not context.database._topics._listeners


async def test_a_store_in_trouble_is_waited_out_without_sending_twice(
    context: Fixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    channel, gate = RecordingChannel(), asyncio.Event()
    channel.plan(gate)
    (first,) = await context.add("one")
    write = context.database.write

    async def full(*args: Any, **kwargs: Any) -> Any:
        raise StoreUnavailable("disk full", reason="disk_full")

    async with running(context.relay(channel)):
        await channel.wait_for(lambda: channel.running == 1)
        monkeypatch.setattr(context.database, "write", full)
        gate.set()
        await context.clock.sleep(30)
        assert (await context.row(first))["state"] == "pending"
        monkeypatch.setattr(context.database, "write", write)
        await context.clock.sleep(2)
    assert (await context.row(first))["state"] == "delivered"
    assert len(channel.attempts) == 1


async def test_parts_of_a_channel_that_is_missing_wait_for_it(context: Fixture) -> None:
    channels: dict[str, Channel] = {}
    relay = Relay(context.database, context.clock, context.entropy, channels, boot_id="b")
    (first,) = await context.add("one", channel="later")
    async with running(relay):
        await context.clock.sleep(20)
        assert (await context.row(first))["state"] == "pending"
        channels["later"] = channel = RecordingChannel("later")
        await channel.wait_sent(1)
    assert relay.stats.lost_wakes == 0


async def test_a_thousand_parts_over_many_conversations_arrive_once_and_in_order(
    context: Fixture,
) -> None:
    channel = RecordingChannel()
    channel.plan(*[RETRY] * 50)
    async with running(context.relay(channel, slots=8)):
        for number in range(1000):
            await context.add(str(number), conversation=f"c{number % 40}")
        await channel.wait_sent(1000, timeout_s=3600)
    for conversation in range(40):
        assert channel.texts(f"c{conversation}") == [
            str(n) for n in range(1000) if n % 40 == conversation
        ]
    assert await context.database.read(outbox.counts) == {
        "recording": {"pending": 0, "delivered": 1000, "unknown": 0, "dropped": 0}
    }


async def test_heads_seek_in_the_index_of_pending_parts(context: Fixture) -> None:
    plans: list[str] = []

    class Explaining(Reader):
        __slots__ = ()

        def one(self, sql: str, params: Any = ()) -> Any:
            row = super().one("EXPLAIN QUERY PLAN " + sql, params)
            assert row is not None
            plans.append(row["detail"])
            return super().one(sql, params)

    await context.database.read(lambda reader: steps.heads(Explaining(reader._live), "x"))
    assert len(plans) == 1
    assert "outbox_pending" in plans[0]
    assert "(channel=? AND (agent_id,conversation)>" in plans[0]


async def test_a_part_that_comes_while_its_lane_is_ending_is_not_forgotten(
    context: Fixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    channel, write = RecordingChannel(), context.database.write
    found_nothing, go_on = asyncio.Event(), asyncio.Event()

    async def slow_answer(fn: Any, *args: Any, name: str = "", **options: Any) -> Any:
        answer = await write(fn, *args, name=name, **options)
        if name == "relay.step" and answer.part is None:
            found_nothing.set()
            await go_on.wait()
        return answer

    monkeypatch.setattr(context.database, "write", slow_answer)
    async with running(context.relay(channel, net_s=1e6)):
        await context.add("one")
        await found_nothing.wait()
        await context.add("two")
        await context.clock.sleep(1)
        go_on.set()
        await channel.wait_sent(2)


async def test_conversations_beyond_the_most_lanes_follow_as_lanes_end(context: Fixture) -> None:
    channel = RecordingChannel()
    for number in range(10):
        await context.add("x", conversation=f"c{number}")
    async with running(context.relay(channel, lanes=2, net_s=1e6)):
        await channel.wait_sent(10)
