"""Long computations: few threads, each key in its turn."""

from __future__ import annotations

import asyncio
import threading
from functools import partial

import pytest

from agentsup.kit.compute import FairThreads, Step, compute


async def test_one_keys_steps_keep_no_other_and_not_the_threads_that_all_share() -> None:
    go, order = threading.Event(), list[str]()

    def step(name: str) -> None:
        go.wait(30)
        order.append(name)

    waits = [asyncio.create_task(compute(partial(step, f"a{n}"), key="a")) for n in range(50)]
    await asyncio.sleep(0)  # each of them hands its step over
    try:
        await asyncio.wait_for(compute(partial(order.append, "b"), key="b"), 30)
        await asyncio.wait_for(asyncio.to_thread(order.append, "shared"), 30)
        assert order == ["b", "shared"], "none of a's has ended"
    finally:
        go.set()
        await asyncio.gather(*waits)
    assert order[2:] == [f"a{n}" for n in range(50)]


def test_keys_take_turns() -> None:
    threads, go, order = FairThreads("t", 1), threading.Event(), list[str]()
    held = threads.submit(Step("x", lambda: go.wait(30)))
    waits = [threads.submit(Step(key, partial(order.append, key))) for key in "aaaabcb"]
    go.set()
    assert held.result(30)
    for each in waits:
        each.result(30)
    assert "".join(order) == "abcabaa"


async def test_errors_are_the_callers_and_what_nobody_awaits_is_not_begun() -> None:
    go, begun = threading.Event(), threading.Event()
    ran: list[int] = []

    def hold() -> None:
        begun.set()
        go.wait(30)

    first = asyncio.create_task(compute(hold, key="a"))
    second = asyncio.create_task(compute(lambda: ran.append(1), key="a"))
    await asyncio.to_thread(begun.wait, 30)
    second.cancel()
    await asyncio.wait([second])
    go.set()
    await first
    with pytest.raises(ZeroDivisionError):
        await compute(lambda: 1 // 0, key="a")
    assert not ran


def test_a_system_without_threads_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    def no_thread(self: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    threads = FairThreads("t", 2)
    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", no_thread)
        with pytest.raises(RuntimeError, match="try again"):
            threads.submit(Step("a", lambda: 1))
    assert threads.submit(Step("a", lambda: 2)).result(30) == 2
