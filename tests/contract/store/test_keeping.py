"""Backups, retention and probe over both runners."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path

import pytest

from agentsup.kit.clock import SystemClock
from agentsup.model.errors import StoreUnavailable
from agentsup.store import Database, Pruned, Retention, Tx, probe, prune
from agentsup.store.backup import backups, latest, taken_at
from agentsup.store.retention import CATCH_UP, PruningClock
from tests.support.loop_clock import LoopClock

Opener = Callable[..., Awaitable[Database]]


class FixedWall(SystemClock):
    """Wall time that moves one day with each reading."""

    def __init__(self) -> None:
        self.at = 1_800_000_000_000

    def now_ms(self) -> int:
        self.at += 86_400_000
        return self.at


def add_items(count: int, *, state: str = "done", at: int = 0) -> Callable[[Tx], None]:
    def fn(tx: Tx) -> None:
        tx.executemany(
            "INSERT INTO items (item_id, agent_id, state, at) VALUES (?, ?, ?, ?)",
            [(f"{state}{at}-{n}", "ab"[n % 2], state, at) for n in range(count)],
        )

    return fn


def rows_of(path: Path) -> int:
    connection = sqlite3.connect(path)
    try:
        return int(connection.execute("SELECT count(*) FROM items").fetchone()[0])
    finally:
        connection.close()


async def test_a_backup_is_whole_and_private_and_taken_beside_writes(store: Database) -> None:
    await store.write(add_items(50))
    async with asyncio.TaskGroup() as group:
        backing_up = group.create_task(store.back_up())
        for n in range(20):
            group.create_task(store.write(add_items(1, at=n + 1)))
    backup = backing_up.result()
    assert backup.parent == store.path.parent / "backups"
    assert 50 <= rows_of(backup) <= 70
    assert backup.stat().st_mode & 0o777 == 0o600
    assert latest(store.backups) == backup
    assert [entry.name for entry in store.backups.iterdir()] == [backup.name]


async def test_only_the_newest_backups_are_kept(
    open_store: Opener, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = await open_store()
    monkeypatch.setattr(store, "_clock", FixedWall())
    made = [await store.back_up(keep=3) for _ in range(5)]
    assert backups(store.backups) == made[2:]
    days = [taken_at(path) for path in made]
    assert days == sorted(day for day in days if day is not None)


async def test_a_clock_far_off_neither_removes_nor_reorders_backups(
    open_store: Opener, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = await open_store()
    wall = FixedWall()
    monkeypatch.setattr(store, "_clock", wall)
    made = [await store.back_up(keep=3) for _ in range(3)]
    (store.backups / "hand-20200101T000000.000Z.db").touch()
    for years in (1, -2):
        wall.at += years * 365 * 86_400_000
        made.append(await store.back_up(keep=3))
        assert latest(store.backups) == made[-1]
    assert [path for path in backups(store.backups) if path.name.startswith("state")] == made[2:]
    assert (store.backups / "hand-20200101T000000.000Z.db").exists()


async def test_leftovers_of_a_killed_backup_are_not_taken_for_one(store: Database) -> None:
    store.backups.mkdir()
    leftover = store.backups / "state-20270101T000000.000Z.db.partial"
    leftover.write_bytes(b"half")
    assert latest(store.backups) is None
    made = await store.back_up()
    assert list(store.backups.iterdir()) == [made]


async def test_a_backup_that_can_not_be_written_leaves_nothing_and_says_why(
    store: Database,
) -> None:
    store.backups.write_text("a file where the directory should be")
    with pytest.raises(StoreUnavailable, match="backups"):
        await store.back_up()
    assert store.backups.read_text().startswith("a file")


async def test_retention_deletes_what_is_old_and_counts_it(store: Database) -> None:
    clock = SystemClock()
    now = clock.now_ms()
    await store.write(add_items(1_000, at=now - 10_000))
    await store.write(add_items(7, at=now))
    await store.write(add_items(9, state="queued", at=now - 10_000))
    rule = Retention(
        table="items",
        where="state = 'done' AND at < :cutoff",
        keep_ms=5_000,
        count_by=("agent_id", "state"),
        batch_max=100,
    )
    assert await prune(store, [rule], clock=clock, pause_s=0) == {"items": 1_000}
    left = await store.read(lambda r: r.all("SELECT state, count(*) FROM items GROUP BY 1"))
    assert {tuple(row) for row in left} == {("done", 7), ("queued", 9)}
    totals = await store.read(lambda r: r.all("SELECT * FROM totals ORDER BY agent_id"))
    assert [tuple(row) for row in totals] == [("a", "done", 500), ("b", "done", 500)]
    assert await prune(store, [rule], clock=clock, pause_s=0) == {"items": 0}


async def test_retention_works_in_small_batches_that_others_get_between(store: Database) -> None:
    sizes: list[int] = []

    def note(tx: Tx, pruned: Pruned) -> None:
        sizes.append(pruned.rows)

    await store.write(add_items(500))
    rule = Retention(table="items", where="at < :cutoff", keep_ms=0, key="item_id", batch_max=100)
    before = store.stats.commits
    await prune(store, [rule], clock=SystemClock(), on_pruned=note, pause_s=0)
    assert sum(sizes) == 500
    assert max(sizes) <= 100
    assert store.stats.commits - before >= len(sizes)


async def test_a_hook_that_fails_keeps_the_rows(store: Database) -> None:
    def fail(tx: Tx, pruned: Pruned) -> None:
        raise ValueError("no totals")

    await store.write(add_items(5))
    rule = Retention(table="items", where="at < :cutoff", keep_ms=0)
    with pytest.raises(ValueError, match="no totals"):
        await prune(store, [rule], clock=SystemClock(), on_pruned=fail)
    assert rows_of(store.path) == 5


async def test_the_probe_commits_a_row(store: Database) -> None:
    before = store.stats.commits
    assert await probe(store, clock=SystemClock()) is None
    assert store.stats.commits == before + 1
    row = await store.read(lambda r: r.scalar("SELECT value FROM store_meta WHERE key = 'probe'"))
    assert row


async def test_the_probe_tells_of_a_closed_store(store: Database) -> None:
    await store.close()
    assert "is closed" in (await probe(store, clock=SystemClock()) or "")


async def test_a_clock_a_year_ahead_for_an_hour_prunes_little(
    open_store: Opener, monkeypatch: pytest.MonkeyPatch
) -> None:
    store, wall, day = await open_store(), LoopClock(), 86_400_000
    first = await PruningClock(store, wall).now_ms()
    close = partial(pytest.approx, abs=60_000)  # real time passes too
    assert first == close(wall.now_ms())
    wall.skip_ms(day)
    pruning = PruningClock(store, wall)
    wall.jump_ms(365 * day)
    assert await pruning.now_ms() == close(first + day), "a start takes a day at most"
    wall.skip_ms(3_600_000)
    assert await pruning.now_ms() == close(first + day + CATCH_UP * 3_600_000)
    wall.jump_ms(-365 * day)
    assert await pruning.now_ms() == close(wall.now_ms())
    for _ in range(24 * 10):
        wall.skip_ms(3_600_000)
        assert await pruning.now_ms() == close(wall.now_ms()), "a right clock is followed"
