"""A stand-in for systemd: ``systemctl``, ``loginctl`` and what they talk to, for one unit at a time.

Run as ``fake_systemd.py FOLDER PROGRAM WORD …``. It obeys the lines of the unit that say how it is
started, watched and started again, speaks the notify protocol with the real daemon, and keeps what
happened in FOLDER: ``state.json`` and the notifications in ``said``.
"""

from __future__ import annotations

import json
import os
import select
import shlex
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

LIMIT_S = 50.0


def lines_of(unit: Path) -> dict[str, str]:
    """The settings of a unit; of one that is given twice the last."""
    pairs = (line.partition("=") for line in unit.read_text().splitlines() if "=" in line)
    return {name: value for name, _, value in pairs if not name.startswith("#")}


class UnitRunner:
    """Runs one unit until it is stopped."""

    def __init__(self, folder: Path, unit: Path) -> None:
        self.folder, self.unit, self.settings = folder, unit, lines_of(unit)
        self.state: dict[str, Any] = {"ActiveState": "activating", "NRestarts": 0}
        self.is_stopping = False
        self.child: subprocess.Popen[bytes] | None = None

    def write(self, **changes: Any) -> None:
        self.state |= {"manager": os.getpid(), **changes}
        fresh = self.folder / "state.new"
        fresh.write_text(json.dumps(self.state))
        fresh.replace(self.folder / "state.json")

    def stop(self, *_: object) -> None:
        self.is_stopping = True
        if self.child is not None:
            self.child.terminate()

    def run(self) -> None:
        signal.signal(signal.SIGTERM, self.stop)
        with (
            socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as notifications,
            tempfile.TemporaryDirectory(prefix="notify-", dir="/tmp") as place,
        ):
            address = f"{place}/notify"
            notifications.bind(address)
            while True:
                code = self.live(notifications, address)
                forced = str(code) in self.settings["RestartForceExitStatus"].split()
                prevented = str(code) in self.settings["RestartPreventExitStatus"].split()
                failed = self.settings["Restart"] == "on-failure" and code not in {
                    0,
                    -signal.SIGTERM,
                }
                if self.is_stopping or prevented or not (forced or failed):
                    break
                self.write(NRestarts=self.state["NRestarts"] + 1, ExecMainStatus=code, MainPID=0)
        clean = code == 0 or self.is_stopping
        self.write(ActiveState="inactive" if clean else "failed", SubState="dead", MainPID=0)

    def live(self, notifications: socket.socket, address: str) -> int:
        env = {name: os.environ[name] for name in ("PATH", "HOME") if name in os.environ}
        env |= {"NOTIFY_SOCKET": address, "INVOCATION_ID": "0" * 32}
        env |= {"WATCHDOG_USEC": str(int(self.settings["WatchdogSec"]) * 1_000_000)}
        words = shlex.split(self.settings["ExecStart"].replace("%%", "%").replace("$$", "$"))
        with (self.folder / "journal").open("ab") as journal:
            self.child = subprocess.Popen(
                words, env=env, stdin=subprocess.DEVNULL, stdout=journal, stderr=journal
            )
        self.write(MainPID=self.child.pid, ActiveState="activating", SubState="start")
        while self.child.poll() is None:
            if not select.select([notifications], [], [], 0.02)[0]:
                continue
            said = notifications.recv(4096).decode()
            with (self.folder / "said").open("a") as file:
                file.write(said + "\n")
            if "READY=1" in said:
                self.write(ActiveState="active", SubState="running", ActiveEnterTimestamp="today")
        return self.child.returncode


def state_in(folder: Path) -> dict[str, Any]:
    try:
        found: dict[str, Any] = json.loads((folder / "state.json").read_text())
    except FileNotFoundError:
        found = {"ActiveState": "inactive", "MainPID": 0}
    return found


def looks() -> Iterator[None]:
    end = time.monotonic() + LIMIT_S
    while time.monotonic() < end:
        yield
        time.sleep(0.02)
    sys.exit("fake systemd: it took too long")


def unit_named(name: str) -> Path:
    return Path(os.environ["XDG_CONFIG_HOME"]) / "systemd" / "user" / name


def start(folder: Path, name: str) -> None:
    if state_in(folder)["ActiveState"] in {"active", "activating"}:
        return
    (folder / "state.json").unlink(missing_ok=True)
    subprocess.Popen(
        [sys.executable, __file__, str(folder), "manager", str(unit_named(name))],
        start_new_session=True,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    for _ in looks():
        state = state_in(folder)
        if state["ActiveState"] == "active":
            return
        if state["ActiveState"] == "failed" or state.get("NRestarts", 0) > 2:
            stop(folder)
            sys.exit(f"Job for {name} failed.")


def stop(folder: Path) -> None:
    state = state_in(folder)
    if state["ActiveState"] in {"active", "activating"} and "manager" in state:
        os.kill(state["manager"], signal.SIGTERM)
        for _ in looks():
            if state_in(folder)["ActiveState"] in {"inactive", "failed"}:
                return


def systemctl(folder: Path, words: list[str]) -> None:
    match words:
        case ["--user", "show-environment" | "daemon-reload"]:
            return
        case ["--user", "enable", name]:
            (folder / "enabled").write_text(name)
        case ["--user", "disable", "--now", name]:
            (folder / "enabled").unlink(missing_ok=True)
            stop(folder)
        case ["--user", "start", name]:
            start(folder, name)
        case ["--user", "restart", name]:
            stop(folder)
            start(folder, name)
        case ["--user", "show", name, _]:
            known = {"FragmentPath": unit_named(name), "NeedDaemonReload": "no"} | state_in(folder)
            known["UnitFileState"] = "enabled" if (folder / "enabled").exists() else "disabled"
            print("\n".join(f"{key}={value}" for key, value in known.items()))
        case _:
            sys.exit(f"fake systemctl: what is {words}?")


def main(folder: Path, program: str, *words: str) -> None:
    with (folder / "calls").open("a") as calls:
        calls.write(f"{program} {' '.join(words)}\n")
    if program == "manager":
        UnitRunner(folder, Path(words[0])).run()
    elif program == "systemctl":
        systemctl(folder, list(words))
    elif program == "loginctl":
        print("no")


if __name__ == "__main__":
    main(Path(sys.argv[1]), *sys.argv[2:])
