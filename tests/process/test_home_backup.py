"""A whole home is copied beside its daemon and put back, also after kills at any step."""

from __future__ import annotations

import os
import resource
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.process.conftest import MakeDaemon
from tests.support.daemon_process import DaemonProcess
from tests.support.preloaded_process import DAEMON

pytestmark = pytest.mark.process

RULES: list[dict[str, Any]] = [{"match": "(.+)", "steps": [{"say": "did $1"}]}]
LEFT_OUT = ("logs", "backups", "agentsup.lock", "daemon.json", "store.json")
KILLED = """
import os, signal, sys
from agentsup.cli.archives import home as archives
from agentsup.cli.main import main
from agentsup.kit.archive import packing
of, nth, *line = sys.argv[1:]
owner, name = {"move": (archives._Moves, "move"), "add": (packing.Packer, "_add")}[of]
real, passed = getattr(owner, name), [0]
def stepping(*args):
    real(*args)
    passed[0] += 1
    if passed[0] == int(nth):
        os.kill(os.getpid(), signal.SIGKILL)
setattr(owner, name, stepping)
main(line)
"""


def run(home: Path, *words: str, **options: Any) -> subprocess.CompletedProcess[str]:
    line = [sys.executable, "-m", "agentsup", "--home", str(home), *words]
    return subprocess.run(line, capture_output=True, text=True, timeout=40, check=False, **options)


def good(home: Path, *words: str) -> str:
    done = run(home, *words)
    assert done.returncode == 0, (words, done.stdout, done.stderr)
    return done.stdout


def killed(home: Path, of: str, nth: int, *words: str) -> bool:
    """Run a command that kills itself at its ``nth`` step; False if it has fewer and succeeded."""
    line = [sys.executable, "-c", KILLED, of, str(nth), "--home", str(home), *words]
    done = subprocess.run(line, capture_output=True, text=True, timeout=40, check=False)
    assert done.returncode in (0, -signal.SIGKILL), done.stderr
    return done.returncode != 0


def files(home: Path) -> dict[str, Any]:
    """What is in a home besides its store and what only a run of the daemon means."""
    found: dict[str, Any] = {}
    for path in home.rglob("*"):
        name = str(path.relative_to(home))
        if name.startswith(("state.db", *LEFT_OUT)):
            continue
        if path.is_symlink():
            found[name] = str(path.readlink())
        else:
            content = path.read_bytes() if path.is_file() else b""
            found[name] = (path.stat().st_mode & 0o777, content)
    return found


async def said(daemon: DaemonProcess, text: str) -> str:
    message_id = await daemon.send("main", text)
    assert (await daemon.result(message_id))["text"] == f"did {text}"
    return message_id


def furnish(home: Path) -> None:
    """What a home has besides a store: keys, roles, and files of agents."""
    for name, mode in (("environment", 0o600), ("secrets/openai.key", 0o644)):
        (home / name).parent.mkdir(exist_ok=True, mode=0o700)
        (home / name).write_text("key")
        (home / name).chmod(mode)
    (home / "roles" / "poet").mkdir(parents=True)
    (home / "roles" / "poet" / "AGENT.md").write_text("---\nname: poet\n---\nVerse.\n")
    work = home / "agents" / "main" / "workspace" / "work"
    work.mkdir(parents=True)
    (work / "paper.txt").write_bytes(os.urandom(20_000))
    (work / "run").write_text("#!/bin/sh\n")
    (work / "run").chmod(0o755)
    (work / "again").symlink_to("../work/run")
    (home / "agents" / "main" / "MEMORY.md").write_text("bikes\n")


@pytest.mark.timeout(480)
async def test_a_home_is_copied_while_it_runs_and_all_of_it_comes_back(
    make_daemon: MakeDaemon, tmp_path: Path
) -> None:
    daemon = make_daemon(["main"], RULES, loaded=DAEMON)
    home, file = daemon.home, tmp_path / "home.tar.gz"
    furnish(home)
    await daemon.start()
    first = await said(daemon, "one")
    before = files(home)
    assert "read it back" in good(home, "backup", str(file))
    assert file.stat().st_mode & 0o777 == 0o600
    assert run(home, "backup", str(file)).returncode == 1  # never over another file
    running = run(home, "restore", str(file))
    assert (running.returncode, "a daemon runs" in running.stderr) == (1, True)
    second = await said(daemon, "two")
    await daemon.stop()

    new = tmp_path / "new machine" / "home"
    assert "is whole" in good(new, "restore", str(file), "--dry-run")
    assert not new.exists()
    good(new, "restore", str(file))
    before["secrets/openai.key"] = (0o600, b"key")
    assert files(new) == before
    assert (new / "state.db").stat().st_mode & 0o777 == 0o600

    (home / "agents" / "main" / "workspace" / "later").write_text("mine")
    (home / "state.db").unlink()
    assert "What was there" in good(home, "restore", str(file))
    assert files(home) == before
    (aside,) = (home / "backups").glob("aside-*")
    assert (aside / "agents" / "main" / "workspace" / "later").read_text() == "mine"
    await daemon.start()
    assert (await daemon.result(first))["state"] == "done"
    assert (await daemon.request("GET", f"/messages/{second}")).status == 404
    await said(daemon, "three")


