"""Full, read-only and failing disks: nobody is told a lie, and work resumes by itself."""

from __future__ import annotations

import asyncio
import os
import resource
import sqlite3
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from agentsup.kit.clock import SystemClock
from agentsup.model.errors import StoreCorrupt, StoreUnavailable
from agentsup.store import Database, Runner, Tx, probe

Opener = Callable[..., Awaitable[Database]]


def insert(item_id: str, size: int = 10) -> Callable[[Tx], None]:
    def fn(tx: Tx) -> None:
        tx.execute("INSERT INTO items (item_id, body) VALUES (?, ?)", (item_id, "x" * size))

    return fn


async def pragma(runner: Runner, sql: str) -> None:
    await runner.write(lambda connection: connection.execute(sql).fetchall())


async def count(store: Database) -> int:
    return int(await store.read(lambda r: r.scalar("SELECT count(*) FROM items")))


@contextmanager
def no_file_may_grow_beyond(size: int) -> Iterator[None]:
    """Real failing writes: the kernel refuses them with EFBIG, SQLite reports an I/O error."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


async def test_an_io_error_at_commit_acknowledges_nobody_and_passes(
    store: Database, path: Path
) -> None:
    await store.write(insert("before"))
    wal = path.with_name(path.name + "-wal")
    told: list[str] = []
    undone: list[str] = []

    def with_callback(tx: Tx) -> None:
        insert("c")(tx)
        tx.after_commit(lambda: told.append("c"))
        tx.after_rollback(lambda: undone.append("c"))

    with no_file_may_grow_beyond(wal.stat().st_size):
        results = await asyncio.gather(
            store.write(insert("a")),
            store.write(insert("b")),
            store.write(with_callback),
            return_exceptions=True,
        )
    assert [type(result) for result in results] == [StoreUnavailable] * 3
    assert len({id(result) for result in results}) == 3, "each caller gets an error of its own"
    first = results[0]
    assert isinstance(first, StoreUnavailable)
    assert first.facts["reason"] == "io_error"
    assert str(path) in first.message
    assert (told, undone) == ([], ["c"])
    assert store.stats.failed_commits == 1
    assert await count(store) == 1
    await store.write(insert("after"))
    assert await count(store) == 2
    assert store.stats.failed_commits == 1


async def test_an_io_error_inside_a_function_undoes_its_whole_batch(store: Database) -> None:
    def failing_disk(tx: Tx) -> None:
        error = sqlite3.OperationalError("disk I/O error")
        error.sqlite_errorcode = sqlite3.SQLITE_IOERR
        raise error

    results = await asyncio.gather(
        store.write(insert("a")), store.write(failing_disk), return_exceptions=True
    )
    assert [type(result) for result in results] == [StoreUnavailable] * 2
    await store.write(insert("a"))  # neither stored nor in the way
    assert await count(store) == 1


async def test_a_read_only_database_refuses_with_the_remedy_and_resumes(
    open_store: Opener, make_runner: Callable[[], Runner]
) -> None:
    runner = make_runner()
    store = await open_store(runner)
    await pragma(runner, "PRAGMA query_only = ON")
    with pytest.raises(StoreUnavailable, match="Make it writable") as refusal:
        await store.write(insert("a"))
    assert refusal.value.facts["reason"] == "read_only"
    assert "Make it writable" in (await probe(store, clock=SystemClock()) or "")
    await pragma(runner, "PRAGMA query_only = OFF")
    await store.write(insert("a"))
    assert await probe(store, clock=SystemClock()) is None


async def fill(runner: Runner) -> None:
    """Let SQLite report a full disk: no page may be added, nor taken from the free list."""
    await pragma(runner, "PRAGMA max_page_count = 1")


async def test_a_full_disk_refuses_everyone_frees_the_reserve_and_resumes(
    open_store: Opener, make_runner: Callable[[], Runner], path: Path
) -> None:
    runner = make_runner()
    store = await open_store(runner, reserve_bytes=1_000_000)
    reserve = path.with_name("state.db-reserve")
    assert reserve.stat().st_blocks * 512 >= 1_000_000
    await fill(runner)
    results = await asyncio.gather(
        store.write(insert("small")),
        store.write(insert("big", 100_000)),
        return_exceptions=True,
    )
    assert [type(result) for result in results] == [StoreUnavailable] * 2
    for result in results:
        assert isinstance(result, StoreUnavailable)
        assert result.facts["reason"] == "disk_full"
        assert "Free some space" in result.message
    assert not reserve.exists()
    assert store.stats.is_disk_low
    await pragma(runner, "PRAGMA max_page_count = 1000000")
    await store.write(insert("big", 100_000))
    assert reserve.exists(), "there is space again: the reserve is taken back first"
    assert not store.stats.is_disk_low
    assert await count(store) == 1


async def test_without_a_reserve_only_closing_and_urgent_writes_are_taken(
    open_store: Opener, monkeypatch: pytest.MonkeyPatch, path: Path
) -> None:
    store = await open_store(reserve_bytes=1_000_000)
    store._reserve.free()
    real = os.statvfs

    def nearly_full(where: Path) -> os.statvfs_result:
        values = list(real(where))
        values[4] = 10  # blocks available
        return os.statvfs_result(values)

    monkeypatch.setattr(os, "statvfs", nearly_full)
    with pytest.raises(StoreUnavailable, match="full"):
        await store.write(insert("new"))
    await store.write(insert("done"), closing=True)
    await store.write(insert("stop"), urgent=True)
    assert store.stats.is_disk_low
    assert "is full" in (await probe(store, clock=SystemClock()) or "")
    monkeypatch.undo()
    await store.write(insert("new"))
    assert await count(store) == 3


async def test_the_reserve_is_given_back_at_the_end(open_store: Opener, path: Path) -> None:
    store = await open_store(reserve_bytes=1_000_000)
    assert path.with_name("state.db-reserve").exists()
    await store.close()
    assert sorted(entry.name for entry in path.parent.iterdir()) == ["state.db"]


async def test_a_lock_of_another_program_refuses_and_passes(open_store: Opener, path: Path) -> None:
    store = await open_store(busy_timeout_ms=20)
    other = sqlite3.connect(path, isolation_level=None)
    try:
        other.execute("BEGIN IMMEDIATE")
        with pytest.raises(StoreUnavailable, match="Another program") as refusal:
            await store.write(insert("a"))
        assert refusal.value.facts["reason"] == "busy"
        other.execute("COMMIT")
        await store.write(insert("a"))
    finally:
        other.close()


async def test_a_file_removed_under_the_store_is_noticed_before_anything_is_confirmed(
    store: Database, path: Path
) -> None:
    await store.write(insert("a"))
    away = path.rename(path.with_name("away.db"))
    with pytest.raises(StoreUnavailable, match="removed or replaced") as refusal:
        await store.write(insert("b"))
    assert refusal.value.facts["reason"] == "file_replaced"
    path.write_bytes(b"")
    with pytest.raises(StoreUnavailable, match="removed or replaced"):
        await store.write(insert("b"))
    away.replace(path)
    await store.write(insert("b"))
    assert await count(store) == 2


async def test_a_directory_that_is_not_there(open_store: Opener, path: Path) -> None:
    path.parent.rmdir()
    with pytest.raises(StoreUnavailable, match="can't be opened") as refusal:
        await open_store()
    assert refusal.value.facts["reason"] == "cannot_open"
    assert not path.parent.exists()


async def test_a_database_of_another_program_is_left_alone(open_store: Opener, path: Path) -> None:
    other = sqlite3.connect(path)
    other.execute("CREATE TABLE bookmarks (url)")
    other.close()
    with pytest.raises(StoreUnavailable, match="another program") as refusal:
        await open_store()
    assert refusal.value.facts["reason"] == "foreign_file"
    other = sqlite3.connect(path)
    assert [row[0] for row in other.execute("SELECT name FROM sqlite_schema")] == ["bookmarks"]
    other.close()


async def test_a_file_that_is_no_database_is_refused(open_store: Opener, path: Path) -> None:
    path.write_bytes(b"junk " * 1000)
    with pytest.raises(StoreCorrupt, match="There is no backup"):
        await open_store()
    assert path.read_bytes() == b"junk " * 1000


def clean_flag(path: Path) -> str:
    connection = sqlite3.connect(path)
    try:
        row = connection.execute("SELECT value FROM store_meta WHERE key = 'clean'").fetchone()
        return str(row[0])
    finally:
        connection.close()


async def test_only_a_store_closed_in_order_counts_as_clean(open_store: Opener, path: Path) -> None:
    for _ in range(2):
        store = await open_store()
        assert clean_flag(path) == "0"
        await store.close()
        assert clean_flag(path) == "1"


async def unclean_copy(open_store: Opener, path: Path) -> Path:
    """A store with content and a backup, whose last process did not close it. Returns the backup."""
    store = await open_store()
    for n in range(200):
        await store.write(insert(f"i{n}", 500))
    backup = await store.back_up()
    await store.close()
    connection = sqlite3.connect(path)
    connection.execute("UPDATE store_meta SET value = '0' WHERE key = 'clean'")
    connection.commit()
    connection.execute("PRAGMA journal_mode = DELETE")
    connection.close()
    return backup


def damage(path: Path) -> None:
    with path.open("r+b") as file:
        for page in range(4, 20):
            file.seek(page * 4096)
            file.write(b"\xff" * 2000)


async def test_after_an_unclean_end_a_damaged_file_is_refused_with_the_last_good_backup(
    open_store: Opener, path: Path
) -> None:
    backup = await unclean_copy(open_store, path)
    damage(path)
    with pytest.raises(StoreCorrupt, match="damaged") as refusal:
        await open_store()
    assert refusal.value.facts["last_good_backup"] == str(backup)
    assert str(backup) in refusal.value.message
    # As the message says: move the damaged file away, copy the backup in its place.
    path.unlink()
    for suffix in ("-wal", "-shm"):
        path.with_name(path.name + suffix).unlink(missing_ok=True)
    path.write_bytes(backup.read_bytes())
    restored = await open_store()
    assert await count(restored) == 200


async def test_a_sound_file_opens_after_an_unclean_end(open_store: Opener, path: Path) -> None:
    await unclean_copy(open_store, path)
    assert await count(await open_store()) == 200


async def test_damage_found_while_running_is_told_as_damage(open_store: Opener, path: Path) -> None:
    await unclean_copy(open_store, path)
    connection = sqlite3.connect(path)
    connection.execute("UPDATE store_meta SET value = '1' WHERE key = 'clean'")
    connection.commit()
    connection.close()
    damage(path)
    store = await open_store()
    with pytest.raises(StoreCorrupt):
        await store.write(lambda tx: tx.all("SELECT * FROM items ORDER BY body"))
    with pytest.raises(StoreCorrupt):
        await store.read(lambda r: r.all("SELECT * FROM items ORDER BY body"))


async def test_a_large_file_is_checked_beside_the_first_work_and_damage_ends_the_store(
    open_store: Opener, path: Path
) -> None:
    backup = await unclean_copy(open_store, path)
    damage(path)
    store = await open_store(check_at_once_bytes=0)
    await check_ended(store)
    for _ in range(2):
        with pytest.raises(StoreCorrupt, match="damaged") as refusal:
            await store.write(insert("late"))
        assert refusal.value.facts["last_good_backup"] == str(backup)
    await store.close()
    assert clean_flag(path) == "0"


async def check_ended(store: Database) -> None:
    """Wait until the check that runs beside the first work has ended."""
    assert store._check is not None
    await asyncio.wait({store._check})


async def test_a_large_sound_file_counts_as_clean_once_it_was_checked(
    open_store: Opener, path: Path
) -> None:
    await unclean_copy(open_store, path)
    store = await open_store(check_at_once_bytes=0)
    await check_ended(store)
    await store.write(insert("late"))
    await store.close()
    assert clean_flag(path) == "1"
