"""Shared by all tests: a clean environment, markers by folder, how Hypothesis behaves here.

The leak check and virtual time are plugins of the package (``tests.support.leak``,
``tests.support.virtual``), named in pyproject.toml so that they load before any fixture.
"""

from __future__ import annotations

import gc
import os
import signal
import time
from collections.abc import Generator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

from tests.support.order import dealt

HERE = Path(__file__).parent

# Until all tests are collected nothing is garbage; looking for it would cost each worker seconds.
gc.disable()

# A daemon of the person who runs the tests must not be found by them. What makes runs longer is named
# `TEST_…`: the product reports variables called `AGENTSUP_…` that are no settings.
for name in ("HOME", "URL", "TOKEN", "AGENT", "TASK", "FAULT", "FAULT_LOG"):
    os.environ.pop(f"AGENTSUP_{name}", None)

# What a runner hands down differs: in the background it ignores SIGINT, elsewhere it has its own umask,
# language and zone. Tests that are about these set them.
os.umask(0o022)
for number in (signal.SIGINT, signal.SIGQUIT, signal.SIGHUP, signal.SIGTERM):
    if signal.getsignal(number) is signal.SIG_IGN:
        signal.signal(
            number, signal.default_int_handler if number is signal.SIGINT else signal.SIG_DFL
        )
signal.pthread_sigmask(signal.SIG_SETMASK, ())
os.environ |= {"TZ": "UTC", "LANG": "C.UTF-8"}
for name in ("LC_ALL", "LC_CTYPE", "LANGUAGE"):
    os.environ.pop(name, None)
os.environ.setdefault("HOME", str(Path.home()))
time.tzset()

# It may be a service of systemd, show colours, be of some width, or have a proxy that knows no
# loopback; commands and daemons of tests would go by that.
for name in (
    *("INVOCATION_ID", "JOURNAL_STREAM", "NOTIFY_SOCKET", "WATCHDOG_PID", "WATCHDOG_USEC"),
    *("COLUMNS", "LINES", "FORCE_COLOR", "NO_COLOR", "GITHUB_ACTIONS", "TERMINAL_WIDTH"),
    *("EDITOR", "VISUAL", "IS_SANDBOX", "SUDO_USER", "XDG_CONFIG_HOME"),
    *("CLAUDE_CONFIG_DIR", "CODEX_HOME", "OPENCODE_CONFIG", "OPENCODE_CONFIG_DIR"),
):
    os.environ.pop(name, None)
for name in ("no_proxy", "NO_PROXY"):
    given = filter(None, (os.environ.get(name), "127.0.0.1,127.0.0.2,localhost"))
    os.environ[name] = ",".join(given)

settings.register_profile(
    "quick", deadline=None, max_examples=60, suppress_health_check=[HealthCheck.too_slow]
)
settings.register_profile(
    "thorough", deadline=None, max_examples=2_000, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile(os.environ.get("TEST_HYPOTHESIS", "quick"))


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark tests by their folder, so that ``-m`` can select whole rings of the suite."""
    for item in items:
        folder = item.path.relative_to(HERE).parts[0] if item.path.is_relative_to(HERE) else ""
        if folder not in {"process", "live"} and item.get_closest_marker("process"):
            raise pytest.UsageError(f"{item.nodeid}: `make process` looks in tests/process only")
        if folder in {"process", "simulation", "live", "bench"}:
            item.add_marker(folder)
        if item.path.parent == HERE / "unit" / "house":
            item.add_marker("code")
        if _is_nightly(item):
            item.add_marker("nightly")


def _nightly() -> frozenset[str]:
    """What tests/nightly.txt names. Raises ``pytest.UsageError`` for a path that does not exist."""
    lines = (HERE / "nightly.txt").read_text(encoding="utf-8").splitlines()
    names = frozenset(line.strip() for line in lines if line.strip() and not line.startswith("#"))
    for name in sorted(names):
        if not (HERE / name.partition("::")[0]).exists():
            raise pytest.UsageError(f"tests/nightly.txt names {name}, which does not exist")
    return names


def _is_nightly(item: pytest.Item) -> bool:
    if not item.path.is_relative_to(HERE):
        return False
    path = item.path.relative_to(HERE)
    test = f"{path}::{item.name.partition('[')[0]}"
    return not NIGHTLY.isdisjoint({str(path), test, *map(str, path.parents)})


NIGHTLY = _nightly()


class _LongestFirst:
    """Each worker begins with its share of the tests that are allowed most time, so that none of them
    runs alone at the end while the others have nothing to do. Tests that look at the code follow each
    other: the first of a worker parses it for all. Else the order is the one that was drawn."""

    @staticmethod
    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
        workers = int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1"))
        items.sort(key=_looks_at_code, reverse=True)
        items[:] = dealt(items, workers, _allowed_s)


def _looks_at_code(item: pytest.Item) -> bool:
    return item.get_closest_marker("code") is not None


def _allowed_s(item: pytest.Item) -> float:
    marker = item.get_closest_marker("timeout")
    return float(marker.args[0]) if marker is not None and marker.args else 0.0


def pytest_configure(config: pytest.Config) -> None:
    config.pluginmanager.register(_LongestFirst(), "longest-first")


def pytest_collection_finish() -> None:
    """What stands now stands to the end: the collector need not look at it, not even once."""
    gc.freeze()
    gc.enable()


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_makereport() -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Keep captured text printable: half a character in a log line would end an xdist worker."""
    report = yield
    report.sections = [
        (name, text.encode("utf-8", "backslashreplace").decode()) for name, text in report.sections
    ]
    return report
