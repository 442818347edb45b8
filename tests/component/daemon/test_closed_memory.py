"""The daemon's memory is closed before it reads anything that is secret."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.bound import BOUND_S

SCENE = """
import ctypes, sys
from pathlib import Path
from agentsup.daemon.main import run_daemon
from agentsup.kit.files import HomeLock
home = Path(sys.argv[1])
home.mkdir(exist_ok=True)
lock = HomeLock(home / "agentsup.lock")
lock.acquire()
# It meets another daemon, and goes no further.
assert run_daemon(home, port=None) == 1
print("dumpable", ctypes.CDLL(None).prctl(3, 0, 0, 0, 0))
"""


@pytest.mark.skipif(sys.platform != "linux", reason="the kernel of Linux does it")
def test_it_is_closed_first(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", SCENE, str(tmp_path / "home")],
        check=False,
        capture_output=True,
        text=True,
        timeout=BOUND_S,
        cwd=Path(__file__).parents[3],
    )
    assert done.stdout == "dumpable 0\n", done.stderr