@pytest.mark.timeout(480)
async def test_a_restore_that_is_killed_at_any_step_is_refused_by_a_start_and_done_again(
    make_daemon: MakeDaemon, tmp_path: Path
) -> None:
    daemon = make_daemon(["main"], RULES, loaded=DAEMON)
    home, file = daemon.home, tmp_path / "home.tar.gz"
    furnish(home)
    await daemon.start()
    first = await said(daemon, "one")
    before = files(home)
    before["secrets/openai.key"] = (0o600, b"key")
    good(home, "backup", str(file))
    await daemon.stop()
    (home / "later").write_text("mine")
    steps = 0
    while killed(home, "move", steps + 1, "restore", str(file)):
        steps += 1
        if not (home / "state.db").exists() and steps in (1, 2, 5, 9):
            daemon.launch()
            assert await daemon.ended() == 1
            assert "a restore of this home was interrupted" in daemon.output.read_text()
            assert not (home / "state.db").exists()
        good(home, "restore", str(file))
        assert files(home) == before, steps
    assert steps > 10
    found = list((home / "backups").glob("aside-*/later"))
    assert [path.read_text() for path in found] == ["mine"]
    await daemon.start()
    assert (await daemon.result(first))["state"] == "done"


@pytest.mark.timeout(480)
async def test_a_backup_that_is_killed_or_finds_no_room_leaves_no_file_of_that_name(
    make_daemon: MakeDaemon, tmp_path: Path
) -> None:
    daemon = make_daemon(["main"], RULES, loaded=DAEMON)
    home, to = daemon.home, tmp_path / "to"
    furnish(home)
    to.mkdir()
    await daemon.start()
    await said(daemon, "one")

    def small() -> None:
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (10_000, 10_000))

    full = run(home, "backup", str(to / "home.tar.gz"), preexec_fn=small)
    assert (full.returncode, list(to.iterdir())) == (1, [])
    assert "can't be written" in full.stderr
    for nth in (1, 2, 8):
        assert killed(home, "add", nth, "backup", str(to / "home.tar.gz"))
        assert not (to / "home.tar.gz").exists()
    good(home, "backup", str(to / "home.tar.gz"))
    assert [path.name for path in to.iterdir()] == ["home.tar.gz"]
    await daemon.stop()

    before = {**files(home), "store": (home / "state.db").read_bytes()}
    full = run(home, "restore", str(to / "home.tar.gz"), preexec_fn=small)
    assert (full.returncode, "is as it was" in full.stderr) == (1, True), full.stderr
    assert {**files(home), "store": (home / "state.db").read_bytes()} == before
    assert not (home / ".restoring").exists()
    data = (to / "home.tar.gz").read_bytes()
    (to / "damaged.tar.gz").write_bytes(data[:5000] + b"?" + data[5001:])
    damaged = run(home, "restore", str(to / "damaged.tar.gz"))
    assert (damaged.returncode, "Nothing was changed" in damaged.stderr) == (1, True)
    assert {**files(home), "store": (home / "state.db").read_bytes()} == before


async def test_a_move_that_fails_is_taken_back(
    make_daemon: MakeDaemon, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from agentsup.cli.archives import home as archives
    from agentsup.cli.archives.home import back_up
    from agentsup.config import Home

    daemon = make_daemon(["main"], RULES, loaded=DAEMON)
    await daemon.start()
    await daemon.stop()
    home, file = Home(daemon.home), tmp_path / "home.tar.gz"
    contents = back_up(home, file, at_ms=1)
    before = {**files(home.root), "store": (home.root / "state.db").read_bytes()}
    record = (home.root / "store.json").read_bytes()
    real, passed = archives._Moves.move, 0

    def failing(moves: Any, path: Path, to: Path) -> None:
        nonlocal passed
        passed += 1
        if passed == wanted:
            raise OSError(18, "Invalid cross-device link")
        real(moves, path, to)

    monkeypatch.setattr(archives._Moves, "move", failing)
    for wanted in (1, 2, 6, 10):
        passed = 0
        with pytest.raises(OSError, match="cross-device"):
            archives.replace_home(home, file, contents, at_ms=wanted)
        assert {**files(home.root), "store": (home.root / "state.db").read_bytes()} == before
        assert (home.root / "store.json").read_bytes() == record
