"""The parts of the store that decide or hold something without a running database."""

from __future__ import annotations

import os
import sqlite3
from pathlib import Path

import pytest

from agentsup.model.errors import StoreCorrupt, StoreUnavailable
from agentsup.store.backup import backups, taken_at
from agentsup.store.failures import StoreFault, again, condition_of, unavailable
from agentsup.store.migrate import load, packaged
from agentsup.store.reserve import DiskReserve
from agentsup.store.retention import _next_limit

HOME = Path("/home/ada/.agentsup/state.db")


def error_with(code: int) -> sqlite3.Error:
    error = sqlite3.OperationalError("as SQLite says it")
    error.sqlite_errorcode = code
    return error


@pytest.mark.parametrize("trouble", list(StoreFault))
def test_every_trouble_has_a_sentence_that_names_the_file(trouble: StoreFault) -> None:
    error = unavailable(trouble, HOME)
    assert str(HOME) in error.message
    assert error.facts["reason"] == trouble.value
    assert "{" not in error.message


@pytest.mark.parametrize(
    "code, reason",
    [
        (sqlite3.SQLITE_FULL, "disk_full"),
        (sqlite3.SQLITE_READONLY | (4 << 8), "read_only"),  # SQLITE_READONLY_DBMOVED
        (sqlite3.SQLITE_IOERR | (3 << 8), "io_error"),  # SQLITE_IOERR_WRITE
        (sqlite3.SQLITE_IOERR | (19 << 8), "disk_full"),  # SQLITE_IOERR_SHMSIZE
        (sqlite3.SQLITE_BUSY, "busy"),
        (sqlite3.SQLITE_CANTOPEN, "cannot_open"),
        (sqlite3.SQLITE_NOMEM, "out_of_memory"),
    ],
)
def test_conditions_of_the_store_are_told_apart(code: int, reason: str) -> None:
    found = condition_of(error_with(code), HOME, lambda: None)
    assert isinstance(found, StoreUnavailable)
    assert found.facts["reason"] == reason
    assert "as SQLite says it" in found.message


@pytest.mark.parametrize(
    "error",
    [
        error_with(sqlite3.SQLITE_CONSTRAINT),
        error_with(sqlite3.SQLITE_ERROR),
        sqlite3.ProgrammingError("no code"),
        ValueError("not of SQLite"),
    ],
)
def test_a_mistake_of_the_caller_is_no_condition(error: Exception) -> None:
    assert condition_of(error, HOME, lambda: None) is None


def test_damage_names_the_way_back() -> None:
    backup = HOME.parent / "backups" / "state-x.db"
    found = condition_of(error_with(sqlite3.SQLITE_CORRUPT), HOME, lambda: backup)
    assert isinstance(found, StoreCorrupt)
    assert str(backup) in found.message
    assert f"`agentsup --home {HOME.parent} restore`" in found.message


def test_an_error_for_another_caller_is_equal_but_not_the_same() -> None:
    first = unavailable(StoreFault.FULL, HOME)
    second = again(first)
    assert second is not first
    assert (type(second), second.message, second.facts) == (type(first), first.message, first.facts)


def test_migrations_are_read_in_order(tmp_path: Path) -> None:
    (tmp_path / "0002_b.sql").write_text("two")
    (tmp_path / "0001_a.sql").write_text("one")
    (tmp_path / "README.md").write_text("not a migration")
    assert [(m.version, m.name, m.sql) for m in load(tmp_path)] == [
        (1, "a", "one"),
        (2, "b", "two"),
    ]


@pytest.mark.parametrize(
    "names, complaint",
    [
        (["0001_a.sql", "0003_c.sql"], "without gaps"),
        (["0001_a.sql", "0001_b.sql"], "without gaps"),
        (["0002_b.sql"], "without gaps"),
        (["1_a.sql"], "NNNN_name"),
        (["0001_A.sql"], "NNNN_name"),
    ],
)
def test_migrations_that_make_no_sequence_are_refused(
    tmp_path: Path, names: list[str], complaint: str
) -> None:
    for name in names:
        (tmp_path / name).write_text("")
    with pytest.raises(ValueError, match=complaint):
        load(tmp_path)


def test_the_packaged_migrations_are_a_sequence() -> None:
    assert [m.version for m in packaged()] == list(range(1, len(packaged()) + 1))
    assert packaged()


def test_only_finished_backups_count_oldest_first(tmp_path: Path) -> None:
    names = [
        "state-20270102T000000.000Z.db",
        "state-20270101T235959.999Z.db",
        "state-20270103T000000.000Z.db.partial",
        "state-mine.db",
        "other.db",
    ]
    for name in names:
        (tmp_path / name).touch()
    found = backups(tmp_path)
    assert [path.name for path in found] == [names[1], names[0]]
    first, second = (taken_at(path) for path in found)
    assert first is not None
    assert second == first + 1
    assert backups(tmp_path / "nowhere") == []


def test_the_reserve_takes_real_space_and_gives_it_back(tmp_path: Path) -> None:
    reserve = DiskReserve(tmp_path / "r", 100_000)
    assert not reserve.is_allocated
    assert reserve.allocate()
    assert (tmp_path / "r").stat().st_blocks * 512 >= 100_000
    assert DiskReserve(tmp_path / "r", 100_000).allocate(), (
        "what a killed process left is taken over"
    )
    reserve.free()
    assert not reserve.is_allocated
    assert not (tmp_path / "r").exists()
    reserve.free()


def test_the_reserve_is_not_taken_where_space_is_short(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    values = list(os.statvfs(tmp_path))
    values[0], values[1], values[4] = 1_000, 1_000, 199
    monkeypatch.setattr(os, "statvfs", lambda where: os.statvfs_result(values))
    reserve = DiskReserve(tmp_path / "r", 100_000)
    assert not reserve.allocate()
    assert not (tmp_path / "r").exists()
    values[4] = 200
    assert reserve.allocate()


def test_a_reserve_of_nothing_is_always_held(tmp_path: Path) -> None:
    reserve = DiskReserve(tmp_path / "r", 0)
    assert reserve.is_allocated
    reserve.free()
    assert reserve.allocate()
    assert not (tmp_path / "r").exists()


@pytest.mark.parametrize(
    "limit, elapsed_ms, expected",
    [(32, 1.0, 64), (400, 1.0, 500), (100, 7.0, 100), (100, 15.0, 50), (1, 90.0, 1)],
)
def test_retention_batches_follow_the_time_they_take(
    limit: int, elapsed_ms: float, expected: int
) -> None:
    assert _next_limit(limit, elapsed_ms, most=500) == expected
