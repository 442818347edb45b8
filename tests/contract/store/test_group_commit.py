"""What ``Database.write`` and ``read`` promise, over both runners."""

from __future__ import annotations

import asyncio
import logging
import re
import sqlite3
import threading
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, TypeVar

import pytest

from agentsup.model.errors import Conflict, Overloaded, StoreUnavailable
from agentsup.store import Database, Reader, Runner, Tx
from tests.support.bound import BOUND_S

T = TypeVar("T")
Opener = Callable[..., Awaitable[Database]]


class GatedRunner:
    """A runner whose writes wait at a gate: a batch is then taken but not begun to run."""

    def __init__(self, inner: Runner) -> None:
        self.inner = inner
        self.gate = asyncio.Event()
        self.gate.set()
        self.taken = asyncio.Event()

    async def open_writer(self, connect: Callable[[], sqlite3.Connection]) -> None:
        await self.inner.open_writer(connect)

    async def open_readers(self, connect: Callable[[], sqlite3.Connection]) -> None:
        await self.inner.open_readers(connect)

    async def write(self, work: Callable[[sqlite3.Connection], T]) -> T:
        self.taken.set()
        await self.gate.wait()
        return await self.inner.write(work)

    async def read(self, work: Callable[[sqlite3.Connection], T]) -> T:
        return await self.inner.read(work)

    async def aside(
        self, connect: Callable[[], sqlite3.Connection], work: Callable[[sqlite3.Connection], T]
    ) -> T:
        return await self.inner.aside(connect, work)

    async def close(self) -> None:
        await self.inner.close()

    def shut(self) -> None:
        self.taken.clear()
        self.gate.clear()


def insert(item_id: str, log: list[str] | None = None) -> Callable[[Tx], str]:
    def fn(tx: Tx) -> str:
        if log is not None:
            log.append(item_id)
        tx.execute("INSERT INTO items (item_id) VALUES (?)", (item_id,))
        return item_id

    return fn


def stored(path: Path) -> list[str]:
    """What an outsider finds in the file."""
    connection = sqlite3.connect(path)
    try:
        rows = connection.execute("SELECT item_id FROM items ORDER BY item_id").fetchall()
        return [row[0] for row in rows]
    finally:
        connection.close()


@pytest.fixture
def gated(make_runner: Callable[[], Runner]) -> GatedRunner:
    return GatedRunner(make_runner())


def start(database: Database, fn: Callable[[Tx], Any], **how: Any) -> asyncio.Task[Any]:
    return asyncio.get_running_loop().create_task(database.write(fn, **how))


async def queue_behind(database: Database, gated: GatedRunner) -> asyncio.Task[Any]:
    """Shut the gate with one write in front of it, so that what follows waits in the queue."""
    gated.shut()
    first = start(database, insert("first"))
    await gated.taken.wait()
    return first


async def test_a_write_returns_its_result_and_is_in_the_file(store: Database, path: Path) -> None:
    assert await store.write(insert("a")) == "a"
    assert stored(path) == ["a"]


async def test_concurrent_writes_share_a_commit(
    open_store: Opener, gated: GatedRunner, path: Path
) -> None:
    store = await open_store(gated)
    first = await queue_behind(store, gated)
    rest = [start(store, insert(f"i{n}")) for n in range(20)]
    await asyncio.sleep(0)
    gated.gate.set()
    await asyncio.gather(first, *rest)
    assert store.stats.commits == 2
    assert store.stats.functions == 21
    assert len(stored(path)) == 21


async def test_a_batch_takes_no_more_functions_than_its_cap(
    open_store: Opener, gated: GatedRunner
) -> None:
    store = await open_store(gated, batch_max=8)
    first = await queue_behind(store, gated)
    rest = [start(store, insert(f"i{n}")) for n in range(20)]
    await asyncio.sleep(0)
    gated.gate.set()
    await asyncio.gather(first, *rest)
    assert store.stats.commits == 4  # 1, 8, 8, 4
    assert store.stats.functions == 21


