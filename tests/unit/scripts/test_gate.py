"""The gate, with real runs of pytest on small suites."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[3]
PROGRAM = """
import sys
from scripts import gate
parts = (gate.Part("tests", (".",), is_pytest=True),)
gate.WORDS = {"word": parts}
sys.exit(gate.main(["word"]))
"""
FAILS_ONCE = """
import pathlib
def test_{name}():
    seen = pathlib.Path("{name}.seen")
    if not seen.exists():
        seen.touch()
        assert False, "the first time"
"""


def gate(folder: Path, *tests: str, program: str = PROGRAM) -> tuple[int, list[str]]:
    """The exit code and the printed lines of the gate over a suite of these tests."""
    (folder / "pytest.ini").write_text("[pytest]\n")
    (folder / "test_suite.py").write_text("\n".join(tests))
    done = subprocess.run(
        [sys.executable, "-c", program],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )
    return done.returncode, done.stdout.splitlines()


def test_what_passes_is_green(tmp_path: Path) -> None:
    code, lines = gate(
        tmp_path,
        "def test_one(): pass",
        "import pytest\n@pytest.mark.skip(reason='no moon')\ndef test_two(): pass",
    )
    assert code == 0
    assert lines[-1] == "word: 1 passed, 0 failed, 1 skipped"
    assert "skipped: 1 x no moon" in lines
    assert len(lines[lines.index("skipped: 1 x no moon") - 1 :]) <= 5, "the sum has five lines"


def test_what_fails_once_is_unstable_and_green(tmp_path: Path) -> None:
    code, lines = gate(tmp_path, "def test_one(): pass", FAILS_ONCE.format(name="two"))
    assert code == 0
    assert "unstable: test_suite.py::test_two" in lines
    assert lines[-1] == "word: 2 passed, 0 failed, 0 skipped"


def test_what_fails_twice_is_red(tmp_path: Path) -> None:
    code, lines = gate(tmp_path, "def test_one(): assert 0", FAILS_ONCE.format(name="two"))
    assert code == 1
    assert "RED: failed twice: test_suite.py::test_one" in lines[-2]
    assert lines[-1] == "word: 1 passed, 1 failed, 0 skipped"


def test_more_than_five_unstable_tests_are_red(tmp_path: Path) -> None:
    code, lines = gate(tmp_path, *(FAILS_ONCE.format(name=name) for name in "abcdef"))
    assert code == 1
    assert "RED: 6 tests failed" in lines[-2]


def test_a_file_that_can_not_be_collected_is_red(tmp_path: Path) -> None:
    code, lines = gate(tmp_path, "import no_such_module")
    assert code == 1
    assert "RED: tests" in lines[-2]


def test_a_run_that_crashes_is_red(tmp_path: Path) -> None:
    code, lines = gate(tmp_path, "import os\ndef test_one(): os._exit(0)")
    assert code == 1
    assert "RED: tests" in lines[-2]


def test_later_parts_are_left_out_after_a_failed_check(tmp_path: Path) -> None:
    program = PROGRAM.replace(
        "parts = (",
        'parts = (gate.Part("lint", ("python", "-c", "raise SystemExit(1)"), ends_run=True), ',
    )
    code, lines = gate(tmp_path, "def test_one(): pass", program=program)
    assert code == 1
    assert "RED: lint" in lines[-2]
    assert "left out: tests" in lines[-4]


def test_an_unknown_word_is_refused(tmp_path: Path) -> None:
    code, _ = gate(tmp_path, program=PROGRAM.replace('["word"]', '["other"]'))
    assert code == 2


def test_a_part_that_hangs_is_ended_and_red(tmp_path: Path) -> None:
    program = PROGRAM.replace("sys.exit", "gate.PART_S = 2.0\nsys.exit")
    code, lines = gate(tmp_path, "import time\ndef test_one(): time.sleep(600)", program=program)
    assert code == 1
    assert "RED: tests" in lines[-2]
