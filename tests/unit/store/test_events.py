from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from agentsup.fakes.entropy import SeededEntropy
from agentsup.model.event import EventType
from agentsup.store import Database, Tx
from agentsup.store.events import MAX_READ, TOPIC, EventLog, append
from tests.support.inline_runner import InlineRunner
from tests.support.loop_clock import LoopClock


@pytest_asyncio.fixture
async def database(tmp_path: Path) -> AsyncIterator[Database]:
    clock = LoopClock()
    path = tmp_path / "state.db"
    runner = InlineRunner(path, clock=clock, entropy=SeededEntropy(clock, 1), max_delay_s=0)
    opened = await Database.open(path, clock=clock, runner=runner)
    yield opened
    await opened.close()


def said(tx: Tx, text: str, *, agent_id: str = "a1", conversation: str = "console:local") -> int:
    return append(
        tx,
        EventType.CHAT_OUT,
        at=7,
        agent_id=agent_id,
        session_id="s1",
        message_id="m1",
        conversation=conversation,
        data={"text": text},
    )


async def test_an_event_is_read_back_whole_and_in_order(database: Database) -> None:
    first = await database.write(lambda tx: said(tx, "grüß dich"))
    second = await database.write(lambda tx: said(tx, "two"))
    events = (await EventLog(database).page(0)).events
    assert [event.seq for event in events] == [first, second]
    event = events[0]
    assert (event.at, event.type, event.agent_id) == (7, "chat.out", "a1")
    assert (event.session_id, event.message_id) == ("s1", "m1")
    assert (event.conversation, event.data) == ("console:local", {"text": "grüß dich"})
    assert [event.data["text"] for event in (await EventLog(database).page(first)).events] == [
        "two"
    ]


async def test_filters_combine(database: Database) -> None:
    def several(tx: Tx) -> None:
        said(tx, "one")
        said(tx, "two", agent_id="a2")
        said(tx, "three", conversation="web:x")
        append(tx, EventType.AGENT_STATE, at=8, agent_id="a1", data={})

    await database.write(several)
    log = EventLog(database)
    mine = (await log.page(0, agent_id="a1", conversation="console:local")).events
    assert [event.data["text"] for event in mine] == ["one"]
    states = (await log.page(0, types=[EventType.AGENT_STATE, EventType.AGENT_ENDED])).events
    assert [event.type for event in states] == ["agent.state"]
    assert (await log.page(0, types=[])).events == []


async def test_a_page_says_how_far_it_looked_also_past_what_did_not_match(
    database: Database,
) -> None:
    await database.write(lambda tx: [said(tx, str(n), agent_id="a2") for n in range(5)])
    log = EventLog(database)
    assert (await log.page(0, agent_id="a1")).next_seq == 5
    full = await log.page(0, agent_id="a2", limit=2)
    assert ([event.seq for event in full.events], full.next_seq) == ([1, 2], 2)
    assert (await log.page(9)).next_seq == 9


async def test_an_answer_is_bounded_whatever_was_asked_for(database: Database) -> None:
    await database.write(lambda tx: [said(tx, "x") for _ in range(MAX_READ + 5)])
    assert len((await EventLog(database).page(0, limit=10**9)).events) == MAX_READ


async def test_pruning_does_not_make_the_last_number_fall_back(database: Database) -> None:
    await database.write(lambda tx: [said(tx, "x") for _ in range(3)])
    log = EventLog(database)
    assert await log.bounds() == (1, 3)
    await database.write(lambda tx: tx.execute("DELETE FROM events").rowcount)
    assert (await log.bounds(), await log.last_seq()) == ((4, 3), 3)
    assert await database.write(lambda tx: said(tx, "next")) == 4


async def test_a_rolled_back_event_neither_exists_nor_wakes(database: Database) -> None:
    def fails(tx: Tx) -> None:
        said(tx, "never")
        raise LookupError("no")

    log = EventLog(database)
    with log.subscribe() as subscription:
        with pytest.raises(LookupError):
            await database.write(fails)
        assert not await subscription.wait(0.01)
    assert (await log.page(0)).events == []


@pytest.mark.virtual
async def test_a_commit_between_read_and_wait_is_not_missed(database: Database) -> None:
    log = EventLog(database)
    with log.subscribe() as subscription:
        seen = (await log.page(0)).events
        await database.write(lambda tx: said(tx, "in between"))
        assert seen == []
        assert await subscription.wait(3600)
        assert [event.data["text"] for event in (await log.page(0)).events] == ["in between"]
        assert not await subscription.wait(3600), "one commit is one wake"


@pytest.mark.virtual
async def test_a_reader_that_follows_misses_nothing_of_concurrent_writers(
    database: Database,
) -> None:
    log = EventLog(database)
    seen: list[int] = []

    async def follow() -> None:
        with log.subscribe() as subscription:
            while len(seen) < 200:
                page = await log.page(seen[-1] if seen else 0, limit=7)
                seen.extend(event.seq for event in page.events)
                if not page.events:
                    assert await subscription.wait(60), "a wake was lost"

    async def write(count: int) -> None:
        for _ in range(count):
            await database.write(lambda tx: said(tx, "x"))

    async with asyncio.TaskGroup() as group:
        group.create_task(follow())
        for _ in range(10):
            group.create_task(write(20))
    assert seen == list(range(1, 201))


async def test_closing_a_subscription_wakes_its_reader_and_leaves_no_listener(
    database: Database,
) -> None:
    subscription = EventLog(database).subscribe()
    waiting = asyncio.create_task(subscription.wait())
    await asyncio.sleep(0)
    subscription.close()
    subscription.close()
    assert await waiting
    assert not database._topics._listeners


async def test_a_topic_is_announced_once_per_batch_and_after_the_commit(
    database: Database,
) -> None:
    heard: list[int] = []
    log = EventLog(database)
    unlisten = database.listen(TOPIC, lambda: heard.append(database.stats.commits))
    await asyncio.gather(
        *(database.write(lambda tx: [said(tx, "a"), said(tx, "b")]) for _ in range(20))
    )
    assert len(heard) == database.stats.commits
    assert len(heard) < 20
    assert await log.last_seq() == 40
    unlisten()
    unlisten()
    await database.write(lambda tx: said(tx, "unheard"))
    assert len(heard) == database.stats.commits - 1


async def test_a_listener_that_raises_keeps_nobody_else_from_its_wake(
    database: Database, caplog: pytest.LogCaptureFixture
) -> None:
    heard: list[str] = []

    def broken() -> None:
        raise RuntimeError("listener bug")

    stop_broken = database.listen(TOPIC, broken)
    stop_good = database.listen(TOPIC, lambda: heard.append("good"))
    assert await database.write(lambda tx: said(tx, "x")) == 1
    assert heard == ["good"]
    assert caplog.text.count(f"a listener of {TOPIC} failed") == 1
    stop_broken()
    stop_good()


async def test_a_transaction_that_is_over_takes_no_topic(database: Database) -> None:
    kept: list[Tx] = []
    await database.write(kept.append)
    with pytest.raises(RuntimeError, match="before the function returns"):
        kept[0].touch(TOPIC)
