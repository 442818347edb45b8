"""What a program of the same user sees of a process that has closed its memory."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.bound import BOUND_S

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="the kernel of Linux does it")

SCENE = """
import ctypes, os, subprocess, sys, tempfile, time
sys.path.insert(0, sys.argv[1])
from agentsup.kit.prctl import close_memory
if os.geteuid() == 0:
    os.setgroups([])
    os.setgid(65534)
    os.setuid(65534)
    ctypes.CDLL(None).prctl(4, 1, 0, 0, 0)  # as if it had been started so
if sys.argv[2] == "closed":
    assert close_memory()
for name, look in (("environ", ": < /proc/$1/environ"), ("mem", ": < /proc/$1/mem"),
                   ("fd", "ls /proc/$1/fd")):
    done = subprocess.run(["sh", "-c", look, "look", str(os.getpid())], capture_output=True)
    if done.returncode == 0:
        print(name)
# What the daemon itself looks up about its own files, and about its children.
with tempfile.TemporaryFile() as file:
    assert os.readlink(f"/proc/self/fd/{file.fileno()}")
    assert os.listdir("/proc/self/fd")
child = subprocess.Popen(["sleep", "10"], env={"MARK": "here"})
try:
    for _ in range(500):  # its memory is its own a moment after it has begun
        try:
            with open(f"/proc/{child.pid}/environ", "rb") as file:
                shown = file.read()
        except PermissionError:
            shown = b""
        if shown:
            break
        time.sleep(0.01)
    assert b"MARK=here" in shown
    assert os.path.exists(f"/proc/self/task/{os.getpid()}/children")
    with open(f"/proc/self/task/{os.getpid()}/children", "rb") as file:
        assert str(child.pid).encode() in file.read()
finally:
    child.kill()
    child.wait()
"""


def seen(how: str) -> set[str]:
    """What a child of the same user, without the rights of root, can open of its parent."""
    package = Path(__file__).parents[3]
    result = subprocess.run(
        [sys.executable, "-c", SCENE, str(package), how],
        check=False,
        capture_output=True,
        text=True,
        timeout=BOUND_S,
        env={"PATH": os.defpath, "HUNTER2": "a secret"},
    )
    assert result.returncode == 0, result.stderr
    return set(result.stdout.split())


def test_memory_and_environment_are_closed_to_the_same_user() -> None:
    assert {"environ", "fd"} <= seen("open")
    assert seen("closed") == set()
