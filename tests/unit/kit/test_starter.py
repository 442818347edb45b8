"""The thread that forks: one step after the other, a rest after each, and none lost."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from functools import partial

import pytest

from agentsup.kit.clock import SystemClock
from agentsup.kit.starter import ProgramStarter, rest
from agentsup.kit.tasks import TaskOwner
from tests.support.bound import BOUND_S


def nobody(found: object) -> None:
    raise AssertionError(f"{found} was wanted")


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(BOUND_S):
        while not condition():
            await asyncio.sleep(0.002)


async def test_steps_are_carried_out_in_turn_with_a_rest_after_each() -> None:
    seen: list[str] = []
    starter = ProgramStarter(rest=lambda: seen.append("rest"))

    def step(name: str) -> threading.Thread:
        seen.append(name)
        return threading.current_thread()

    async with asyncio.TaskGroup() as tasks:
        running = [
            tasks.create_task(starter.run(partial(step, name), undo=nobody), name=name)
            for name in "abc"
        ]
    await until(lambda: len(seen) == 6)
    assert seen == ["a", "rest", "b", "rest", "c", "rest"]
    assert len({each.result() for each in running}) == 1


async def test_an_exception_of_a_step_reaches_its_caller() -> None:
    def fail() -> None:
        raise FileNotFoundError("no such program")

    starter = ProgramStarter(rest=lambda: None)
    with pytest.raises(FileNotFoundError):
        await starter.run(fail, undo=nobody)
    assert await starter.run(lambda: 1, undo=nobody) == 1


async def test_a_step_that_hangs_holds_up_no_other_one() -> None:
    over, begun, undone = threading.Event(), threading.Event(), list[int]()

    def hang() -> int:
        begun.set()
        assert over.wait(30)
        return 7

    starter = ProgramStarter(rest=lambda: None, stuck_s=0.02, undo_s=0.02)
    owner = TaskOwner("starts")
    hung = owner.spawn(starter.run(hang, undo=undone.append), name="hung")
    await until(begun.is_set)
    assert await starter.run(lambda: 1, undo=nobody) == 1
    hung.cancel()
    await asyncio.wait({hung})
    assert hung.cancelled()
    assert not undone
    over.set()
    await until(lambda: undone == [7])
    assert len(starter._threads) >= 2


async def test_threads_that_hang_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("agentsup.kit.starter._MOST", 2)
    over = threading.Event()
    starter = ProgramStarter(rest=lambda: None, stuck_s=0.005)
    async with asyncio.TaskGroup() as tasks:
        hung = [
            tasks.create_task(starter.run(lambda: over.wait(30), undo=nobody), name=f"{number}")
            for number in range(3)
        ]
        await until(lambda: len(starter._begun_s) == 2)
        await asyncio.sleep(0.05)
        assert len(starter._threads) == 2
        over.set()
    assert all(each.result() for each in hung)


@pytest.mark.parametrize("late_s, pauses", [(0.0, 1), (0.002, 5)])
def test_a_rest_lasts_until_it_ends_on_time(
    late_s: float, pauses: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    now_s, waited = [0.0], list[float]()

    def wait(_: threading.Event, seconds: float) -> bool:
        waited.append(seconds)
        now_s[0] += seconds + late_s
        return False

    monkeypatch.setattr(threading.Event, "wait", wait)
    monkeypatch.setattr(SystemClock, "monotonic", lambda _: now_s[0])
    rest()
    assert len(waited) == pauses
