"""What starts the daemon again: how it is known, and what a person is told about it."""

from __future__ import annotations

import json
import os
from dataclasses import replace
from pathlib import Path

from agentsup.cli.commands.background import is_supervised
from agentsup.cli.connect.keeping import CONTAINER, NOTHING, PARENT, SYSTEMD, keeping_by, plan_of
from agentsup.cli.connect.locate import DaemonLocation
from agentsup.config import Home
from agentsup.kit import keeper as keeper_program
from agentsup.kit.keeper import GIVEN_UP, RUNNING, WAITING
from agentsup.kit.keeping import KeeperStatus
from agentsup.supervision import REBUILD_CODE

HERE = DaemonLocation(Home(Path("/somewhere/home")))
KEEPER = KeeperStatus(7, 8, RUNNING, 0, 0, 0.0, is_alive=True)


def test_each_way_to_be_kept_has_its_words() -> None:
    def of(keeper: KeeperStatus | None, pid: int = 8, *, systemd: bool = False) -> tuple[str, str]:
        found = keeping_by(HERE, pid, {"systemd": systemd}, keeper, False)
        return found.by, found.text

    by, text = of(KEEPER)
    assert by == PARENT
    assert text == (
        "by the small parent of `agentsup up` (pid 7); "
        "`agentsup --home /somewhere/home service install` survives a reboot"
    )
    by, text = of(replace(KEEPER, is_alive=False))
    assert by == NOTHING
    assert "its small parent (pid 7) was killed" in text
    assert "home restart` gives it another" in text
    for stranger in (None, replace(KEEPER, child=9)):
        by, text = of(stranger)
        assert (by, "`agentsup run` started it" in text) == (NOTHING, True)
    assert of(None, systemd=True)[0] == SYSTEMD
    assert keeping_by(HERE, 8, {}, None, True).by == CONTAINER


def test_a_daemon_that_is_down_says_what_becomes_of_it() -> None:
    assert plan_of(HERE, replace(KEEPER, is_alive=False), 0.0) == ""
    assert "is starting" in plan_of(HERE, KEEPER, 0.0)
    waits = replace(KEEPER, child=0, state=WAITING, code=-9, failures=2, until_s=101.2)
    text = plan_of(HERE, waits, 100.0)
    assert text.startswith(
        "the daemon ended with code -9; its small parent (pid 7) starts it again"
    )
    assert "in 2 s (try 2 of 5)" in text
    assert "home up` starts it now" in text
    assert "in 1 s" in plan_of(HERE, waits, 200.0)
    over = replace(waits, state=GIVEN_UP, failures=6, is_alive=False)
    assert "ended 6 times within 300 s, the last time with code -9, and was given up" in (
        plan_of(HERE, over, 0.0)
    )


def test_the_keeper_knows_the_code_of_a_restart() -> None:
    assert keeper_program.REBUILD_CODE == REBUILD_CODE


def place(root: Path, **facts: object) -> DaemonLocation:
    home = Home(root)
    home.create()
    written = {"pid": os.getpid(), "url": "http://127.0.0.1:1", **facts}
    home.daemon_json.write_text(json.dumps(written))
    return DaemonLocation(home)


def test_systemd_restarts_what_it_runs(tmp_path: Path) -> None:
    assert is_supervised(place(tmp_path, systemd=True))
    if os.getsid(0) != 1:
        assert not is_supervised(place(tmp_path, systemd=False))
        assert not is_supervised(place(tmp_path))
