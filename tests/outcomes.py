"""A pytest plugin that writes to a file which tests of a run passed, failed and were skipped.

``scripts/gate.py`` loads it, because it runs failed tests once more and adds up several runs:

    python -m pytest -p tests.outcomes --outcomes=FILE

The file holds one JSON object: ``passed`` (a count), ``failed`` (node ids), ``skipped`` (a count for
each reason) and ``broken`` (files that could not be collected).
"""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

import pytest


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--outcomes", type=Path, help="write the outcomes of the run to this file")


def pytest_configure(config: pytest.Config) -> None:
    """Record in the process that reports; workers of xdist send their reports to it."""
    file: Path | None = config.getoption("outcomes")
    if file is not None and not hasattr(config, "workerinput"):
        config.pluginmanager.register(_Recorder(file), "outcomes-recorder")


class _Recorder:
    def __init__(self, file: Path) -> None:
        self._file = file
        self._passed: set[str] = set()
        self._failed: set[str] = set()
        self._skipped: Counter[str] = Counter()
        self._broken: list[str] = []

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed:
            self._failed.add(report.nodeid)
        elif report.skipped:
            self._skipped[_reason(report)] += 1
        elif report.when == "call":
            self._passed.add(report.nodeid)

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        if report.failed:
            self._broken.append(report.nodeid)

    def pytest_sessionfinish(self) -> None:
        outcomes = {
            "passed": len(self._passed - self._failed),
            "failed": sorted(self._failed),
            "skipped": dict(self._skipped),
            "broken": self._broken,
        }
        self._file.write_text(json.dumps(outcomes), encoding="utf-8")


def _reason(report: pytest.TestReport) -> str:
    if isinstance(report.longrepr, tuple):
        return report.longrepr[2].removeprefix("Skipped: ")
    return str(report.longrepr)
