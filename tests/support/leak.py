"""pytest plugin: a test leaves nothing behind.

After each test that passed, the plugin looks for asyncio tasks that were alive when their loop was
closed, threads, open file descriptors and child processes that were not there before, and errors
that asyncio could only log (an exception nobody retrieved, a task destroyed while pending). Each
finding fails the test at teardown and is named, with the place where it stands.

``@pytest.mark.leaks("fds", reason="…")`` declares a justified exception for the named kinds.
"""

from __future__ import annotations

import asyncio
import asyncio.runners
import gc
import logging
import os
import signal
import threading
import time
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, TypeVar

import pytest

from agentsup.kit.pool import IDLE

T = TypeVar("T")

KINDS: Final = ("tasks", "threads", "fds", "children", "errors")
SETTLE_S: Final = 2.0
CLOSE_S: Final = 15.0
"""Seconds of real time in which the tasks that are left when a loop closes must obey their
cancellation. A test whose tasks ignore it would otherwise hang without a word."""
_POLL_S: Final = 0.01


class StubbornTasks(AssertionError):
    """Tasks went on after they were cancelled at the end of a test; the text names each."""


@dataclass(slots=True)
class Watch:
    """What existed before a test, and what its loops left behind."""

    threads: frozenset[threading.Thread]
    fds: frozenset[tuple[int, str]]
    children: frozenset[int]
    tasks: list[str] = field(default_factory=list)
    errors: list[str] = field(default_factory=list)
    passed: bool = False


class LeakPlugin(logging.Handler):
    """Takes stock before each test and compares after its teardown."""

    def __init__(self) -> None:
        super().__init__(logging.ERROR)
        self._watch: Watch | None = None
        self._cancel_all: Callable[[Any], None] | None = None

    def install(self) -> None:
        """Listen to asyncio's log and to every closing of a runner."""
        logging.getLogger("asyncio").addHandler(self)
        original = asyncio.runners._cancel_all_tasks  # type: ignore[attr-defined]  # pinned by a test
        self._cancel_all = original

        def note_and_cancel(loop: asyncio.AbstractEventLoop) -> None:
            if self._watch is not None and not getattr(loop, "failed", False):
                _finish_closing(loop)
                self._watch.tasks += [_describe_task(task) for task in asyncio.all_tasks(loop)]
            with _bounded(loop):
                original(loop)

        asyncio.runners._cancel_all_tasks = note_and_cancel  # type: ignore[attr-defined]  # restored below

    def uninstall(self) -> None:
        """Undo ``install``."""
        logging.getLogger("asyncio").removeHandler(self)
        asyncio.runners._cancel_all_tasks = self._cancel_all  # type: ignore[attr-defined]  # as above

    def emit(self, record: logging.LogRecord) -> None:
        """Keep what asyncio logs as an error."""
        if self._watch is not None:
            self._watch.errors.append(record.getMessage())

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_setup(self, item: pytest.Item) -> Generator[None, object, object]:
        """Take stock before the first fixture."""
        self._watch = Watch(
            threads=frozenset(threading.enumerate()), fds=open_fds(), children=child_pids()
        )
        return (yield)

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(
        self, item: pytest.Item, call: pytest.CallInfo[None]
    ) -> Generator[None, pytest.TestReport, pytest.TestReport]:
        """Remember whether the test itself passed: a failed one leaves things behind rightly."""
        report = yield
        if call.when == "call" and self._watch is not None:
            self._watch.passed = report.passed
        return report

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_teardown(self, item: pytest.Item) -> Generator[None, object, object]:
        """Compare after the last fixture; clear leftover children so that they hurt no other."""
        result = yield
        watch, self._watch = self._watch, None
        if watch is None:
            return result
        findings = _findings(watch, allowed_kinds(item)) if watch.passed else []
        for pid in child_pids() - watch.children:
            _end_child(pid)
        if findings:
            pytest.fail("the test left behind:\n" + "\n".join(findings), pytrace=False)
        return result


def pytest_configure(config: pytest.Config) -> None:
    """Start watching."""
    config.addinivalue_line("markers", "leaks(*kinds, reason): what a test may leave, and why")
    plugin = LeakPlugin()
    plugin.install()
    config.pluginmanager.register(plugin, "agentsup-leak-check")
    config.add_cleanup(plugin.uninstall)


def allowed_kinds(item: pytest.Item) -> frozenset[str]:
    """The kinds that ``item``'s markers excuse; a marker without a reason is an error."""
    kinds: set[str] = set()
    for marker in item.iter_markers("leaks"):
        unknown = set(marker.args) - set(KINDS)
        if unknown or not marker.args or not marker.kwargs.get("reason"):
            raise pytest.UsageError(
                f"{item.nodeid}: write leaks(<kinds of {', '.join(KINDS)}>, reason='why')"
            )
        kinds.update(marker.args)
    return frozenset(kinds)


