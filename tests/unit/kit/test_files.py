from __future__ import annotations

import errno
import fcntl
import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from agentsup.kit.files import HomeLock, HomeLocked, write_atomic


def test_write_replaces_content_and_mode(tmp_path: Path) -> None:
    path = tmp_path / "api.token"
    write_atomic(path, b"one", mode=0o644)
    write_atomic(path, b"two")
    assert path.read_bytes() == b"two"
    assert path.stat().st_mode & 0o777 == 0o600
    assert [entry.name for entry in tmp_path.iterdir()] == ["api.token"]


def test_a_failed_write_leaves_the_old_file_and_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "state"
    write_atomic(path, b"old")

    def full(_descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space"):
        write_atomic(path, b"new")
    assert path.read_bytes() == b"old"
    assert [entry.name for entry in tmp_path.iterdir()] == ["state"]


def test_the_new_content_is_synced_before_it_is_renamed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    steps: list[str] = []
    real_fsync, real_replace = os.fsync, Path.replace

    def fsync(descriptor: int) -> None:
        steps.append("sync")
        real_fsync(descriptor)

    def replace(source: Path, target: Path) -> Path:
        steps.append("rename")
        return real_replace(source, target)

    monkeypatch.setattr(os, "fsync", fsync)
    monkeypatch.setattr(Path, "replace", replace)
    write_atomic(tmp_path / "file", b"data")
    assert steps == ["sync", "rename", "sync"]


def test_a_planted_link_is_replaced_unless_told_to_follow(tmp_path: Path) -> None:
    precious, link = tmp_path / "precious", tmp_path / "link"
    precious.write_bytes(b"mine")
    link.symlink_to(precious)
    write_atomic(link, b"theirs")
    assert precious.read_bytes() == b"mine"
    assert not link.is_symlink()

    link.unlink()
    link.symlink_to(precious)
    write_atomic(link, b"edited", follow_symlink=True)
    assert precious.read_bytes() == b"edited"
    assert link.is_symlink()


def test_the_lock_names_its_holder_and_ends_with_it(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    first, second = HomeLock(path), HomeLock(path)
    with first:
        with pytest.raises(HomeLocked, match=str(os.getpid())) as caught:
            second.acquire()
        assert caught.value.pid == os.getpid()
        assert caught.value.path == path
        with pytest.raises(RuntimeError, match="already"):
            first.acquire()
    second.acquire()
    second.release()
    second.release()


def test_a_killed_holder_leaves_no_lock(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    code = (
        "import sys, time; from pathlib import Path; from agentsup.kit.files import HomeLock\n"
        "lock = HomeLock(Path(sys.argv[1])); lock.acquire(); print('held', flush=True)\n"
        "time.sleep(60)"
    )
    with subprocess.Popen(
        [sys.executable, "-c", code, str(path)], stdout=subprocess.PIPE
    ) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == b"held\n"
        lock = HomeLock(path)
        with pytest.raises(HomeLocked) as caught:
            lock.acquire()
        assert caught.value.pid == holder.pid
        holder.kill()
        holder.wait()
    with lock:
        pass


def test_the_lock_holds_without_its_file_and_puts_it_back(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    first, second = HomeLock(path), HomeLock(path)
    with first:
        for remove in (
            path.unlink,
            lambda: path.write_text(""),
            lambda: path.rename(tmp_path / "x"),
        ):
            remove()
            with pytest.raises(HomeLocked):
                second.acquire()
        assert first.restore()
        with pytest.raises(HomeLocked, match=str(os.getpid())):
            second.acquire()
    with second:
        assert path.read_text().strip() == str(os.getpid())
    assert not first.restore()


def test_a_lock_whose_directory_was_moved_says_so(tmp_path: Path) -> None:
    home = tmp_path / "home"
    home.mkdir()
    with HomeLock(home / "lock") as lock:
        home.rename(tmp_path / "elsewhere")
        home.mkdir()
        assert not lock.restore()
        assert not (home / "lock").exists()


def test_a_file_system_that_locks_no_directories_leaves_it_to_the_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "lock"
    flock = fcntl.flock

    def as_on_nfs(descriptor: int, operation: int) -> None:
        if stat.S_ISDIR(os.fstat(descriptor).st_mode):
            raise OSError(errno.EBADF, "Bad file descriptor")
        flock(descriptor, operation)

    monkeypatch.setattr(fcntl, "flock", as_on_nfs)
    with HomeLock(path), pytest.raises(HomeLocked):
        HomeLock(path).acquire()
