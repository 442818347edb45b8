"""The record of a store where its disk is full, and backups that are not whole."""

from __future__ import annotations

import errno
import shutil
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from agentsup.model.errors import NotFound, StoreCorrupt
from agentsup.store import backup, record, restoring
from agentsup.store.identity import StoreCondition
from agentsup.store.record import StoreRecord, path_beside, read_record
from tests.support.empty_store import lay_store


def kept(store: Path) -> StoreRecord:
    """The record of a store that is open."""
    made = StoreRecord(store, now_ms=lambda: 7, new_id=lambda: "store_a")
    made.begin()
    with closing(sqlite3.connect(store, isolation_level=None)) as connection:
        made.opened(connection)
    return made


def test_the_end_is_noted_without_room_for_another_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = lay_store(tmp_path / "state.db")
    made = kept(store)
    size = path_beside(store).stat().st_size

    def full(*_: object, **__: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(record, "write_atomic", full)
    made.closed(3)
    found = read_record(path_beside(store))
    assert found is not None
    assert (found.condition, found.sequence) == (StoreCondition.CLOSED, 3)
    assert path_beside(store).stat().st_size == size


def test_a_backup_has_its_name_when_it_is_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store, target = lay_store(tmp_path / "state.db"), tmp_path / "copy.db"
    write = backup.write_copy

    def watched(connection: sqlite3.Connection, source: Path, copy: Path, *, at_ms: int) -> None:
        write(connection, source, copy, at_ms=at_ms)
        assert not target.exists()

    monkeypatch.setattr(backup, "write_copy", watched)
    target.with_name("copy.db.partial").write_bytes(b"of a command that was killed")
    restoring.copy_to(store, target, at_ms=5)
    assert restoring.unfinished(target).made_at == 5
    assert [path.name for path in tmp_path.glob("copy*")] == ["copy.db"]
    with pytest.raises(FileExistsError):
        restoring.copy_to(store, target, at_ms=6)


def test_the_newest_backup_that_can_be_used_is_chosen(tmp_path: Path) -> None:
    folder = tmp_path / "backups"
    folder.mkdir()
    with pytest.raises(NotFound):
        restoring.choose(tmp_path, None)
    empty = folder / f"hand-{backup.stamp(9)}-000009.db"
    empty.write_bytes(b"")
    with pytest.raises(StoreCorrupt, match="nothing in it"):
        restoring.choose(tmp_path, None)
    whole = folder / f"state-{backup.stamp(8)}-000008.db"
    restoring.copy_to(lay_store(tmp_path / "state.db"), whole, at_ms=8)
    shutil.copy(whole, folder / f"state-{backup.stamp(7)}-000007.db")
    chosen = restoring.choose(tmp_path, None)
    assert chosen.path == whole
    assert [path for path, _ in chosen.passed_over] == [empty]
    with pytest.raises(StoreCorrupt, match="nothing in it"):
        restoring.choose(tmp_path, empty.name)