async def crowd(store: Database, gated: GatedRunner, size: int) -> None:
    """Let the store see ``size`` callers at once: one in a batch, the others waiting behind it."""
    first = await queue_behind(store, gated)
    rest = [start(store, insert(f"crowd{n}")) for n in range(size - 1)]
    await asyncio.sleep(0)
    gated.gate.set()
    await first
    await asyncio.gather(*rest, store.write(insert("first again")))


async def test_a_crowd_that_comes_back_one_by_one_shares_a_commit(
    open_store: Opener, gated: GatedRunner
) -> None:
    store = await open_store(gated, gather_ms=60_000)
    await crowd(store, gated, 8)
    before = store.stats.commits
    tasks = []
    for n in range(8):
        tasks.append(start(store, insert(f"back{n}")))
        for _ in range(5):
            await asyncio.sleep(0)
    await asyncio.gather(*tasks)
    assert store.stats.commits == before + 1


async def test_a_few_callers_wait_for_nobody(open_store: Opener, gated: GatedRunner) -> None:
    store = await open_store(gated, gather_ms=60_000)
    await crowd(store, gated, store.options.gather_from - 1)
    async with asyncio.timeout(20):
        await store.write(insert("a"))


async def test_an_urgent_write_ends_the_wait_for_a_crowd(
    open_store: Opener, gated: GatedRunner
) -> None:
    store = await open_store(gated, gather_ms=60_000)
    await crowd(store, gated, 8)
    waits = start(store, insert("waits"))
    await asyncio.sleep(0)
    async with asyncio.timeout(20):
        await store.write(insert("urgent"), urgent=True)
        await waits


async def test_a_crowd_that_has_gone_is_awaited_once(
    open_store: Opener, gated: GatedRunner
) -> None:
    store = await open_store(gated, gather_ms=1_000)
    await crowd(store, gated, 8)
    async with asyncio.timeout(10):
        for n in range(20):
            await store.write(insert(f"alone{n}"))


async def test_a_batch_that_holds_the_writer_long_leaves_the_rest_for_the_next(
    open_store: Opener, gated: GatedRunner
) -> None:
    store = await open_store(gated, batch_hold_ms=0)
    first = await queue_behind(store, gated)
    order: list[str] = []
    names = [f"i{n}" for n in range(5)]
    rest = [start(store, insert(name, order)) for name in names]
    await asyncio.sleep(0)
    gated.gate.set()
    await asyncio.gather(first, *rest)
    assert order == names
    assert store.stats.commits == 6


async def test_a_function_that_raises_rolls_back_alone(
    open_store: Opener, gated: GatedRunner, path: Path
) -> None:
    store = await open_store(gated)
    called: list[str] = []

    def refuse(tx: Tx) -> None:
        tx.after_commit(lambda: called.append("refused"))
        tx.execute("INSERT INTO items (item_id) VALUES ('half')")
        raise Conflict("no", why="test")

    first = await queue_behind(store, gated)
    before, bad, after = (
        start(store, insert("before")),
        start(store, refuse),
        start(store, insert("after")),
    )
    await asyncio.sleep(0)
    gated.gate.set()
    results = await asyncio.gather(first, before, bad, after, return_exceptions=True)
    assert [str(result) for result in results] == ["first", "before", "no", "after"]
    assert isinstance(results[2], Conflict)
    assert stored(path) == ["after", "before", "first"]
    assert called == []
    assert (store.stats.commits, store.stats.rolled_back) == (2, 1)


async def test_a_lone_function_that_raises_leaves_nothing(store: Database, path: Path) -> None:
    def refuse(tx: Tx) -> None:
        tx.execute("INSERT INTO items (item_id) VALUES ('half')")
        raise KeyError("lone")

    with pytest.raises(KeyError, match="lone"):
        await store.write(refuse)
    assert await store.write(insert("next")) == "next"
    assert stored(path) == ["next"]


