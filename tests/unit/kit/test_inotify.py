from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from agentsup.kit.inotify import Change, DirectoryChanges

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="Linux alone tells in this way")


@pytest.fixture
def changes(tmp_path: Path) -> Iterator[DirectoryChanges]:
    with closing(DirectoryChanges(tmp_path)) as made:
        yield made


def test_each_way_to_change_a_file_is_told(changes: DirectoryChanges, tmp_path: Path) -> None:
    kept = tmp_path / "kept with ä and\nlines"
    kept.write_text("1")
    assert {told.name for told in changes.read()} == {kept.name}
    kept.write_text("2")
    assert {told.name for told in changes.read()} == {kept.name}
    kept.chmod(0o600)
    assert [told.name for told in changes.read()] == [kept.name]
    kept.rename(tmp_path / "other")
    assert [told.name for told in changes.read()] == [kept.name, "other"]
    os.link(tmp_path / "other", kept)
    assert kept.name in {told.name for told in changes.read()}
    kept.unlink()
    assert kept.name in {told.name for told in changes.read()}
    assert changes.read() == []


def test_a_file_that_stays_open_is_told_at_its_end(
    changes: DirectoryChanges, tmp_path: Path
) -> None:
    with (tmp_path / "log").open("w") as log:
        changes.read()
        log.write("x")
        log.flush()
        assert changes.read() == []
    assert changes.read() == [Change("log", is_lost=False)]


@pytest.mark.parametrize("go", [Path.rmdir, lambda path: path.rename(path.with_name("moved"))])
def test_the_end_of_the_directory_is_told(tmp_path: Path, go: object) -> None:
    directory = tmp_path / "one"
    directory.mkdir()
    with closing(DirectoryChanges(directory)) as changes:
        assert callable(go)
        go(directory)
        found = changes.read()
    assert found[0] == Change("", is_lost=True)


def test_what_can_not_be_watched_is_refused_and_leaves_nothing_open(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_text("")
    before = len(os.listdir("/proc/self/fd"))  # noqa: PTH208 - there is no path for it
    for refused in (tmp_path / "missing", file):
        with pytest.raises(OSError, match=r"No such file|Not a directory"):
            DirectoryChanges(refused)
    assert len(os.listdir("/proc/self/fd")) == before  # noqa: PTH208
