"""``up`` leaves a small parent: it starts the real daemon again, and ends with it."""

from __future__ import annotations

import json
import os
import signal
import socket
import sqlite3
import sys
from pathlib import Path
from typing import Any

import pytest

from agentsup.cli.connect.client import DaemonClient
from agentsup.cli.connect.locate import DaemonLocation, is_alive
from agentsup.config import Home
from tests.process.cli.process_cli import WAIT_S, Cli, until

# Each of them starts several programs.
pytestmark = [
    pytest.mark.timeout(180),
    pytest.mark.skipif(sys.platform != "linux", reason="reads /proc"),
]


def daemon_of(cli: Cli) -> int:
    return int((cli.written() or {}).get("pid", 0))


def next_after(cli: Cli, before: int) -> int:
    """The daemon that came after ``before`` and takes work."""

    def look() -> int:
        return daemon_of(cli) if daemon_of(cli) not in {0, before} and cli.is_ready() else 0

    return int(until("another daemon is ready", look))


def parent_of(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])


def keeper_word(cli: Cli) -> Any:
    return json.loads(cli.good("status", "--json"))["keeper"]["kind"]


def test_a_killed_daemon_comes_back_with_its_mail_and_a_stop_ends_both(cli: Cli) -> None:
    said = cli.good("up", "--no-chat")
    assert f"Kept running by the small parent of `agentsup --home {cli.home} up`" in said
    assert "service install` survives a reboot" in said
    parent, daemon = cli.keeper()
    assert (daemon, parent_of(daemon)) == (daemon_of(cli), parent)
    assert keeper_word(cli) == "parent"
    # Each has a session of its own: no terminal that closes, no signal to one group ends both.
    assert [os.getsid(pid) for pid in (parent, daemon)] == [parent, daemon]
    message_id = cli.good("send", "writer", "before", "--no-wait").strip()
    os.kill(daemon, signal.SIGKILL)
    after = next_after(cli, daemon)
    assert parent_of(after) == parent
    shown = json.loads(
        until(
            "it was answered",
            lambda: (
                text
                if '"done"' in (text := cli.good("messages", "show", message_id, "--json"))
                else ""
            ),
        )
    )
    assert shown["result_text"] == "you said before"
    assert "has ended" in cli.good("stop")
    assert [pid for pid in (parent, daemon, after) if is_alive(pid)] == []
    assert "no daemon runs" in cli.run("status").stderr


def test_42_is_a_new_process_at_once_and_the_parent_stays(cli: Cli) -> None:
    cli.good("up", "--no-chat")
    parent, daemon = cli.keeper()
    cli.good("send", "main", "hello")
    DaemonClient.to(DaemonLocation(Home(cli.home))).post("/restart")
    after = next_after(cli, daemon)
    assert (parent_of(after), keeper_word(cli)) == (parent, "parent")
    words = (cli.home / "agentsup.keeper").read_text().split()
    assert words[2:5] == ["running", "42", "0"], "a request is no failure"


def test_a_daemon_whose_files_were_replaced_says_so_and_comes_back_with_the_new_ones(
    cli: Cli, tmp_path: Path
) -> None:
    """It looks once a minute, and acts on what it has seen twice."""
    facts = tmp_path / "replaced" / "agentsup-1.0.dist-info" / "METADATA"
    facts.parent.mkdir(parents=True)
    facts.write_text("Metadata-Version: 2.1\nName: agentsup\nVersion: 1.0\n")
    assert cli.run("up", "--no-chat", PYTHONPATH=str(facts.parents[1])).returncode == 0
    parent, daemon = cli.keeper()
    facts.write_text(facts.read_text().replace("Version: 1.0", "Version: 1.1"))
    told = "installation changed since the daemon started (agentsup 1.0 → 1.1)"
    until("status says it", lambda: told in cli.good("status"), within_s=90)
    until("another daemon", lambda: daemon_of(cli) not in {0, daemon}, within_s=90)
    after = next_after(cli, daemon)
    assert (parent_of(after), keeper_word(cli)) == (parent, "parent")
    with sqlite3.connect(f"{cli.home.joinpath('state.db').as_uri()}?mode=ro", uri=True) as store:
        (told_main,) = store.execute("SELECT count(*) FROM outbox WHERE instr(body, ?)", (told,))
    assert told_main == (1,), "once, in the chat of main"
    assert told not in cli.good("status")


