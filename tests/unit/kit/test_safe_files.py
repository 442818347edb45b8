"""The door to what agents can write: whatever stands under a name, nothing hangs and nothing grows."""

from __future__ import annotations

import errno
import fcntl
import os
import signal
import socket
import stat
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from agentsup.kit.safe_files import (
    FileTooLong,
    GuardedFolder,
    NotRegularFile,
    PathEscapes,
    names_of,
    read_plain,
)

NAME = "notes.md"
LIMIT = 4096


def a_pipe(at: Path) -> None:
    os.mkfifo(at)


def a_socket(at: Path) -> None:
    with socket.socket(socket.AF_UNIX) as made:
        here = os.open(at.parent, os.O_RDONLY)
        try:
            made.bind(f"/proc/self/fd/{here}/{at.name}")  # a socket's path is short
        finally:
            os.close(here)


def a_directory(at: Path) -> None:
    (at / "inner").mkdir(parents=True)


def a_loop(at: Path) -> None:
    at.symlink_to(at.name)


def a_link_to_a_device(at: Path) -> None:
    at.symlink_to("/dev/zero")


def a_link_outside(at: Path) -> None:
    outside = at.parent.parent / "precious"
    outside.write_bytes(b"precious")
    at.symlink_to(outside)


def a_link_to_nothing(at: Path) -> None:
    at.symlink_to("/nonexistent/there")


NOT_PLAIN: list[Callable[[Path], None]] = [
    a_pipe,
    a_socket,
    a_directory,
    a_loop,
    a_link_to_a_device,
    a_link_outside,
    a_link_to_nothing,
]


@pytest.fixture
def root(tmp_path: Path) -> Path:
    place = tmp_path / "folder"
    place.mkdir()
    return place


@pytest.mark.parametrize("plant", NOT_PLAIN)
def test_what_is_no_plain_file_is_neither_read_nor_written(
    root: Path, plant: Callable[[Path], None]
) -> None:
    plant(root / NAME)
    folder = GuardedFolder(root)
    steps: list[Callable[[], object]] = [
        lambda: folder.head(NAME, LIMIT),
        lambda: folder.open(NAME),
        lambda: folder.append(NAME, b"x", LIMIT),
        lambda: folder.append(NAME, b"x", LIMIT, mode=0o644),
    ]
    for step in steps:
        with pytest.raises(NotRegularFile, match=rf"{NAME} is a "):
            step()
    assert not folder.create(NAME, b"x")
    assert (
        not (root.parent / "precious").exists()
        or (root.parent / "precious").read_bytes() == b"precious"
    )


@pytest.mark.parametrize("plant", NOT_PLAIN)
def test_what_stands_in_the_way_is_set_aside(root: Path, plant: Callable[[Path], None]) -> None:
    plant(root / NAME)
    was = os.lstat(root / NAME)
    folder = GuardedFolder(root)
    aside = folder.renew(NAME, b"ours", mode=0o444)
    assert aside == f"{NAME}.set-aside-1"
    assert os.lstat(root / aside).st_ino == was.st_ino
    assert folder.head(NAME, LIMIT) == (b"ours", 4)
    assert folder.stat(NAME).st_mode & 0o777 == 0o444
    assert folder.renew(NAME, b"ours") == ""
    plant_again = root / NAME
    plant_again.unlink()
    plant_again.mkdir()
    assert folder.renew(NAME, b"ours") == f"{NAME}.set-aside-2"


@pytest.mark.parametrize("plant", [p for p in NOT_PLAIN if p is not a_directory])
def test_a_directory_on_the_way_is_no_link_and_nothing_else(
    root: Path, plant: Callable[[Path], None]
) -> None:
    plant(root / "inner")
    folder = GuardedFolder(root)
    for step in (
        lambda: folder.head(f"inner/{NAME}", LIMIT),
        lambda: folder.renew(f"inner/{NAME}", b"x"),
        lambda: folder.make("inner/deeper"),
        lambda: folder.list("inner", 10),
        lambda: folder.remove(f"inner/{NAME}"),
    ):
        with pytest.raises(OSError) as refused:
            step()
        assert refused.value.errno in (errno.ELOOP, errno.ENOTDIR)


def test_the_folder_itself_may_be_a_link_of_its_owner(root: Path) -> None:
    """Its own name lies where no program of an agent writes."""
    (root.parent / "linked").symlink_to(root)
    GuardedFolder(root.parent / "linked").write(NAME, b"x")
    assert (root / NAME).read_bytes() == b"x"
    (root.parent / "gone").symlink_to("nowhere")
    for plant in (a_pipe, a_socket, a_loop):
        plant(root.parent / plant.__name__)
    for name in ("gone", "a_pipe", "a_socket", "a_loop"):
        with pytest.raises(OSError):
            GuardedFolder(root.parent / name).make()


def test_a_folder_is_made_with_what_it_lies_in(tmp_path: Path) -> None:
    folder = GuardedFolder(tmp_path / "agents/ada/workspace")
    folder.make("in/here", mode=0o700)
    folder.make()
    folder.write("in/here/file", b"x", mode=0o600)
    assert [name for name, _ in folder.list("in/here", 10)[0]] == ["file"]
    assert folder.stat("").st_mode & 0o777 == 0o700


def test_a_file_beyond_the_limit_is_not_read(root: Path) -> None:
    with (root / NAME).open("wb") as file:
        file.truncate(2**40)  # sparse: takes no room
    folder = GuardedFolder(root)
    head, size = folder.head(NAME, LIMIT)
    assert len(head) == LIMIT
    assert size == 2**40
    with pytest.raises(FileTooLong):
        folder.append(NAME, b"x", LIMIT)


