from __future__ import annotations

import pytest

pytest_plugins = ["pytester"]

LEAKY = """
import asyncio
import os
import subprocess
import sys
import threading

import pytest

KEPT = []
GATE = threading.Event()


async def forever():
    await asyncio.Event().wait()


async def test_task():
    KEPT.append(asyncio.create_task(forever(), name="poll:left"))
    await asyncio.sleep(0)


def test_task_of_an_inner_run():
    async def main():
        KEPT.append(asyncio.create_task(forever(), name="poll:inner"))

    asyncio.run(main())


def test_thread():
    thread = threading.Thread(target=GATE.wait, name="left-thread", daemon=True)
    thread.start()


def test_fd():
    KEPT.append(os.open("/dev/null", os.O_RDONLY))


def test_child():
    KEPT.append(subprocess.Popen(["sleep", "60"]))


def test_zombie():
    pid = os.fork()
    if pid == 0:
        os._exit(0)
    os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)


async def obstinate():
    while True:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            pass


async def test_obstinate_task():
    KEPT.append(asyncio.create_task(obstinate(), name="obstinate"))
    await asyncio.sleep(0)


async def numbers(closing):
    try:
        yield 1
    finally:
        await closing()


async def in_some_steps():
    for _ in range(5):
        await asyncio.sleep(0)


async def abandon(closing):
    generator = numbers(closing)
    await anext(generator)
    del generator  # collected now: the loop closes it in a task of its own
    await asyncio.sleep(0)


async def test_generator_that_the_loop_closes():
    await abandon(in_some_steps)


async def test_generator_that_never_closes():
    await abandon(forever)


def test_error():
    async def main():
        asyncio.get_running_loop().call_soon(lambda: 1 // 0)
        await asyncio.sleep(0.01)

    asyncio.run(main())


@pytest.mark.leaks("fds", reason="kept open on purpose")
def test_excused_fd():
    KEPT.append(os.open("/dev/zero", os.O_RDONLY))


@pytest.mark.leaks("threads", reason="excuses another kind")
def test_excused_for_another_kind():
    KEPT.append(os.open("/dev/full", os.O_RDONLY))


@pytest.mark.leaks("fds")
def test_excuse_without_reason():
    pass


async def test_clean():
    task = asyncio.create_task(asyncio.to_thread(lambda: 1))
    await task
    with open("/dev/null") as sink:
        sink.read()
    subprocess.run(["true"], check=True)


def test_failing_test_is_not_blamed_twice():
    KEPT.append(os.open("/dev/random", os.O_RDONLY))
    assert False
"""


def test_each_kind_is_caught_named_and_blamed_on_its_own_test(pytester: pytest.Pytester) -> None:
    pytester.makeconftest(
        "import tests.support.leak\ntests.support.leak.SETTLE_S = 0.1\n"
        "tests.support.leak.CLOSE_S = 0.2\n"
    )
    pytester.makepyfile(test_leaky=LEAKY)
    result = pytester.runpytest_subprocess(
        "-p", "tests.support.leak", "-p", "no:randomly", "-p", "no:cacheprovider",
        "-o", "asyncio_mode=auto", "-v", "--tb=short",
    )  # fmt: skip
    text = result.stdout.str()
    blamed = {
        line.split("::")[1].split(" ")[0]
        for line in text.splitlines()
        if line.startswith("ERROR test_leaky.py::")
    }
    assert blamed == {
        "test_task",
        "test_task_of_an_inner_run",
        "test_thread",
        "test_fd",
        "test_child",
        "test_zombie",
        "test_error",
        "test_generator_that_never_closes",
        "test_obstinate_task",
        "test_excused_for_another_kind",
        "test_excuse_without_reason",
    }
    for told in (
        "task: poll:left",
        "task: poll:inner",
        "these tasks ignore cancellation",
        "obstinate (*",
        "task: * (<async_generator_athrow *",
        "thread: left-thread",
        "file descriptor: * -> /dev/null",
        "child process: * state S: sleep 60",
        "state Z: (zombie, never waited for)",
        "error logged by asyncio: Exception in callback",
        "file descriptor: * -> /dev/full",
        "reason='why'",
    ):
        result.stdout.fnmatch_lines([f"*{told}*"])
    result.assert_outcomes(passed=14, failed=1, errors=11)


def test_the_plugin_watches_this_very_suite(request: pytest.FixtureRequest) -> None:
    assert request.config.pluginmanager.has_plugin("agentsup-leak-check")
