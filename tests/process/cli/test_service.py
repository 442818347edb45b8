"""``agentsup service`` with the real daemon and a stand-in for systemd that obeys the unit."""

from __future__ import annotations

import json
import os
import re
import signal
import stat
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from agentsup.cli.connect.client import DaemonClient
from agentsup.cli.connect.locate import DaemonLocation, is_alive
from agentsup.config import Home
from tests.process.cli.process_cli import WAIT_S, Cli, until
from tests.support import fake_systemd

# Each of them starts several programs.
pytestmark = [
    pytest.mark.timeout(180),
    pytest.mark.skipif(sys.platform != "linux", reason="systemd is of Linux"),
]


class Machine:
    """A person's machine with systemd, and a home on it."""

    def __init__(self, cli: Cli, folder: Path) -> None:
        self.cli, self.folder = cli, folder
        self.config = folder / "config"
        self.path = f"{folder / 'bin'}:{os.environ['PATH']}"
        for name in ("systemctl", "loginctl"):
            self.program(
                name, f'exec {sys.executable} {fake_systemd.__file__} {folder} {name} "$@"'
            )

    def program(self, name: str, script: str) -> None:
        path = self.folder / "bin" / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(f"#!/bin/sh\n{script}\n")
        path.chmod(0o755)

    def run(self, *words: str, code: int = 0, **env: str) -> str:
        place = {"PATH": self.path, "XDG_CONFIG_HOME": str(self.config), "HOME": str(self.folder)}
        done = self.cli.run(*words, timeout_s=WAIT_S, **place, **env)
        assert done.returncode == code, (words, done.stdout, done.stderr)
        return done.stdout + done.stderr

    @property
    def state(self) -> dict[str, Any]:
        return fake_systemd.state_in(self.folder)

    @property
    def unit(self) -> Path:
        (found,) = (self.config / "systemd" / "user").glob("*.service")
        return found

    def daemon(self) -> int:
        return int((self.cli.written() or {}).get("pid", 0))

    def next_after(self, before: int) -> int:
        def look() -> int:
            now = self.daemon()
            is_ready = now not in {0, before} and self.state["ActiveState"] == "active"
            return now if is_ready and self.cli.is_ready() else 0

        return int(until("another daemon is ready", look))


@pytest.fixture
def machine(cli: Cli, tmp_path: Path) -> Iterator[Machine]:
    folder = tmp_path / "machine"
    folder.mkdir()
    made = Machine(cli, folder)
    yield made
    state = made.state
    for pid in (state.get("manager"), state["MainPID"]):
        if pid and is_alive(pid):
            os.kill(pid, signal.SIGKILL)


def post(cli: Cli, path: str) -> None:
    DaemonClient.to(DaemonLocation(Home(cli.home))).post(path)


def test_a_service_takes_over_from_up_and_goes_without_a_trace(machine: Machine) -> None:
    cli = machine.cli
    machine.run("up", "--no-chat")
    parent, first = cli.keeper()
    said = machine.run("service", "install", OPENAI_API_KEY="k", AGENTSUP_LOG__LEVEL="info")
    assert f"ended the daemon that ran without it (pid {first})" in said
    assert "`loginctl enable-linger` lets it run without you" in said
    assert "does not see OPENAI_API_KEY of this shell" in said
    assert str(cli.home / "environment") in said
    assert "AGENTSUP_LOG__LEVEL; settings that last belong into config.toml" in said
    assert [pid for pid in (parent, first) if is_alive(pid)] == []
    pid = machine.daemon()
    assert (machine.state["ActiveState"], machine.state["MainPID"]) == ("active", pid)
    assert stat.S_IMODE(machine.unit.stat().st_mode) == 0o644
    assert "by systemd" in machine.run("status")
    one = json.loads(machine.run("service", "status", "--json"))
    assert (one["is_running"], one["pid"], one["file"]) == (True, pid, str(machine.unit))
    assert (one["since"], one["at_boot"]) == ("today", "enabled")
    assert one["problems"] == ["it ends when you log out, until `loginctl enable-linger` was run"]
    # Once more: it runs, and goes on.
    assert "is as it should be" in machine.run("service", "install")
    assert machine.daemon() == pid
    until("its life is told", lambda: "WATCHDOG=1" in (machine.folder / "said").read_text())

    post(cli, "/restart")
    again = machine.next_after(pid)
    assert (machine.state["NRestarts"], machine.state["ExecMainStatus"]) == (1, 42)
    os.kill(again, signal.SIGKILL)
    third = machine.next_after(again)
    assert machine.state["NRestarts"] == 2
    machine.run("restart")
    assert machine.next_after(third) == machine.daemon()
    told = (machine.folder / "said").read_text()
    assert told.count("READY=1") == 4
    assert "STOPPING=1" in told

    assert "has ended" in machine.run("stop")
    until("it stays down", lambda: machine.state["ActiveState"] == "inactive")
    assert "inactive" in machine.run("service", "status", code=1)
    assert "started the service" in machine.run("up", "--no-chat")
    assert machine.state["MainPID"] == machine.daemon()

    own = machine.unit.with_name(f"{machine.unit.name}.d")
    own.mkdir()
    unit = machine.unit
    said = machine.run("service", "uninstall")
    assert f"removed {unit}" in said
    assert f"{own} stays" in said
    assert not unit.exists()
    assert own.is_dir()
    assert not (machine.folder / "enabled").exists()
    assert cli.written() is None, "its daemon ended in its own way"
    assert (cli.home / "agents.json").exists()
    assert "there is no service" in machine.run("service", "uninstall", code=1)


def test_what_somebody_changed_is_left_alone(machine: Machine) -> None:
    machine.run("service", "install")
    pid, unit = machine.daemon(), machine.unit
    changed = unit.read_text().replace("MemoryMax=75%", "MemoryMax=50%")
    unit.write_text(changed)
    for words in (["install"], ["uninstall"]):
        assert "changed by somebody else" in machine.run("service", *words, code=1)
        assert (unit.read_text(), machine.daemon()) == (changed, pid)
    assert "was changed by somebody since" in machine.run("service", "status")
    machine.run("service", "install", "--force")
    assert unit.with_name(f"{unit.name}~").read_text() == changed
    assert "MemoryMax=75%" in unit.read_text()
    assert machine.daemon() != pid, "it runs as the file says now"
    machine.run("service", "uninstall")


def test_a_machine_without_systemd_says_what_to_do_instead(machine: Machine) -> None:
    machine.program("systemctl", "echo 'Failed to connect to bus' >&2; exit 1")
    booted = Path("/run/systemd/system").is_dir()
    said = machine.run("service", "install", code=1)
    assert ("not for you in this shell" if booted else "systemd does not run here") in said
    line = re.search(r"`@reboot (/\S+)( -P -m agentsup)? --home \S+ up --no-chat`", said)
    assert line is not None, "cron has a short PATH"
    assert Path(line[1]).is_file()
    assert not machine.config.exists(), "nothing was written"
    assert "no service is installed" in machine.run("service", "status", code=1)


def test_logs_follow_the_journal_of_the_unit_or_the_home(machine: Machine) -> None:
    machine.run("service", "install")
    machine.program("journalctl", 'echo "journal $@"')
    shown = machine.run("service", "logs", "-n", "5")
    assert shown == f"journal --user-unit {machine.unit.name} --lines=5 --follow\n"
    machine.run("service", "uninstall")
    assert "child" in machine.run("service", "logs", "--no-follow")