async def test_wrong_sql_and_violated_constraints_reach_their_caller_unchanged(
    store: Database,
) -> None:
    await store.write(insert("a"))
    with pytest.raises(sqlite3.IntegrityError, match="UNIQUE"):
        await store.write(insert("a"))
    with pytest.raises(sqlite3.IntegrityError, match="FOREIGN KEY"):
        await store.write(lambda tx: tx.execute("INSERT INTO parts VALUES ('nobody')").rowcount)
    with pytest.raises(sqlite3.OperationalError, match="no such table"):
        await store.write(lambda tx: tx.scalar("SELECT 1 FROM nowhere"))


async def test_stop_iteration_does_not_hang_its_caller(store: Database) -> None:
    with pytest.raises(RuntimeError, match="StopIteration"):
        await store.write(lambda tx: next(iter(())))


async def test_an_async_function_is_refused_and_its_change_undone(
    store: Database, path: Path
) -> None:
    async def wrong(tx: Tx) -> None:
        tx.execute("INSERT INTO items (item_id) VALUES ('x')")

    with pytest.raises(TypeError, match="async"):
        await store.write(wrong)  # type: ignore[unused-coroutine]  # the mistake under test
    assert stored(path) == []


@pytest.mark.parametrize("sql", ["COMMIT", " rollback", "BEGIN", "release fn", "ATTACH 'x' AS y"])
async def test_a_function_may_not_touch_the_shared_transaction(
    store: Database, path: Path, sql: str
) -> None:
    def meddle(tx: Tx) -> None:
        tx.execute("INSERT INTO items (item_id) VALUES ('x')")
        tx.execute(sql)

    with pytest.raises(ValueError, match="transactions belong to the store"):
        await store.write(meddle)
    assert stored(path) == []


async def test_a_statement_that_ends_the_shared_transaction_fails_the_whole_batch(
    open_store: Opener, gated: GatedRunner, path: Path
) -> None:
    store = await open_store(gated)
    await store.write(insert("a"))

    def end_it(tx: Tx) -> None:
        tx.execute("INSERT OR ROLLBACK INTO items (item_id) VALUES ('a')")

    first = await queue_behind(store, gated)
    innocent, guilty = start(store, insert("innocent")), start(store, end_it, name="guilty")
    await asyncio.sleep(0)
    gated.gate.set()
    results = await asyncio.gather(first, innocent, guilty, return_exceptions=True)
    assert results[0] == "first"
    for result in results[1:]:
        assert isinstance(result, StoreUnavailable)
        assert result.facts["reason"] == "broken_batch"
        assert "in guilty: UNIQUE" in result.message
    assert stored(path) == ["a", "first"]
    assert await store.write(insert("later")) == "later"


async def test_urgent_writes_go_first(open_store: Opener, gated: GatedRunner) -> None:
    store = await open_store(gated)
    first = await queue_behind(store, gated)
    order: list[str] = []
    rest = [start(store, insert(f"i{n}", order)) for n in range(3)]
    await asyncio.sleep(0)
    urgent = start(store, insert("stop", order), urgent=True)
    await asyncio.sleep(0)
    gated.gate.set()
    await asyncio.gather(first, urgent, *rest)
    assert order == ["stop", "i0", "i1", "i2"]


async def test_a_full_queue_refuses_with_its_name_and_size_but_takes_the_urgent(
    open_store: Opener, gated: GatedRunner, path: Path
) -> None:
    store = await open_store(gated, write_queue_max=2)
    first = await queue_behind(store, gated)
    rest = [start(store, insert(f"i{n}")) for n in range(2)]
    await asyncio.sleep(0)
    with pytest.raises(Overloaded) as refusal:
        await store.write(insert("too much"))
    assert refusal.value.facts == {"queue": "store.write", "size": 2, "limit": 2}
    urgent = start(store, insert("urgent"), urgent=True)
    await asyncio.sleep(0)
    gated.gate.set()
    await asyncio.gather(first, urgent, *rest)
    assert stored(path) == ["first", "i0", "i1", "urgent"]


