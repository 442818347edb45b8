"""What only one of the runners does: the private call it leans on, the simulated death."""

from __future__ import annotations

import asyncio
import sqlite3
import threading
from collections.abc import Callable
from pathlib import Path

import aiosqlite
import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentsup.fakes.entropy import SeededEntropy
from agentsup.model.errors import StoreUnavailable
from agentsup.store import Database, RunnerDead, StoreOptions, ThreadRunner, Tx
from tests.support.inline_runner import InlineRunner
from tests.support.loop_clock import LoopClock
from tests.support.simloop import run_virtual


def insert(item_id: str) -> Callable[[Tx], None]:
    def fn(tx: Tx) -> None:
        tx.execute("INSERT INTO items (item_id) VALUES (?)", (item_id,))

    return fn


def stored(path: Path) -> set[str]:
    connection = sqlite3.connect(path)
    try:
        return {row[0] for row in connection.execute("SELECT item_id FROM items")}
    finally:
        connection.close()


async def test_aiosqlite_runs_a_function_in_one_hop_in_its_own_thread() -> None:
    """Pins what ``ThreadRunner`` uses of aiosqlite beside its public calls."""
    connection = aiosqlite.Connection(lambda: sqlite3.connect(":memory:"), iter_chunk_size=64)
    assert isinstance(connection._thread, threading.Thread)
    connection._thread.daemon = True
    await connection
    hops = connection._tx.qsize()
    where, raw = await connection._execute(  # type: ignore[no-untyped-call]  # what is pinned here
        lambda given: (threading.current_thread(), given), connection._conn
    )
    assert where is connection._thread
    assert raw is connection._conn
    assert hops == 0
    await connection.close()


async def test_the_writer_never_keeps_a_process_alive(tmp_path: Path) -> None:
    runner = ThreadRunner(readers=1)
    await runner.open_writer(lambda: sqlite3.connect(tmp_path / "a.db"))
    await runner.open_readers(lambda: sqlite3.connect(tmp_path / "a.db"))
    threads = [t for t in threading.enumerate() if t.name.startswith("store-")]
    assert sorted(t.name for t in threads) == ["store-reader-0", "store-writer"]
    assert all(t.daemon for t in threads)
    await runner.close()
    assert not any(t.is_alive() for t in threads)
    await runner.close()


async def test_a_connection_that_can_not_be_opened_leaves_no_thread() -> None:
    def refuse() -> sqlite3.Connection:
        raise sqlite3.OperationalError("no")

    with pytest.raises(sqlite3.OperationalError, match="no"):
        await ThreadRunner().open_writer(refuse)
    assert not [t for t in threading.enumerate() if t.name.startswith("store-")]


class Sim:
    """One simulated life of a store on virtual time."""

    def __init__(
        self, path: Path, migrations: Path, seed: int = 1, max_delay_s: float = 1.0
    ) -> None:
        self.path = path
        self.migrations = migrations
        self.clock = LoopClock()
        entropy = SeededEntropy(self.clock, seed)
        self.runner = InlineRunner(path, clock=self.clock, entropy=entropy, max_delay_s=max_delay_s)

    async def open(self) -> Database:
        self.path.parent.mkdir(exist_ok=True)
        return await Database.open(
            self.path,
            clock=self.clock,
            runner=self.runner,
            migrations=self.migrations,
            options=StoreOptions(reserve_bytes=0),
        )


@pytest.mark.virtual
async def test_a_killed_runner_answers_every_later_call_with_its_death(
    path: Path, migrations: Path
) -> None:
    sim = Sim(path, migrations)
    store = await sim.open()
    await store.write(insert("before"))
    sim.runner.kill()
    with pytest.raises(RunnerDead):
        await store.write(insert("after"))
    with pytest.raises(RunnerDead):
        await store.write(insert("after"))
    with pytest.raises(StoreUnavailable):
        await store.read(lambda r: r.scalar("SELECT 1"))
    with pytest.raises(RunnerDead):
        await sim.runner.aside(lambda: sqlite3.connect(path), lambda c: None)
    await store.close()
    assert stored(path) == {"before"}


