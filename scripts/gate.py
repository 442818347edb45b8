"""Runs the parts of one word of the Makefile, runs what failed once more alone, and sums it up.

    python scripts/gate.py quick|test|nightly|smoke-live

A test that fails is run once more after everything else, alone. If it passes then, it is printed as
``unstable: NODEID`` and the run is green; such a test is a defect that is to be mended. The run is red
if a test fails twice, if more than five tests are unstable, or if a part fails in another way.

Exit codes: 0 green, 1 red, 2 an unknown word.
"""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

MOST_UNSTABLE: Final = 5
"""More unstable tests than these make a run red: so many have a cause in common."""
SOURCES: Final = ("agentsup", "tests", "benchmarks", "scripts")
PART_S: Final = 4 * 3600.0
"""After so many seconds a part hangs; the longest of `make nightly` takes an hour on two cores."""
PYTEST_FAILED: Final = (0, 1, 5)
"""Exit codes of pytest after which its outcomes are whole: all passed, some failed, none chosen."""


@dataclass(frozen=True, slots=True)
class Part:
    """A step of a word.

    Of a pytest run, ``command`` holds the arguments and ``is_pytest`` is set. ``env`` is added to the
    environment. With ``ends_run`` later parts are not worth running if this one fails.
    """

    name: str
    command: tuple[str, ...]
    is_pytest: bool = False
    env: Mapping[str, str] = field(default_factory=dict)
    ends_run: bool = False


def _tool(name: str, *command: str) -> Part:
    return Part(name, command, ends_run=True)


def _tests(name: str, *arguments: str, **env: str) -> Part:
    return Part(name, arguments, is_pytest=True, env=env)


_BESIDE: Final = ("-n", "5", "--dist", "worksteal")
"""Most tests wait for loopback answers more than they compute, so five workers share two cores well."""
_PROCESS: Final = ("-n", "4", "--dist", "worksteal")
"""Tests of processes watch the clock, but compute for less than half of their time."""
_NO_PROCESS: Final = ("--ignore=tests/process", "--ignore=tests/live", "--ignore=tests/bench")
"""Folders whose tests the marks leave out anyway: no worker has to read them."""
_HERE: Final = "not nightly and not slow and not bench and not live"

_WORKERS: Final = ("--num-workers", "2")
"""On a busy machine mypy may not reach its workers in time and ends with 2; then it works alone."""
_FORMAT: Final = (
    _tool("format", "ruff", "format", "--check", *SOURCES),
    _tool("lint", "ruff", "check", *SOURCES),
    _tool("layers", "lint-imports", "--no-logo"),
)
_UNIT: Final = _tests(
    "unit", *_BESIDE, "-m", f"not process and {_HERE}", "tests/unit", "tests/contract"
)
WORDS: Final[Mapping[str, tuple[Part, ...]]] = {
    "quick": (*_FORMAT, _UNIT),
    "test": (
        *_FORMAT,
        _tool("types", "mypy", *_WORKERS, *SOURCES),
        _tests(
            "tests",
            *_BESIDE,
            "-m",
            f"not process and {_HERE}",
            *_NO_PROCESS,
            "tests",
        ),
        _tests("processes", *_PROCESS, "-m", f"process and {_HERE}", "tests/process"),
    ),
    "smoke-live": (_tests("smoke-live", "-m", "live and smoke", "tests/live"),),
    "nightly": (
        _tests(
            "all beside",
            *_BESIDE,
            "-m",
            "not process and not simulation and not slow and not bench and not live",
            *_NO_PROCESS,
            "tests",
            TEST_APPROVALS="5000",
            TEST_FLOW_CALLS="400",
            TEST_FLOW_ROUNDS="2",
            TEST_FLOW_SEEDS="1,2,3,4,5,6",
            TEST_PLANTED="all",
            TEST_STORMS="40",
            TEST_TELEGRAM_EACH="2000",
        ),
        _tests(
            "simulation",
            *("-n", "2", "--timeout=0"),
            *("-m", "simulation", "tests/simulation"),
            TEST_SIM_SEEDS="50000",
        ),
        _tests(
            "processes",
            *("-n", "2", "--dist", "worksteal", "--timeout=0"),
            *("-m", "process and not slow and not bench and not live", "tests/process"),
            TEST_FUZZ="20000",
            TEST_HOSTILE="all",
            TEST_KILLS="300",
            TEST_PLANTED="all",
        ),
        _tests("live", "-m", "live", "tests/live", TEST_KILLS="100"),
    ),
}


@dataclass(frozen=True, slots=True)
class Outcomes:
    """What the tests of one or more runs came to."""

    passed: int = 0
    failed: tuple[str, ...] = ()
    skipped: Mapping[str, int] = field(default_factory=dict)
    broken: tuple[str, ...] = ()

    def __add__(self, other: Outcomes) -> Outcomes:
        return Outcomes(
            self.passed + other.passed,
            self.failed + other.failed,
            dict(Counter(self.skipped) + Counter(other.skipped)),
            self.broken + other.broken,
        )

    @classmethod
    def read(cls, file: Path) -> Outcomes:
        """What ``tests.outcomes`` wrote. Raises ``OSError`` and ``ValueError`` if it did not."""
        told = json.loads(file.read_text(encoding="utf-8"))
        return cls(told["passed"], tuple(told["failed"]), told["skipped"], tuple(told["broken"]))


