"""The store against what only a real process and a real disk can do to it."""

from __future__ import annotations

import os
import random
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from functools import partial
from pathlib import Path

import pytest

from agentsup.kit.clock import SystemClock
from agentsup.model.errors import StoreUnavailable
from agentsup.store import Database, StoreOptions, Tx
from tests.support.bound import BOUND_S

pytestmark = pytest.mark.process

WRITERS = Path(__file__).with_name("writers.py")
SCHEMA = "CREATE TABLE items (item_id TEXT, half INTEGER, PRIMARY KEY (item_id, half)) STRICT;"


@pytest.fixture
def migrations(tmp_path: Path) -> Path:
    directory = tmp_path / "migrations"
    directory.mkdir()
    (directory / "0001_items.sql").write_text(SCHEMA)
    return directory


def live(path: Path, migrations: Path, boot: str, confirmations: int, **env: str) -> list[str]:
    """Run the writers until that many confirmations were seen, kill; every id confirmed."""
    command = [sys.executable, str(WRITERS), str(path), str(migrations), boot]
    with subprocess.Popen(command, stdout=subprocess.PIPE, env={**os.environ, **env}) as child:
        assert child.stdout is not None
        lines = []
        for line in child.stdout:
            lines.append(line)
            if len(lines) == confirmations:
                child.kill()
        assert child.wait(timeout=BOUND_S) == -signal.SIGKILL
    # A line cut by the kill was still confirmed before it was printed, but can't be read.
    return [line.decode().strip() for line in lines if line.endswith(b"\n")]


def check(path: Path, confirmed: set[str]) -> int:
    """Plain SQL over the file as the kill left it; returns the stored but unconfirmed."""
    with closing(sqlite3.connect(path)) as connection:
        assert connection.execute("PRAGMA integrity_check").fetchone() == ("ok",)
        rows = connection.execute("SELECT item_id, count(*) FROM items GROUP BY 1").fetchall()
        half = [item_id for item_id, count in rows if count != 2]
        assert half == []
        stored = {item_id for item_id, _ in rows}
        assert confirmed - stored == set()
        return len(stored - confirmed)


def test_sigkill_loses_nothing_that_was_confirmed(tmp_path: Path, migrations: Path) -> None:
    path = tmp_path / "state.db"
    confirmed: set[str] = set()
    seed = random.randrange(1 << 32)
    print("seed", seed)
    chance = random.Random(seed)
    for boot in range(20):
        found = live(path, migrations, str(boot), chance.randint(1, 1_500))
        assert found
        confirmed |= set(found)
        check(path, confirmed)


@pytest.mark.parametrize("point", ["store.before_commit", "store.after_commit"])
def test_sigkill_at_the_commit(tmp_path: Path, migrations: Path, point: str) -> None:
    path = tmp_path / "state.db"
    confirmed: set[str] = set()
    unconfirmed = 0
    # Passings 1 is the migration's commit in the first life only.
    for boot, passing in enumerate([2, 3, 9]):
        found = live(path, migrations, str(boot), -1, AGENTSUP_FAULT=f"{point}:{passing}")
        confirmed |= set(found)
        unconfirmed = check(path, confirmed)
    if point == "store.before_commit":
        assert unconfirmed == 0
    else:
        assert unconfirmed > 0, "the kill fell between commit and confirmation"


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 4 MiB, for real ENOSPC and real read-only."""
    where = tmp_path / "disk"
    where.mkdir()
    mounting = ["mount", "-t", "tmpfs", "-o", "size=4m", "tmpfs", str(where)]
    if os.geteuid() != 0 or subprocess.run(mounting, check=False, capture_output=True).returncode:
        pytest.skip("mounting a file system needs the right to do so")
    try:
        yield where
    finally:
        subprocess.run(["umount", str(where)], check=True)


def add(number: int, tx: Tx, size: int = 4_000) -> int:
    tx.execute("INSERT INTO items (item_id, half) VALUES (?, ?)", (f"{number}" + "x" * size, 1))
    return number


async def open_on(disk: Path, migrations: Path) -> Database:
    return await Database.open(
        disk / "state.db",
        clock=SystemClock(),
        migrations=migrations,
        options=StoreOptions(reserve_bytes=512 * 1024),
    )


async def fill(store: Database, stored: list[int]) -> None:
    for number in range(2_000):
        stored.append(await store.write(partial(add, number)))  # noqa: PERF401 - kept when it raises


async def test_a_really_full_disk(small_disk: Path, migrations: Path) -> None:
    store = await open_on(small_disk, migrations)
    ballast = small_disk / "ballast"
    ballast.write_bytes(b"\0" * 1_500_000)
    stored: list[int] = []
    try:
        with pytest.raises(StoreUnavailable) as refusal:
            await fill(store, stored)
        assert refusal.value.facts["reason"] == "disk_full"
        assert not (small_disk / "state.db-reserve").exists()
        # New work stays refused; what closes work uses the space of the reserve.
        with pytest.raises(StoreUnavailable):
            await store.write(lambda tx: add(10_000, tx))
        stored.append(await store.write(lambda tx: add(20_000, tx), closing=True))
        ballast.unlink()
        stored.append(await store.write(lambda tx: add(30_000, tx)))
        assert (small_disk / "state.db-reserve").exists()
        assert await store.read(lambda r: r.scalar("SELECT count(*) FROM items")) == len(stored)
    finally:
        await store.close()
    with closing(sqlite3.connect(small_disk / "state.db")) as connection:
        assert connection.execute("PRAGMA integrity_check").fetchone() == ("ok",)
        assert connection.execute("SELECT count(*) FROM items").fetchone() == (len(stored),)


async def test_a_really_read_only_disk(small_disk: Path, migrations: Path) -> None:
    store = await open_on(small_disk, migrations)
    await store.write(lambda tx: add(1, tx))
    await store.close()
    subprocess.run(["mount", "-o", "remount,ro", str(small_disk)], check=True)
    with pytest.raises(StoreUnavailable) as refusal:
        await open_on(small_disk, migrations)
    assert refusal.value.facts["reason"] in {"read_only", "cannot_open"}
    assert str(small_disk) in refusal.value.message
    subprocess.run(["mount", "-o", "remount,rw", str(small_disk)], check=True)
    store = await open_on(small_disk, migrations)
    assert await store.read(lambda r: r.scalar("SELECT count(*) FROM items")) == 1
    await store.close()