async def test_cancelled_before_its_batch_began_a_function_never_runs(
    open_store: Opener, gated: GatedRunner, path: Path
) -> None:
    store = await open_store(gated)
    first = await queue_behind(store, gated)
    ran: list[str] = []
    gone, stays = start(store, insert("gone", ran)), start(store, insert("stays", ran))
    await asyncio.sleep(0)
    gone.cancel()
    gated.gate.set()
    await asyncio.gather(first, stays)
    with pytest.raises(asyncio.CancelledError):
        await gone
    assert ran == ["stays"]
    assert stored(path) == ["first", "stays"]


async def test_cancelled_after_its_batch_began_the_commit_decides_and_callbacks_run(
    open_store: Opener, gated: GatedRunner, path: Path
) -> None:
    store = await open_store(gated)
    told = asyncio.Event()

    def fn(tx: Tx) -> None:
        insert("kept")(tx)
        tx.after_commit(told.set)

    gated.shut()
    caller = start(store, fn)
    await gated.taken.wait()
    caller.cancel()
    with pytest.raises(asyncio.CancelledError):
        await caller
    assert not told.is_set()
    gated.gate.set()
    await told.wait()
    assert stored(path) == ["kept"]


async def test_callbacks_run_in_order_in_the_loop_before_the_caller_and_after_the_commit(
    store: Database, path: Path
) -> None:
    seen: list[Any] = []

    def fn(tx: Tx) -> str:
        tx.after_commit(lambda: seen.append((threading.current_thread(), stored(path))))
        tx.after_commit(lambda: seen.append("second"))
        return insert("a")(tx)

    await store.write(fn)
    assert seen == [(threading.main_thread(), ["a"]), "second"]


async def test_what_goes_with_a_change_is_taken_back_before_the_next_function(
    open_store: Opener, gated: GatedRunner
) -> None:
    store = await open_store(gated)
    seen: list[str] = []

    def refuse(tx: Tx) -> None:
        tx.after_rollback(lambda: seen.append("first"))
        tx.after_rollback(lambda: seen.append("second"))
        raise Conflict("no")

    def stand(tx: Tx) -> None:
        tx.after_rollback(lambda: seen.append("stands"))
        seen.append("next")

    first = await queue_behind(store, gated)
    bad, good = start(store, refuse), start(store, stand)
    await asyncio.sleep(0)
    gated.gate.set()
    results = await asyncio.gather(first, bad, good, return_exceptions=True)
    assert isinstance(results[1], Conflict)
    assert seen == ["second", "first", "next"]


async def test_a_callback_that_fails_is_logged_and_the_caller_still_hears_of_the_commit(
    store: Database, caplog: pytest.LogCaptureFixture
) -> None:
    def broken() -> None:
        raise LookupError("in a callback")

    def fn(tx: Tx) -> str:
        tx.after_commit(broken)
        return insert("a")(tx)

    assert await store.write(fn, name="accept") == "a"
    assert caplog.text.count("callback after the commit of accept") == 1


async def test_a_tx_is_dead_after_its_function(store: Database) -> None:
    kept: list[Tx] = []
    await store.write(kept.append)
    with pytest.raises(RuntimeError, match="after its function returned"):
        kept[0].execute("SELECT 1")
    with pytest.raises(RuntimeError, match="before the function returns"):
        kept[0].after_commit(lambda: None)
    with pytest.raises(RuntimeError, match="before the function returns"):
        kept[0].after_rollback(lambda: None)


async def test_a_slow_function_is_logged_by_name(
    open_store: Opener, caplog: pytest.LogCaptureFixture
) -> None:
    store = await open_store(slow_ms=-1)  # everything counts as slow
    with caplog.at_level(logging.WARNING):
        await store.write(insert("a"), name="mailbox.accept")
        await store.read(lambda r: r.scalar("SELECT 1"), name="agents.list")
    assert store.stats.slow_functions == 2
    for name in ("mailbox.accept", "agents.list"):
        assert caplog.text.count(f"{name} held a database connection") == 1


async def test_a_quick_function_is_not_logged(
    store: Database, caplog: pytest.LogCaptureFixture
) -> None:
    await store.write(insert("a"))
    logged = re.findall(r"held a database connection for (\d+) ms", caplog.text)
    assert not [ms for ms in logged if int(ms) < 50]