def test_a_file_that_grows_while_it_is_read_ends_at_the_limit(root: Path) -> None:
    stopping = threading.Event()

    def grow() -> None:
        with (root / NAME).open("ab") as file:
            while not stopping.is_set():
                file.write(b"x" * 1024)
                if file.tell() > 64 * 1024:
                    file.truncate(0)

    (root / NAME).touch()
    growing = threading.Thread(target=grow)
    growing.start()
    try:
        for _ in range(200):
            assert len(GuardedFolder(root).head(NAME, LIMIT)[0]) <= LIMIT
    finally:
        stopping.set()
        growing.join()


@pytest.fixture
def leased(root: Path) -> Iterator[Path]:
    """A program that holds a lease keeps whoever opens the file waiting for up to 45 seconds."""
    (root / NAME).write_bytes(b"x")
    descriptor = os.open(root / NAME, os.O_RDWR)
    before = signal.signal(signal.SIGIO, signal.SIG_IGN)
    fcntl.fcntl(descriptor, fcntl.F_SETLEASE, fcntl.F_WRLCK)
    yield root
    os.close(descriptor)
    signal.signal(signal.SIGIO, before)


def test_a_lease_keeps_nobody_waiting(leased: Path) -> None:
    with pytest.raises(BlockingIOError):
        GuardedFolder(leased).head(NAME, LIMIT)
    with pytest.raises(BlockingIOError):
        read_plain(leased / NAME, LIMIT)


@pytest.mark.parametrize("path", ["/etc/passwd", "../x", "a/../../x", "~/x", "a\0b", "x" * 5000])
def test_no_path_leads_out(root: Path, path: str) -> None:
    with pytest.raises(PathEscapes):
        names_of(path)
    with pytest.raises(PathEscapes):
        GuardedFolder(root).head(path, LIMIT)


def test_temporary_names_that_are_taken_are_passed(root: Path) -> None:
    """The name of the file beside can be foreseen; whatever is planted there stays."""
    stem = f".{NAME}.{os.getpid()}-{threading.get_native_id()}"
    (root / f"{stem}-0.part").mkdir()
    (root / f"{stem}-1.part").symlink_to("/dev/full")
    GuardedFolder(root).write(NAME, b"whole")
    assert (root / NAME).read_bytes() == b"whole"
    assert (root / f"{stem}-0.part").is_dir()


def test_names_are_listed_up_to_a_limit(root: Path) -> None:
    for number in range(20):
        (root / f"{number:02}").touch()
    found, has_more = GuardedFolder(root).list("", 10)
    assert [name for name, _ in found] == [f"{number:02}" for number in range(10)]
    assert has_more
    assert GuardedFolder(root).remove("00")
    assert not GuardedFolder(root).remove("00")
    assert not GuardedFolder(root).remove("gone/00")


def test_a_deep_and_closed_tree_is_removed_and_nothing_outside(root: Path) -> None:
    a_link_outside(root / "link")
    (root / "tree").mkdir()
    (root / "tree/out").symlink_to(root.parent)
    at = os.open(root / "tree", os.O_RDONLY)
    for number in range(3000):  # beyond any limit of recursion, and of a path's length
        os.mkdir("d", dir_fd=at)
        below = os.open("d", os.O_RDONLY, dir_fd=at)
        if number % 500 == 0:
            os.close(os.open("file", os.O_WRONLY | os.O_CREAT, dir_fd=below))
        if number % 500 == 1:  # it has what it is to have: only root writes into a closed folder
            os.fchmod(at, 0)
        os.close(at)
        at = below
    os.close(at)
    assert GuardedFolder(root).remove_tree("tree", lambda: True)
    assert [entry.name for entry in root.iterdir()] == ["link"]
    assert (root.parent / "precious").exists()
    assert GuardedFolder(root).remove_tree("link", lambda: True)
    assert GuardedFolder(root).remove_tree("link", lambda: True)
    assert (root.parent / "precious").exists()


def test_a_removal_that_is_ended_is_taken_up_again(root: Path) -> None:
    for number in range(5):
        (root / f"tree/{number}/inner").mkdir(parents=True)
    left = iter([True] * 4)
    assert not GuardedFolder(root).remove_tree("tree", lambda: next(left, False))
    assert (root / "tree").is_dir()
    assert GuardedFolder(root).remove_tree("tree", lambda: True)


@pytest.mark.parametrize("plant", [a_pipe, a_directory, a_loop, a_link_to_a_device])
def test_peoples_files_may_be_links_but_nothing_that_hangs(
    root: Path, plant: Callable[[Path], None]
) -> None:
    (root / "real").write_bytes(b"0123456789")
    (root / "linked").symlink_to("real")
    assert read_plain(root / "linked", 4) == b"0123"
    plant(root / NAME)
    with pytest.raises(OSError):
        read_plain(root / NAME, LIMIT)


def test_what_is_made_above_a_folder_is_its_owners_alone(tmp_path: Path) -> None:
    folder = GuardedFolder(tmp_path / "agents" / "ada" / "workspace")
    before = os.umask(0)
    try:
        folder.make("inbox")
    finally:
        os.umask(before)
    made = {
        str(path.relative_to(tmp_path)): stat.S_IMODE(path.stat().st_mode)
        for path in tmp_path.rglob("*")
    }
    assert made == {
        "agents": 0o700,
        "agents/ada": 0o700,
        "agents/ada/workspace": 0o755,
        "agents/ada/workspace/inbox": 0o755,
    }