@pytest.mark.virtual
async def test_a_kill_inside_a_batch_rolls_it_back(path: Path, migrations: Path) -> None:
    sim = Sim(path, migrations)
    store = await sim.open()

    def die(tx: Tx) -> None:
        insert("half")(tx)
        sim.runner.kill()

    results = await asyncio.gather(
        store.write(insert("a")), store.write(die), return_exceptions=True
    )
    assert [type(result) for result in results] == [RunnerDead, RunnerDead]
    await store.close()
    assert stored(path) == set()


def test_kills_fall_before_and_between_commit_and_confirmation(
    path: Path, migrations: Path
) -> None:
    """The two delays make all three outcomes reachable; never: confirmed but missing."""
    outcomes: dict[tuple[bool, bool], int] = {}

    async def life(seed: int) -> None:
        sim = Sim(path, migrations, seed)
        store = await sim.open()
        item = f"i{seed}"
        writing = asyncio.get_running_loop().create_task(store.write(insert(item)))
        await sim.clock.sleep(0.8)
        sim.runner.kill()
        await asyncio.wait({writing})
        is_confirmed = writing.exception() is None
        await store.close()
        key = (item in stored(path), is_confirmed)
        outcomes[key] = outcomes.get(key, 0) + 1

    for seed in range(40):
        run_virtual(life(seed))
    assert (False, True) not in outcomes
    assert set(outcomes) == {(False, False), (True, False), (True, True)}


actions = st.lists(
    st.tuples(
        st.sampled_from(["write", "urgent", "raise", "cancel_soon", "cancel_late"]),
        st.floats(0, 3),
    ),
    max_size=30,
)


@given(actions=actions, seed=st.integers(0, 1_000), batch_max=st.sampled_from([1, 3, 128]))
def test_what_is_stored_is_what_was_confirmed_or_decided_after_a_cancel(
    tmp_path_factory: pytest.TempPathFactory,
    actions: list[tuple[str, float]],
    seed: int,
    batch_max: int,
) -> None:
    home = tmp_path_factory.mktemp("model")
    migrations = home / "migrations"
    migrations.mkdir()
    (migrations / "0001_items.sql").write_text("CREATE TABLE items (item_id TEXT) STRICT;")
    path = home / "state.db"
    durable: list[str] = []
    confirmed: set[str] = set()
    never: set[str] = set()

    async def act(store: Database, clock: LoopClock, number: int, kind: str, at_s: float) -> None:
        item = f"{number}-{kind}"

        def fn(tx: Tx) -> None:
            tx.after_commit(lambda: durable.append(item))
            insert(item)(tx)
            if kind == "raise":
                raise LookupError(item)

        await clock.sleep(at_s)
        task = asyncio.get_running_loop().create_task(store.write(fn, urgent=kind == "urgent"))
        if kind.startswith("cancel"):
            await clock.sleep(0 if kind == "cancel_soon" else 0.5)
            task.cancel()
        await asyncio.wait({task})
        if task.cancelled():
            return
        if task.exception() is None:
            confirmed.add(item)
        else:
            assert isinstance(task.exception(), LookupError)
            never.add(item)

    async def life() -> None:
        sim = Sim(path, migrations, seed)
        store = await Database.open(
            path,
            clock=sim.clock,
            runner=sim.runner,
            migrations=migrations,
            options=StoreOptions(reserve_bytes=0, batch_max=batch_max),
        )
        loop = asyncio.get_running_loop()
        acts = [
            loop.create_task(act(store, sim.clock, number, kind, at_s))
            for number, (kind, at_s) in enumerate(actions)
        ]
        if acts:
            await asyncio.wait(acts)
        await store.close()
        for done in acts:
            done.result()

    run_virtual(life())
    assert stored(path) == set(durable)
    assert len(durable) == len(set(durable))
    assert confirmed <= set(durable)
    assert not never & set(durable)
