"""A store that is gone, older or without its log ends the start, and a backup brings it back."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.process.conftest import MakeDaemon
from tests.support.bound import BOUND_S
from tests.support.daemon_process import DaemonProcess
from tests.support.preloaded_process import DAEMON

pytestmark = pytest.mark.process

RULES: list[dict[str, Any]] = [{"match": "(.+)", "steps": [{"say": "did $1"}]}]
STORE = ("state.db", "state.db-wal", "state.db-shm")


def command(daemon: DaemonProcess, *words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "agentsup", "--home", str(daemon.home), *words],
        capture_output=True,
        text=True,
        timeout=BOUND_S,
        check=False,
    )


def good(daemon: DaemonProcess, *words: str) -> str:
    done = command(daemon, *words)
    assert done.returncode == 0, (words, done.stdout, done.stderr)
    return done.stdout


async def done(daemon: DaemonProcess, text: str) -> str:
    message_id = await daemon.send("main", text)
    assert (await daemon.result(message_id))["text"] == f"did {text}"
    return message_id


async def refused(daemon: DaemonProcess, *words: str) -> None:
    """The next start ends with 1 and one sentence, with both ways on; nothing in the home changed."""
    before = {name: contents(daemon.home / name) for name in STORE[:2]}
    said = len(daemon.output.read_bytes())
    daemon.launch()
    assert await daemon.ended() == 1
    sentence = daemon.output.read_bytes()[said:].decode()
    for word in (*words, "--accept-store", "nothing was started"):
        assert word in sentence, (word, sentence)
    assert "Traceback" not in sentence
    assert {name: contents(daemon.home / name) for name in STORE[:2]} == before


def contents(path: Path) -> bytes | None:
    return path.read_bytes() if path.exists() else None


async def killed(daemon: DaemonProcess) -> None:
    daemon.kill()
    await daemon.ended()


def copied(home: Path, to: Path) -> Path:
    to.mkdir()
    for name in STORE:
        if (home / name).exists():
            shutil.copy(home / name, to / name)
    return to


def put_back(home: Path, copy: Path) -> None:
    for name in STORE:
        (home / name).unlink(missing_ok=True)
        if (copy / name).exists():
            shutil.copy(copy / name, home / name)


@pytest.mark.timeout(180)
async def test_a_store_that_is_not_there_is_never_replaced(
    make_daemon: MakeDaemon, tmp_path: Path
) -> None:
    daemon = make_daemon(["main"], RULES, loaded=DAEMON)
    home, file = daemon.home, daemon.home / "state.db"
    log = home / "state.db-wal"
    await daemon.start()
    first = await done(daemon, "one")
    raw = copied(home, tmp_path / "while it runs")
    assert "made" in good(daemon, "backup")
    (backup,) = (home / "backups").glob("hand-*.db")
    assert "is whole" in good(daemon, "restore", "--dry-run")
    running = command(daemon, "restore")
    assert running.returncode == 1
    assert "a daemon runs" in running.stderr
    await daemon.stop()
    stopped = copied(home, tmp_path / "stopped")
    await daemon.start()
    second = await done(daemon, "two")
    await killed(daemon)
    as_killed = copied(home, tmp_path / "killed")
    assert (as_killed / log.name).stat().st_size

    losses: list[tuple[Callable[[], Any], tuple[str, ...]]] = [
        (log.unlink, (f"{log} is missing",)),
        (lambda: log.write_bytes(b""), (f"{log} is missing",)),
        (file.unlink, (f"{file} is missing",)),
        (lambda: file.write_bytes(b""), (f"{file} is missing or empty",)),
        # An older file, with the newer log beside it and without.
        (lambda: shutil.copy(stopped / "state.db", file), ("older",)),
        (lambda: put_back(home, stopped), ("older",)),
        (lambda: put_back(home, raw), ("older",)),
        (lambda: shutil.copy(backup, file), ("older",)),
    ]
    for lose, said in losses:
        lose()
        await refused(daemon, *said, backup.name, f"agentsup --home {home} restore")
        put_back(home, as_killed)
    await daemon.start()
    for message_id, text in ((first, "did one"), (second, "did two")):
        assert (await daemon.result(message_id, 0))["text"] == text
    await daemon.stop()

    whole = copied(home, tmp_path / "whole")
    other = make_daemon(["main"], RULES, loaded=DAEMON)
    await other.start()
    await other.stop()
    put_back(home, other.home)
    await refused(daemon, "or another one")
    put_back(home, whole)
    await daemon.start()
    await daemon.stop()


@pytest.mark.timeout(180)
async def test_a_backup_is_restored_and_the_store_goes_on(make_daemon: MakeDaemon) -> None:
    daemon = make_daemon(["main"], RULES, loaded=DAEMON)
    await daemon.start()
    kept = await done(daemon, "kept")
    good(daemon, "backup")
    later = await done(daemon, "later")
    seen = daemon.sql("SELECT max(seq) n FROM events")[0]["n"]
    await daemon.get("/healthz")
    await killed(daemon)
    assert (daemon.home / "state.db-wal").stat().st_size
    said = good(daemon, "restore")
    assert "is whole" in said
    assert "lie in" in said
    (aside,) = (daemon.home / "backups").glob("aside-*")
    assert {path.name for path in aside.iterdir()} >= {"state.db", "state.db-wal"}
    assert not (daemon.home / "state.db-wal").exists()
    await daemon.start()
    assert (await daemon.result(kept, 0))["text"] == "did kept"
    assert (await daemon.request("GET", f"/interagent/results/{later}")).status == 404
    await done(daemon, "on")
    assert daemon.sql("SELECT max(seq) n FROM events")[0]["n"] > seen - 1
    await killed(daemon)
    await daemon.start()
    # What was put aside is the store that was lost: too old by now, and it can be gone back to.
    await daemon.stop()
    shutil.copy(aside / "state.db", daemon.home / "state.db")
    await refused(daemon, "older")
    (daemon.home / "state.db").write_bytes(b"")
    good(daemon, "restore")
    await daemon.start()
    assert (await daemon.result(kept, 0))["text"] == "did kept"


@pytest.mark.timeout(180)
async def test_what_is_left_is_accepted_on_demand_alone(make_daemon: MakeDaemon) -> None:
    daemon = make_daemon(["main"], RULES, loaded=DAEMON)
    await daemon.start()
    await done(daemon, "gone")
    await daemon.stop()
    (daemon.home / "state.db").unlink()
    await refused(daemon, "is missing", "There is no backup")
    daemon.launch("--accept-store")
    await daemon.ready()
    assert daemon.sql("SELECT count(*) n FROM messages")[0]["n"] == 0
    await done(daemon, "new")
    await daemon.stop()
    await daemon.start()
    await killed(daemon)
    # Without a record, as of an older version, a home with a past is not begun anew either.
    (daemon.home / "store.json").unlink()
    await daemon.start()
    await daemon.stop()
    (daemon.home / "store.json").unlink()
    (daemon.home / "state.db").unlink()
    await refused(daemon, "is missing")


@pytest.mark.parametrize("point", ["store.before_commit", "store.after_commit"])
async def test_a_first_start_that_is_killed_locks_nobody_out(
    make_daemon: MakeDaemon, point: str
) -> None:
    daemon = make_daemon(["main"], RULES, loaded=DAEMON)
    for number in (1, 2, 5, 20):
        daemon.launch(AGENTSUP_FAULT=f"{point}:{number}")
        await daemon.ended()
    await daemon.start()
    await done(daemon, "well")
