"""A detached program is on its own: its session, its log, and its end is still seen."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from agentsup.kit.detached import exit_code_of, start_detached


def ended(pid: int) -> int:
    end = time.monotonic() + 10
    while time.monotonic() < end:
        if (code := exit_code_of(pid)) is not None:
            return code
        time.sleep(0.01)
    raise AssertionError("it did not end")


def test_it_has_a_session_and_only_what_it_was_given(tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.write_text("before\n")
    script = 'echo "$ONLY"; echo error >&2; read -r line || echo no input; ps -o sid= -p $$; exit 3'
    pid = start_detached(["/bin/sh", "-c", script], env={"ONLY": "this"}, log=log)
    assert ended(pid) == 3
    assert log.read_text().split() == ["before", "this", "error", "no", "input", str(pid)]
    assert os.getsid(0) != pid


def test_it_reads_what_it_was_given_until_the_other_end_is_closed(tmp_path: Path) -> None:
    log = tmp_path / "log"
    reading, writing = os.pipe()
    script = 'while read -r line; do echo "$line"; done; exit 4'
    pid = start_detached(["/bin/sh", "-c", script], env={}, log=log, stdin=reading)
    os.close(reading)
    os.write(writing, b"heard\n")
    assert exit_code_of(pid) is None
    os.close(writing)
    assert ended(pid) == 4
    assert log.read_text() == "heard\n"


def test_it_is_seen_to_run(tmp_path: Path) -> None:
    pid = start_detached(["/bin/sleep", "60"], env={}, log=tmp_path / "log")
    assert exit_code_of(pid) is None
    os.kill(pid, 9)
    assert ended(pid) == -9


def test_what_cannot_be_started_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(OSError, match="No such file"):
        start_detached([str(tmp_path / "none")], env={}, log=tmp_path / "log")


def test_a_stranger_has_no_exit_code() -> None:
    assert exit_code_of(1) is None