@dataclass(slots=True)
class Run:
    """A run of one word: its parts so far, what their tests came to, and what was wrong."""

    word: str
    seconds: dict[str, float] = field(default_factory=dict)
    outcomes: Outcomes = field(default_factory=Outcomes)
    red: list[str] = field(default_factory=list)
    left_out: list[str] = field(default_factory=list)
    unstable: list[str] = field(default_factory=list)

    def run_all(self, parts: Sequence[Part]) -> None:
        """Run the parts in their order, then each failed test once more."""
        for position, part in enumerate(parts):
            began = time.monotonic()
            print(f"-- {part.name}", flush=True)
            is_green = self._run_tests(part) if part.is_pytest else _call(part) == 0
            self.seconds[part.name] = time.monotonic() - began
            if not is_green:
                self.red.append(part.name)
                if part.ends_run:
                    self.left_out = [each.name for each in parts[position + 1 :]]
                    return

    def run_failed(self, again: Callable[[str], bool]) -> None:
        """Run each failed test once more; ``again(nodeid)`` says whether it passed."""
        failed = self.outcomes.failed
        if len(failed) > MOST_UNSTABLE:
            self.red.append(
                f"{len(failed)} tests failed; more than {MOST_UNSTABLE} are not tried again"
            )
            return
        if not failed:
            return
        began = time.monotonic()
        print("-- failed tests once more, alone", flush=True)
        for nodeid in failed:
            if again(nodeid):
                self.unstable.append(nodeid)
            else:
                self.red.append(f"failed twice: {nodeid}")
        self.seconds["once more"] = time.monotonic() - began

    def summary(self) -> list[str]:
        """What ran, how long it took, what was skipped and why, what is unstable, the result."""
        passed = self.outcomes.passed + len(self.unstable)
        failed = len(self.outcomes.failed) - len(self.unstable)
        result = f"RED: {'; '.join(self.red)}" if self.red else "green"
        skipped = Counter(self.outcomes.skipped)
        reasons = "; ".join(f"{count} x {reason}" for reason, count in skipped.most_common(4))
        parts = ", ".join(f"{name} {seconds:.0f} s" for name, seconds in self.seconds.items())
        after = f" (left out: {', '.join(self.left_out)})" if self.left_out else ""
        return [
            f"parts: {parts}{after}",
            f"skipped: {reasons or 'nothing'}",
            *(f"unstable: {nodeid}" for nodeid in self.unstable),
            f"{self.word}: {_duration(sum(self.seconds.values()))}, {result}",
            f"{self.word}: {passed} passed, {failed} failed, {skipped.total()} skipped",
        ]

    def _run_tests(self, part: Part) -> bool:
        code, outcomes = _pytest(part.command, part.env)
        if outcomes is None:
            return False
        self.outcomes += outcomes
        return code in PYTEST_FAILED and not outcomes.broken


def _pytest(arguments: Sequence[str], env: Mapping[str, str]) -> tuple[int, Outcomes | None]:
    """Run pytest; its exit code, and what its tests came to unless it could not say."""
    with tempfile.TemporaryDirectory(prefix="gate-") as folder:
        file = Path(folder) / "outcomes.json"
        command = ("python", "-m", "pytest", "-q", "-p", "tests.outcomes", f"--outcomes={file}")
        code = _call(Part("pytest", (*command, *arguments), env=env))
        try:
            return code, Outcomes.read(file)
        except (OSError, ValueError):
            return code, None


def _call(part: Part) -> int:
    program, *arguments = part.command
    command = [str(Path(sys.executable).parent / program), *arguments]
    for name, value in part.env.items():
        print(f"   {name}={shlex.quote(value)}", flush=True)
    env = {**part.env, **os.environ}
    try:
        code = subprocess.run(command, env=env, check=False, timeout=PART_S).returncode
        if code == 2 and part.command[1:3] == _WORKERS:
            del command[1:3]
            code = subprocess.run(command, env=env, check=False, timeout=PART_S).returncode
        return code
    except subprocess.TimeoutExpired:
        print(f"   {part.name} was ended after {_duration(PART_S)}", flush=True)
        return -1


def _passes_alone(nodeid: str) -> bool:
    code, outcomes = _pytest((nodeid,), {})
    return code == 0 and outcomes is not None and outcomes.passed > 0


def _duration(seconds: float) -> str:
    return f"{seconds // 60:.0f} min {seconds % 60:.0f} s"


def main(arguments: Sequence[str]) -> int:
    if len(arguments) != 1 or arguments[0] not in WORDS:
        print(f"usage: gate.py {'|'.join(WORDS)}", file=sys.stderr)
        return 2
    run = Run(arguments[0])
    run.run_all(WORDS[run.word])
    run.run_failed(_passes_alone)
    print("\n" + "\n".join(run.summary()), flush=True)
    return 1 if run.red else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
