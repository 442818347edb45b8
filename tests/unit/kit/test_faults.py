from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from agentsup.kit import faults
from tests.support.bound import BOUND_S


def run_points(names: list[str], **env: str) -> subprocess.CompletedProcess[bytes]:
    code = "import sys; from agentsup.kit.faults import point\nfor n in sys.argv[1:]: point(n)"
    return subprocess.run(
        [sys.executable, "-c", code, *names],
        env={**os.environ, **env},
        capture_output=True,
        check=False,
        timeout=BOUND_S,
    )


def test_an_unknown_name_is_an_error() -> None:
    with pytest.raises(ValueError, match="befor_commit"):
        faults.point("store.befor_commit")
    with pytest.raises(ValueError, match="befor_commit"):
        faults.platform_point("telegram", "befor_commit")


def test_points_are_inert_without_a_plan() -> None:
    for name in faults.POINTS:
        faults.point(name)
    faults.platform_point("a platform that nobody knows", "before_commit")


def test_the_process_dies_at_the_nth_passing_and_not_before(tmp_path: Path) -> None:
    log = tmp_path / "points.log"
    env = {"AGENTSUP_FAULT": "mailbox.claimed:3", "AGENTSUP_FAULT_LOG": str(log)}
    twice = ["mailbox.claimed", "turn.completed", "mailbox.claimed", "turn.completed"]
    assert run_points(twice, **env).returncode == 0
    assert log.read_text() == "mailbox.claimed\nturn.completed\n"
    assert run_points([*twice, "mailbox.claimed"], **env).returncode == -signal.SIGKILL


def test_without_a_count_the_first_passing_kills() -> None:
    done = run_points(["turn.completed"], AGENTSUP_FAULT="turn.completed")
    assert done.returncode == -signal.SIGKILL


@pytest.mark.parametrize("value", ["nowhere", "nowhere:2", "turn.completed:0", "turn.completed:x"])
def test_a_plan_that_makes_no_sense_stops_the_start(value: str) -> None:
    with pytest.raises(ValueError, match="AGENTSUP_FAULT"):
        faults.FaultPlan.from_env({"AGENTSUP_FAULT": value})
