"""Folders of tasks: nothing of anyone's work is lost on doubt."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

import pytest

from agentsup.tasks.folders import MAX_NOTES_BYTES, NOTES, FolderMaker, Folders
from tests.support.bound import BOUND_S


@pytest.fixture
def folders(tmp_path: Path) -> Folders:
    root = tmp_path / "tasks"
    return Folders(root, lambda task_id: root / task_id)


def test_what_is_there_stays(folders: Folders) -> None:
    folder = folders.make("task_1", "sheep")
    (folder / NOTES).write_text("mine")
    assert folders.make("task_1", "goats") == folder
    assert (folder / NOTES).read_text() == "mine"


def test_a_folder_that_was_lost_is_made_again(folders: Folders) -> None:
    folders.note("task_1", "sheep", "one")
    assert folders.read("task_1", 100) == "# sheep\n\none\n"


def test_reading_is_bounded_and_follows_no_link(folders: Folders, tmp_path: Path) -> None:
    folders.note("task_1", "sheep", "é" * 1000)
    assert len(folders.read("task_1", 50)) == 50
    secret = tmp_path / "secret"
    secret.write_text("s")
    notes = folders.of("task_1") / NOTES
    notes.unlink()
    notes.symlink_to(secret)
    assert folders.read("task_1", 50) == ""
    with pytest.raises(OSError, match="is a link, not a plain file"):
        folders.note("task_1", "sheep", "x")
    assert secret.read_text() == "s"


def test_full_notes_refuse_more(folders: Folders) -> None:
    folders.note("task_1", "sheep", "x" * (MAX_NOTES_BYTES - 100))
    with pytest.raises(OSError, match="is full"):
        folders.note("task_1", "sheep", "y" * 200)


def test_two_deleted_tasks_of_one_name_are_both_kept(folders: Folders) -> None:
    for text in ("one", "two"):
        folders.note("task_1", "sheep", text)
        folders.move_to_deleted("task_1")
    assert folders.move_to_deleted("task_1") is None
    kept = folders.of("x").parent / ".deleted"
    assert sorted(path.name for path in kept.iterdir()) == ["task_1", "task_1.2"]


def test_only_what_was_put_away_long_ago_goes(folders: Folders) -> None:
    folders.note("task_1", "sheep", "one")
    folders.note("task_2", "goats", "two")
    away = folders.move_to_deleted("task_1")
    assert away is not None
    (away.parent / "somebody's").mkdir()
    moved_at = away.stat().st_ctime
    assert folders.purge(moved_at) == []
    assert folders.purge(moved_at + 1) == ["task_1"]
    assert [path.name for path in away.parent.iterdir()] == ["somebody's"]
    assert folders.of("task_2").is_dir()


@pytest.mark.timeout(5)
def test_a_pipe_instead_of_the_notes_keeps_nobody_waiting(folders: Folders) -> None:
    folder = folders.make("task_1", "sheep")
    (folder / NOTES).unlink()
    os.mkfifo(folder / NOTES)
    assert folders.read("task_1", 50) == ""
    with pytest.raises(OSError, match="is a pipe, not a plain file"):
        folders.note("task_1", "sheep", "x")
    descriptor = os.open(folder / NOTES, os.O_RDWR | os.O_NONBLOCK)  # somebody reads from it
    try:
        with pytest.raises(OSError, match="is a pipe, not a plain file"):
            folders.note("task_1", "sheep", "x")
    finally:
        os.close(descriptor)


async def test_folders_that_are_wanted_at_once_are_all_there(folders: Folders) -> None:
    maker = FolderMaker(folders)
    names = [f"task_{number}" for number in range(40)]

    async def want(name: str) -> None:
        await maker.prepare(name)
        assert folders.of(name).is_dir()

    async with asyncio.TaskGroup() as callers:
        for name in names:
            callers.create_task(want(name))
    folders.of("task_0").rmdir()
    await maker.prepare("task_0")
    assert folders.of("task_0").is_dir()


async def test_who_waits_behind_a_caller_that_has_gone_has_a_folder_all_the_same(
    folders: Folders, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first takes the second's wish along, and is cancelled before the pool has begun."""
    maker, begun = FolderMaker(folders), asyncio.Event()
    run = folders.run

    async def never(*given: object, **more: object) -> None:
        begun.set()
        await asyncio.Event().wait()

    async def want(name: str) -> None:
        await maker.prepare(name)
        assert folders.of(name).is_dir()

    await maker._turn.acquire()
    monkeypatch.setattr(folders, "run", never)
    async with asyncio.timeout(BOUND_S):
        first, second = asyncio.create_task(want("task_1")), asyncio.create_task(want("task_2"))
        await asyncio.sleep(0)  # both wait for the turn that is held
        maker._turn.release()
        await begun.wait()
        monkeypatch.setattr(folders, "run", run)
        first.cancel()
        await second
    assert first.cancelled()


async def test_a_disk_that_refuses_one_folder_makes_the_others(folders: Folders) -> None:
    folders.make("task_1", "sheep")
    folders.of("task_2").write_text("in its place")
    maker = FolderMaker(folders)
    await asyncio.gather(*(maker.prepare(f"task_{number}") for number in (2, 3)))
    assert folders.of("task_3").is_dir()