async def test_closing_writes_what_is_queued_and_refuses_what_comes_later(
    open_store: Opener, gated: GatedRunner, path: Path
) -> None:
    store = await open_store(gated)
    first = await queue_behind(store, gated)
    queued = [start(store, insert(f"i{n}")) for n in range(3)]
    await asyncio.sleep(0)
    closing = asyncio.get_running_loop().create_task(store.close())
    await asyncio.sleep(0)
    with pytest.raises(StoreUnavailable) as refusal:
        await store.write(insert("late"))
    assert refusal.value.facts["reason"] == "closed"
    gated.gate.set()
    await asyncio.gather(first, *queued, closing)
    assert stored(path) == ["first", "i0", "i1", "i2"]
    with pytest.raises(StoreUnavailable):
        await store.read(lambda r: r.scalar("SELECT 1"))
    await store.close()


async def test_a_read_sees_every_confirmed_write(store: Database) -> None:
    for n in range(20):
        await store.write(insert(f"i{n}"))
        assert await store.read(lambda r: r.scalar("SELECT count(*) FROM items")) == n + 1
    rows = await store.read(lambda r: r.all("SELECT item_id FROM items ORDER BY rowid LIMIT 2"))
    assert [row["item_id"] for row in rows] == ["i0", "i1"]
    assert await store.read(lambda r: r.one("SELECT 1 FROM items WHERE item_id = 'x'")) is None


async def test_a_read_is_one_snapshot(store: Database, path: Path) -> None:
    def twice(reader: Reader) -> list[int]:
        counts = [reader.scalar("SELECT count(*) FROM items")]
        other = sqlite3.connect(path)
        other.execute("INSERT INTO items (item_id) VALUES ('meanwhile')")
        other.commit()
        other.close()
        return [*counts, reader.scalar("SELECT count(*) FROM items")]

    assert await store.read(twice) == [0, 0]
    assert await store.read(lambda r: r.scalar("SELECT count(*) FROM items")) == 1


async def test_a_read_can_not_write_and_the_connection_goes_on(store: Database) -> None:
    def wrong(reader: Reader) -> None:
        reader.execute("INSERT INTO items (item_id) VALUES ('x')")

    for _ in range(3):
        with pytest.raises(sqlite3.OperationalError, match="readonly"):
            await store.read(wrong)
    assert await store.read(lambda r: r.scalar("SELECT count(*) FROM items")) == 0


async def test_reads_are_bounded(open_store: Opener) -> None:
    store = await open_store(read_queue_max=2)
    results = await asyncio.gather(
        *(store.read(lambda r: r.scalar("SELECT 1")) for _ in range(4)), return_exceptions=True
    )
    assert results[:2] == [1, 1]
    assert all(isinstance(result, Overloaded) for result in results[2:])
    assert await store.read(lambda r: r.scalar("SELECT 1")) == 1


async def test_a_cancelled_read_gives_its_connection_back(store: Database) -> None:
    loop = asyncio.get_running_loop()
    for _ in range(5):
        reading = loop.create_task(store.read(lambda r: r.scalar("SELECT 1")))
        await asyncio.sleep(0)
        reading.cancel()
        with pytest.raises(asyncio.CancelledError):
            await reading
    async with asyncio.timeout(BOUND_S):
        assert await store.read(lambda r: r.scalar("SELECT 2")) == 2


async def test_pragmas_the_promises_rest_on(open_store: Opener, path: Path) -> None:
    await (await open_store()).close()
    store = await open_store()  # the second time no migration sets anything
    facts = await store.write(
        lambda tx: [
            tx.scalar(f"PRAGMA {name}") for name in ("journal_mode", "foreign_keys", "synchronous")
        ]
    )
    # The inline runner does not flush: a simulated death keeps the page cache.
    durable = 0 if type(store._runner).__name__ == "InlineRunner" else 2
    assert facts == ["wal", 1, durable]
    assert path.stat().st_mode & 0o777 == 0o600