def test_a_terminated_daemon_stays_ended(cli: Cli) -> None:
    cli.good("up", "--no-chat")
    parent, daemon = cli.keeper()
    os.kill(daemon, signal.SIGTERM)
    until("both have ended", lambda: not is_alive(parent) and not is_alive(daemon))
    cli.good("up", "--no-chat")
    parent, daemon = cli.keeper()
    os.kill(parent, signal.SIGTERM)
    until("both have ended", lambda: not is_alive(parent) and not is_alive(daemon))
    assert cli.written() is None, "the daemon ended in its own way"


def test_without_its_parent_the_daemon_goes_on_and_says_so(cli: Cli) -> None:
    cli.good("up", "--no-chat")
    parent, daemon = cli.keeper()
    os.kill(parent, signal.SIGKILL)
    until("the parent is gone", lambda: not is_alive(parent))
    status = cli.good("status")
    assert f"by nothing: its small parent (pid {parent}) was killed" in status
    again = cli.good("up", "--no-chat")
    assert "runs already" in again
    assert "restart` gives it another" in again
    assert daemon_of(cli) == daemon
    # There is nobody to start it again after a 42, so it does that itself.
    boot = cli.written()["boot_id"]
    DaemonClient.to(DaemonLocation(Home(cli.home))).post("/restart")
    until("it began anew", lambda: (cli.written() or {}).get("boot_id", boot) != boot)
    until("it takes work", cli.is_ready)
    assert daemon_of(cli) == daemon
    cli.good("restart")
    assert keeper_word(cli) == "parent"
    assert not is_alive(daemon)


def pending(pid: int) -> set[int]:
    """The signals that wait for a process that is stopped."""
    (line,) = [
        line
        for line in Path(f"/proc/{pid}/status").read_text().splitlines()
        if line.startswith("ShdPnd:")
    ]
    mask = int(line.split()[1], 16)
    return {number for number in range(1, 65) if mask & 1 << (number - 1)}


def frozen_between_two_lives(cli: Cli) -> int:
    """The parent, stopped in its pause after a crash: no machine is too slow to ask in it."""

    def waits() -> bool:
        return (cli.home / "agentsup.keeper").read_text().split()[2] == "waiting"

    for _ in range(4):
        parent, daemon = cli.keeper()
        os.kill(daemon, signal.SIGKILL)
        until("the parent waits", waits)
        os.kill(parent, signal.SIGSTOP)
        if waits():
            return parent
        os.kill(parent, signal.SIGCONT)
        next_after(cli, daemon)
    raise AssertionError("it never waited for long enough")


def test_between_two_lives_every_command_knows(cli: Cli) -> None:
    cli.good("up", "--no-chat")
    parent = frozen_between_two_lives(cli)
    down = cli.run("status")
    assert down.returncode == 1
    assert f"its small parent (pid {parent}) starts it again" in down.stderr
    assert "of 5)" in down.stderr
    assert "starts it again" in cli.run("status", "--json").stderr
    up = cli.start("up", "--no-chat")
    until("it ends that parent", lambda: signal.SIGTERM in pending(parent))
    os.kill(parent, signal.SIGCONT)
    said, errors = up.communicate(timeout=WAIT_S)
    assert up.returncode == 0, errors
    assert "The daemon ended with code -9; it is started now." in said
    assert not is_alive(parent), "there are never two"
    second = frozen_between_two_lives(cli)
    assert second != parent
    stop = cli.start("stop")
    until("it says so", lambda: signal.SIGUSR1 in pending(second))
    os.kill(second, signal.SIGCONT)
    said, errors = stop.communicate(timeout=WAIT_S)
    assert (stop.returncode, "has ended" in said) == (0, True), errors
    assert not is_alive(second)
    assert "no daemon runs" in cli.run("status").stderr


def test_a_start_that_is_refused_is_told_and_not_tried_again(cli: Cli) -> None:
    with socket.socket() as other:
        other.bind(("127.0.0.1", cli.port))
        other.listen()
        refused = cli.run("up", "--no-chat")
    assert refused.returncode == 1
    assert "the daemon ended with code 1" in refused.stderr
    assert str(cli.port) in refused.stderr
    assert cli.keeper() == [], "its parent ended with it"
    assert "no daemon runs" in cli.run("status").stderr
