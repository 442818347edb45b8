"""Backups that are not whole, and which one is chosen."""

from __future__ import annotations

import shutil
import sqlite3
from pathlib import Path

import pytest

from agentsup.model.errors import NotFound, StoreCorrupt
from agentsup.store import backup, restoring
from tests.support.empty_store import lay_store


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