def open_fds() -> frozenset[tuple[int, str]]:
    """Open file descriptors with what they point at; empty where /proc is missing."""
    found = set()
    with suppress(FileNotFoundError):
        for number in os.listdir("/proc/self/fd"):  # noqa: PTH208 - paths cost much more, twice a test
            with suppress(OSError):  # the listing's own descriptor is gone by now
                found.add((int(number), os.readlink(f"/proc/self/fd/{number}")))  # noqa: PTH115
    return frozenset(found)


def child_pids() -> frozenset[int]:
    """Pids of this process's children, zombies too; empty where /proc is missing."""
    try:
        os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    except ChildProcessError:
        return frozenset()  # the usual case, told by one system call instead of a walk over /proc
    found = set()
    for home in (each for each in Path("/proc").iterdir() if each.name.isdigit()):
        with suppress(OSError):  # it may be gone by now
            stat = home.joinpath("stat").read_text(encoding="utf-8", errors="replace")
            if int(stat.rpartition(")")[2].split()[1]) == os.getpid():
                found.add(int(home.name))
    return frozenset(found)


@contextmanager
def _bounded(loop: asyncio.AbstractEventLoop) -> Iterator[None]:
    """Stop ``loop`` after ``CLOSE_S`` and raise ``StubbornTasks`` if tasks have ignored
    cancellation."""
    if not asyncio.all_tasks(loop):
        yield
        return
    stubborn: list[str] = []

    def give_up() -> None:
        stubborn.extend(_describe_task(task) for task in asyncio.all_tasks(loop))
        loop.stop()

    # A thread keeps the time, since the loop's own clock may be a virtual one.
    timer = threading.Timer(CLOSE_S, lambda: loop.call_soon_threadsafe(give_up))
    timer.start()
    try:
        yield
    except RuntimeError as error:
        if stubborn:
            raise StubbornTasks(
                "these tasks ignore cancellation:\n" + "\n".join(stubborn)
            ) from error
        raise
    finally:
        timer.cancel()
        timer.join()


def _finish_closing(loop: asyncio.AbstractEventLoop) -> None:
    """Let the tasks end in which the loop itself closes collected async generators.

    Libraries leave such generators behind, and when they are collected is chance. One that does
    not end within ``CLOSE_S`` is found as any task is.
    """
    closing = [
        task
        for task in asyncio.all_tasks(loop)
        if type(task.get_coro()).__name__ == "async_generator_athrow"
    ]
    if closing:
        loop.run_until_complete(asyncio.wait(closing, timeout=CLOSE_S))


def _findings(watch: Watch, allowed: frozenset[str]) -> list[str]:
    gc.collect(1)  # young garbage only: what a test dropped, without the cost of a full pass
    found = []
    if "tasks" not in allowed:
        found += [f"  task: {told}" for told in watch.tasks]
    if "threads" not in allowed:
        threads = _settled(lambda: _threads() - watch.threads)
        found += [
            f"  thread: {thread.name} ({thread.__class__.__qualname__})" for thread in threads
        ]
    if "children" not in allowed:
        children = _settled(lambda: set(child_pids() - watch.children))
        found += [f"  child process: {_describe_child(pid)}" for pid in sorted(children)]
    if "fds" not in allowed and open_fds() - watch.fds:
        gc.collect()
        fds = _settled(lambda: set(open_fds() - watch.fds))
        found += [f"  file descriptor: {number} -> {target}" for number, target in sorted(fds)]
    if "errors" not in allowed:
        found += [f"  error logged by asyncio: {told}" for told in watch.errors]
    return found


def _threads() -> set[threading.Thread]:
    """The threads, without those of pools that wait for a step and end by themselves soon."""
    return {each for each in threading.enumerate() if not each.name.endswith(IDLE)}


def _settled(look: Callable[[], set[T]]) -> set[T]:
    """What ``look`` still sees after it had a moment to go away."""
    deadline = time.monotonic() + SETTLE_S
    while (found := look()) and time.monotonic() < deadline:
        time.sleep(_POLL_S)
    return found


def _describe_task(task: asyncio.Task[Any]) -> str:
    frames = task.get_stack(limit=1)
    place = f" at {frames[-1].f_code.co_filename}:{frames[-1].f_lineno}" if frames else ""
    return f"{task.get_name()} ({task.get_coro()!r}){place}"


def _describe_child(pid: int) -> str:
    home = Path(f"/proc/{pid}")
    try:
        state = home.joinpath("stat").read_text(errors="replace").rpartition(")")[2].split()[0]
        command = home.joinpath("cmdline").read_text(errors="replace").replace("\0", " ").strip()
    except OSError:
        return f"{pid} (just gone)"
    return f"{pid} state {state}: {command or '(zombie, never waited for)'}"


def _end_child(pid: int) -> None:
    with suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)
    with suppress(ChildProcessError):
        os.waitpid(pid, 0)
