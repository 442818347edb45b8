"""Files of a workspace, and every way out of it."""

from __future__ import annotations

import contextlib
import os
import shutil
import threading
from pathlib import Path

import pytest

from agentsup.agents.tools.files.tools import WorkspaceTree
from agentsup.model.errors import AgentsupError, BadRequest, Conflict, NotFound


@pytest.fixture
def outside(tmp_path: Path) -> Path:
    place = tmp_path / "outside"
    place.mkdir()
    (place / "secret").write_text("the secret")
    return place


@pytest.fixture
def root(tmp_path: Path, outside: Path) -> Path:
    place = tmp_path / "workspace"
    (place / "inner").mkdir(parents=True)
    (place / "a.txt").write_text("text")
    (place / "out").symlink_to(outside)
    (place / "secret").symlink_to(outside / "secret")
    (place / "loop").symlink_to("loop")
    return place


@pytest.mark.parametrize(
    "path",
    [
        "../outside/secret",
        "inner/../../outside/secret",
        "out/secret",
        "secret",
        "loop",
        "/etc/passwd",
        "~/secret",
        "a.txt/b",
        "a\0b",
        "",
        ".",
        "x" * 5000,
        "/proc/self/environ",
    ],
)
def test_nothing_outside_is_read_or_written(root: Path, outside: Path, path: str) -> None:
    tree = WorkspaceTree(str(root))
    with pytest.raises(AgentsupError):
        tree.read(path)
    with contextlib.suppress(AgentsupError):
        tree.write(path, b"changed")
    assert (outside / "secret").read_text() == "the secret"
    assert sorted(each.name for each in outside.iterdir()) == ["secret"]


def test_a_link_in_the_way_of_a_write_is_not_followed(root: Path, outside: Path) -> None:
    tree = WorkspaceTree(str(root))
    with pytest.raises(Conflict):
        tree.write("secret", b"x")
    with pytest.raises(BadRequest):
        tree.write("out/new", b"x")
    with pytest.raises(BadRequest):
        tree.make("out/new")
    with pytest.raises(BadRequest):
        tree.delete("out/secret")
    assert tree.delete("secret")
    assert (outside / "secret").exists()


def test_no_race_of_links_leads_out(root: Path, outside: Path) -> None:
    """A directory is swapped with a link to the outside all the time while files are written."""
    swapping = threading.Event()
    tree = WorkspaceTree(str(root))
    (root / "there").symlink_to(outside)
    (root / "here").mkdir()

    def swap() -> None:
        while not swapping.is_set():
            for name in ("here", "there"):
                try:
                    (root / name).rename(root / "d")
                except OSError:  # a write has made a directory in the moment between
                    shutil.rmtree(root / "d", ignore_errors=True)
                else:
                    (root / "d").rename(root / name)

    thread = threading.Thread(target=swap)
    thread.start()
    done = 0
    try:
        for _ in range(1500):
            with contextlib.suppress(AgentsupError):
                tree.write("d/file", b"mine")
                done += 1
            with contextlib.suppress(AgentsupError):
                assert tree.read("d/secret")[0] != b"the secret"
    finally:
        swapping.set()
        thread.join()
    assert done, "no write ever met the real directory"
    assert sorted(each.name for each in outside.iterdir()) == ["secret"]
    assert (outside / "secret").read_text() == "the secret"


def test_what_is_no_file_is_not_opened(root: Path) -> None:
    os.mkfifo(root / "pipe")
    tree = WorkspaceTree(str(root))
    with pytest.raises(Conflict):
        tree.read("pipe")
    with pytest.raises(Conflict):
        tree.write("pipe", b"x")


@pytest.mark.parametrize("path", [".git/hooks/pre-commit", "a/.claude/settings.json", ".MCP.json"])
def test_what_programs_take_orders_from_is_not_written(root: Path, path: str) -> None:
    with pytest.raises(BadRequest):
        WorkspaceTree(str(root)).write(path, b"x")


def test_a_file_is_replaced_as_a_whole_and_keeps_its_mode(root: Path) -> None:
    tree = WorkspaceTree(str(root))
    (root / "a.txt").chmod(0o600)
    assert tree.write("a.txt", b"new") is False
    assert tree.write("x/y/z.txt", b"new") is True
    assert (root / "a.txt").read_bytes() == (root / "x/y/z.txt").read_bytes() == b"new"
    assert (root / "a.txt").stat().st_mode & 0o777 == 0o600
    assert not list(root.rglob("*.part"))


def test_looking(root: Path) -> None:
    tree = WorkspaceTree(str(root))
    entries, is_more = tree.list(".")
    assert {entry.name: entry.kind for entry in entries} == {
        "a.txt": "file",
        "inner": "directory",
        "loop": "link",
        "out": "link",
        "secret": "link",
    }
    assert not is_more
    assert tree.stat("secret").kind == "link"
    assert tree.read("a.txt", offset=1, limit=2) == (b"ex", 4)
    with pytest.raises(NotFound):
        tree.stat("nowhere/x")
    assert tree.delete("nowhere/x") is False
