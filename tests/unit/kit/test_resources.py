"""What another program took from a process is found, and given back where the kernel lets it."""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from agentsup.kit.resources import granted, restore

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="another process's are set so")

CORE = resource.RLIMIT_CORE
NO_ROOT = """
import os, sys
def become_nobody():
    if os.geteuid() == 0:
        os.setgroups([])
        os.setgid(65534)
        os.setuid(65534)
"""
CHANGE = f"""{NO_ROOT}
import resource
become_nobody()
pid, thread, core = int(sys.argv[1]), int(sys.argv[2]), resource.RLIMIT_CORE
"""
SCENE = (
    NO_ROOT
    + """
import json, threading
sys.path.insert(0, sys.argv[1])
from agentsup.kit.resources import granted, restore
become_nobody()
end = threading.Event()
other = threading.Thread(target=end.wait)
other.start()
start = granted()
print(other.native_id, flush=True)
for line in sys.stdin:
    print(json.dumps([[c.name, c.was, c.now, c.is_restored] for c in restore(start)]), flush=True)
end.set()
"""
)
Look = Callable[[], list[list[Any]]]


def change(pid: int, thread: int, *steps: str) -> None:
    """Made by another program of the same user, without rights either."""
    program = CHANGE + "\n".join(steps)
    subprocess.run([sys.executable, "-c", program, str(pid), str(thread)], check=True)


def core_of(pid: int) -> tuple[int, ...]:
    rows = Path(f"/proc/{pid}/limits").read_text().splitlines()
    (row,) = (row for row in rows if row.startswith("Max core file size"))
    return tuple(map(int, row.split()[4:6]))


@contextmanager
def target() -> Iterator[tuple[int, int, Look]]:
    """A process without rights: its number, that of a thread, and what it finds and gives back."""
    process = subprocess.Popen(
        [sys.executable, "-c", SCENE, str(Path(__file__).parents[3])],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        preexec_fn=lambda: resource.setrlimit(CORE, (4096, 8192)),  # noqa: PLW1509 - one thread
    )
    assert process.stdin is not None
    assert process.stdout is not None
    lines, answers = process.stdin, process.stdout

    def look() -> list[list[Any]]:
        lines.write("\n")
        lines.flush()
        found: list[list[Any]] = json.loads(answers.readline())
        return found

    with process:
        thread = int(answers.readline())
        yield process.pid, thread, look
        lines.close()


def test_nothing_is_found_where_nothing_was_taken() -> None:
    assert restore(granted()) == []


def test_what_needs_no_rights_is_given_back() -> None:
    with target() as (pid, thread, look):
        cpus = os.sched_getaffinity(pid)
        assert look() == []
        change(
            *(pid, thread, "resource.prlimit(pid, core, (0, 8192))"),
            "os.sched_setscheduler(pid, os.SCHED_BATCH, os.sched_param(0))",
            "assert os.system(f'ionice -c 3 -p {pid}') == 0",
            "os.sched_setaffinity(thread, {min(os.sched_getaffinity(pid))})",
        )
        found = {name: (was, now, is_restored) for name, was, now, is_restored in look()}
        assert found.pop("limit core") == ("4096/8192", "0/8192", True)
        assert found.pop("scheduling policy") == ("0", "3", True)
        was, now, is_restored = found.pop("priority for the disk")
        assert (now.startswith("class 3"), is_restored) == (True, True), (was, now)
        if len(cpus) > 1:
            assert found.pop("processors")[2]
        assert not found
        assert core_of(pid) == (4096, 8192)
        assert os.sched_getaffinity(thread) == cpus
        assert look() == []


def test_what_can_not_be_given_back_is_told_as_that() -> None:
    with target() as (pid, thread, look):
        change(
            *(pid, thread, "resource.prlimit(pid, core, (1024, 2048))"),
            "os.setpriority(os.PRIO_PROCESS, thread, 19)",
        )
        for _ in range(2):
            found = {name: is_restored for name, _, _, is_restored in look()}
            assert found.pop("limit core") is False
            assert found.pop("nice") is False
            assert core_of(pid) == (2048, 2048)
