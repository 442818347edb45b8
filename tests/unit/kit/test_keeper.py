"""The small parent: what it starts again, what it leaves ended, and how it says so."""

from __future__ import annotations

import ast
import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from agentsup.kit import keeper
from agentsup.kit.keeper import MAX_RESTARTS, TAKEN, WINDOW_S, pause_s
from agentsup.kit.keeping import KeeperStatus, has_keeper, read_status, start_keeper
from tests.support.bound import BOUND_S
from tests.support.source_tree import PACKAGE

PAUSED = (
    f"import sys; sys.path.insert(0, {str(PACKAGE.parent)!r}); from agentsup.kit import keeper; "
    "keeper.BASE_S = keeper.CAP_S = float(sys.argv[1]); sys.exit(keeper.main(sys.argv[2:]))"
)
"""A keeper whose pauses are as long as its first argument says, in seconds."""
LONG, SHORT = "600", "0.01"


def until(what: str, look: Callable[[], Any]) -> Any:
    end = time.monotonic() + BOUND_S
    while time.monotonic() < end:
        if found := look():
            return found
        time.sleep(0.01)
    raise AssertionError(f"not in time: {what}")


class Keepers:
    """Keepers of shell scripts, all with one status."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.file = folder / "status"
        self.errors = folder / "errors"
        self.started: list[subprocess.Popen[bytes]] = []

    def start(self, script: str, *words: str, pause: str = LONG) -> subprocess.Popen[bytes]:
        program = ["-c", PAUSED, pause]
        argv = [sys.executable, "-I", "-S", *program, str(self.file), "/bin/sh", "-c", script, "sh"]
        with self.errors.open("ab") as errors:  # a pipe would be the programs' too
            made = subprocess.Popen([*argv, *words], cwd=self.folder, stderr=errors)
        self.started.append(made)
        return made

    def ended(self, started: subprocess.Popen[bytes]) -> tuple[int, str]:
        return started.wait(BOUND_S), self.errors.read_text()

    @property
    def status(self) -> KeeperStatus | None:
        return read_status(self.file)

    def until(self, state: str) -> KeeperStatus:
        def look() -> KeeperStatus | None:
            found = self.status
            return found if found is not None and found.state == state else None

        found = until(state, look)
        assert isinstance(found, KeeperStatus)
        return found

    def lines(self) -> list[str]:
        path = self.folder / "lines"
        return path.read_text().splitlines() if path.exists() else []


@pytest.fixture
def keepers(tmp_path: Path) -> Iterator[Keepers]:
    made = Keepers(tmp_path)
    yield made
    for each in made.started:
        if each.poll() is None:
            each.kill()
        each.wait(BOUND_S)
    found = made.status
    if found is not None and found.child:
        with contextlib.suppress(ProcessLookupError):
            os.kill(found.child, signal.SIGKILL)


def test_what_was_wanted_stays_ended_and_the_rest_is_started_again() -> None:
    for wanted in (0, -signal.SIGTERM, -signal.SIGINT, 143):
        assert pause_s(wanted, [], 0.0) is None
    assert pause_s(keeper.REBUILD_CODE, [0.0] * 99, 0.0) == 0.0
    pauses = [pause_s(-9, [0.0] * count, 0.0) for count in range(1, MAX_RESTARTS + 2)]
    assert pauses == [1.0, 2.0, 4.0, 8.0, 16.0, None]
    later = WINDOW_S + 1
    assert pause_s(1, [*[0.0] * 9, later], later) == 1.0, "what is long ago does not count"


def test_it_needs_nothing_of_the_package_and_little_of_python(tmp_path: Path) -> None:
    tree = ast.parse(Path(keeper.__file__).read_text())
    names = {
        alias.name
        for node in ast.walk(tree)
        if isinstance(node, ast.Import)
        for alias in node.names
    }
    assert names == {"ctypes", "fcntl", "os", "select", "signal", "sys", "time"}
    words = [str(tmp_path / "status"), "/bin/sh", "-c", "exit 0"]
    loaded = subprocess.run(
        [sys.executable, "-I", "-S", "-X", "importtime", keeper.__file__, *words],
        capture_output=True,
        check=True,
        timeout=BOUND_S,
    ).stderr
    for heavy in (b"asyncio", b"typing", b"subprocess", b"dataclasses", b"agentsup", b"site"):
        assert not [
            line for line in loaded.splitlines() if line.rpartition(b"|")[2].strip() == heavy
        ]


@pytest.mark.skipif(sys.platform != "linux", reason="a setting of Linux")
def test_its_memory_is_closed_as_the_daemons_is(tmp_path: Path) -> None:
    """The environment that it hands on has keys."""
    is_open = (
        f"import ctypes, sys; sys.path.insert(0, {str(PACKAGE.parent)!r}); "
        "from agentsup.kit import keeper; "
        "keeper.Keeper.run = lambda self: ctypes.CDLL(None).prctl(3, 0, 0, 0, 0); "
        "sys.exit(keeper.main(sys.argv[1:]))"
    )
    argv = [sys.executable, "-I", "-S", "-c", is_open, str(tmp_path / "status")]
    assert subprocess.run(argv, check=False, timeout=BOUND_S).returncode == 0


def test_code_42_is_a_start_at_once_and_0_the_end(keepers: Keepers) -> None:
    script = 'echo "$@" >> lines; test $(wc -l < lines) = 3 || exit 42'
    code, said = keepers.ended(keepers.start(script, "--accept-store", "--port"))
    assert (code, said) == (0, "")
    assert keepers.lines() == ["--accept-store --port", "--port", "--port"]
    assert keepers.status is None, "nothing is left to tell"


def test_a_crash_is_told_and_waited_for(keepers: Keepers) -> None:
    running = keepers.start("exec sleep 60")
    first = keepers.until(keeper.RUNNING)
    assert (first.pid, first.failures, first.is_alive) == (running.pid, 0, True)
    before = time.time()
    os.kill(first.child, signal.SIGKILL)
    waits = keepers.until(keeper.WAITING)
    assert (waits.child, waits.code, waits.failures, waits.is_waiting) == (0, -9, 1, True)
    assert waits.until_s > before + 500


def test_a_crash_is_followed_by_a_start(keepers: Keepers) -> None:
    script = "echo $$ >> lines; test $(wc -l < lines) = 2 || kill -9 $$; exec sleep 60"
    running = keepers.start(script, pause=SHORT)
    until("the second runs", lambda: len(keepers.lines()) == 2)
    again = keepers.until(keeper.RUNNING)
    assert (again.code, again.failures) == (-9, 1)
    running.terminate()
    assert keepers.ended(running)[0] == 128 + signal.SIGTERM, "the daemon was ended with it"
    assert len(keepers.lines()) == 2


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGUSR1])
def test_an_end_that_is_wanted_between_two_starts_needs_no_third(
    keepers: Keepers, number: signal.Signals
) -> None:
    running = keepers.start("echo x >> lines; exit 3")
    keepers.until(keeper.WAITING)
    running.send_signal(number)
    assert keepers.ended(running)[0] == 3
    assert (keepers.lines(), keepers.status) == (["x"], None)


def test_an_announced_end_is_the_last_whatever_its_code(keepers: Keepers) -> None:
    running = keepers.start("echo x >> lines; exec sleep 60")
    child = keepers.until(keeper.RUNNING).child
    until("it is up", keepers.lines)
    running.send_signal(signal.SIGUSR1)
    running.send_signal(signal.SIGUSR1)
    assert running.poll() is None
    # The signal is handled before the end of the child is seen: both wait in one pipe, in order.
    os.kill(child, signal.SIGKILL)
    assert keepers.ended(running)[0] == 128 + signal.SIGKILL
    assert keepers.lines() == ["x"]


def test_a_signal_ends_the_daemon_in_its_own_way_and_no_other_of_its_session(
    keepers: Keepers,
) -> None:
    script = (
        "trap 'echo asked >> lines; exit 0' TERM; echo up >> lines; while :; do sleep 0.05; done"
    )
    running = keepers.start(script)
    child = keepers.until(keeper.RUNNING).child
    assert os.getsid(child) == child != os.getsid(running.pid)
    until("it is up", keepers.lines)
    running.terminate()
    assert keepers.ended(running)[0] == 0
    assert keepers.lines() == ["up", "asked"]


def test_too_many_crashes_are_given_up(keepers: Keepers) -> None:
    code, said = keepers.ended(keepers.start("echo x >> lines; exit 7", pause=SHORT))
    assert code == 7
    assert len(keepers.lines()) == MAX_RESTARTS + 1
    assert said.count("it is started again") == MAX_RESTARTS
    assert said.endswith("now with code 7: given up\n")
    found = keepers.status
    assert found is not None
    assert (found.state, found.is_alive, found.failures) == (keeper.GIVEN_UP, False, 6)


def test_there_is_one_keeper(keepers: Keepers) -> None:
    keepers.start("exec sleep 60")
    first = keepers.until(keeper.RUNNING)
    assert keepers.ended(keepers.start("echo x >> lines"))[0] == TAKEN
    assert keepers.status == first
    assert keepers.lines() == []


def test_looking_never_keeps_a_keeper_from_its_start(keepers: Keepers) -> None:
    import fcntl

    if os.geteuid() != 0:
        pytest.skip("only root sees the files of a process whose memory is closed")
    keepers.file.touch()
    with keepers.file.open() as looked_at:
        fcntl.flock(looked_at, fcntl.LOCK_SH)
        running = keepers.start("exit 0")
        opened = Path(f"/proc/{running.pid}/fd")
        until(
            "it has opened the file",
            lambda: str(keepers.file) in [str(each.resolve()) for each in opened.iterdir()],
        )
        fcntl.flock(looked_at, fcntl.LOCK_UN)
    assert keepers.ended(running)[0] == 0


def test_a_killed_keeper_is_known_to_be_gone(keepers: Keepers) -> None:
    running = keepers.start("exec sleep 60")
    child = keepers.until(keeper.RUNNING).child
    running.kill()
    keepers.ended(running)
    found = keepers.status
    assert found is not None
    assert (found.is_alive, found.is_waiting, found.child) == (False, False, child)


def test_what_cant_be_started_is_given_up_too(tmp_path: Path) -> None:
    status, log = tmp_path / "status", tmp_path / "log"
    pid = start_keeper(status, [str(tmp_path / "none")], {}, log)
    until("it waits", lambda: (found := read_status(status)) and found.is_waiting)
    os.kill(pid, signal.SIGTERM)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 127
    assert "can't be started: No such file" in log.read_text()


def test_a_program_knows_its_keeper(tmp_path: Path) -> None:
    status = tmp_path / "status"
    assert not has_keeper(status)
    look = (
        f"import sys; sys.path.insert(0, {str(PACKAGE.parent)!r}); from pathlib import Path; "
        "from agentsup.kit.keeping import has_keeper; print(has_keeper(Path(sys.argv[1])))"
    )
    pid = start_keeper(
        status, [sys.executable, "-c", look, str(status)], dict(os.environ), tmp_path / "log"
    )
    os.waitpid(pid, 0)
    assert (tmp_path / "log").read_text() == "True\n"


@pytest.mark.parametrize("text", ["", "x", "1 2 running 0 0", "a b c d e f", "1 2 running 0 0 ?"])
def test_a_file_that_says_nothing_is_no_keeper(tmp_path: Path, text: str) -> None:
    (tmp_path / "status").write_text(text)
    assert read_status(tmp_path / "status") is None
