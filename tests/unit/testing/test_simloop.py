from __future__ import annotations

import asyncio
import contextlib
import inspect
import os
import socket
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from tests.support import simloop
from tests.support.simloop import (
    BackgroundErrors,
    Crashed,
    SeededLoop,
    SimRun,
    SimulationStuck,
    VirtualLoop,
    run_lives,
    run_seeded,
    run_virtual,
    seeds,
)


def test_the_private_names_the_loops_lean_on_exist() -> None:
    loop: Any = asyncio.SelectorEventLoop()
    try:
        missing = [name for name in simloop.PRIVATE_NAMES if not hasattr(loop, name)]
        timer = loop.call_later(60, lambda: None)
        assert missing == []
        assert loop._scheduled[0] is timer
        assert timer._when > 0
        assert timer._scheduled is True
        assert timer._cancelled is False
        timer.cancel()
        assert loop._timer_cancelled_count == 1
        assert len(loop._selector.get_map()) == 1, "only the wake-up pipe is watched"
    finally:
        loop.close()
    assert hasattr(asyncio.runners, "_cancel_all_tasks"), "the leak check wraps it"


def test_the_stock_loop_still_has_the_shape_the_jump_relies_on() -> None:
    stock: Any = asyncio.SelectorEventLoop
    source = inspect.getsource(stock._run_once)
    for line in ("ntodo = len(self._ready)", "self._ready.popleft()", "end_time = self.time()"):
        assert line in source


async def _wait(seconds: float) -> float:
    loop = asyncio.get_running_loop()
    await asyncio.sleep(seconds)
    return loop.time()


def test_an_hour_costs_nothing_and_is_exact() -> None:
    assert run_virtual(_wait(3600)) == 3600
    assert run_virtual(_wait(1.5), start_s=100) == 101.5


def test_a_timer_fires_at_large_times_where_a_nanosecond_is_lost() -> None:
    assert run_virtual(_wait(0.1), start_s=3e9, horizon_s=10) == pytest.approx(3e9 + 0.1)


def test_a_cancelled_timer_does_not_move_the_clock() -> None:
    async def main() -> float:
        loop = asyncio.get_running_loop()
        loop.call_later(50, lambda: None).cancel()
        async with asyncio.timeout(70):
            await asyncio.sleep(1)
        return loop.time()

    assert run_virtual(main()) == 1


def test_a_timeout_expires_in_virtual_time() -> None:
    async def main() -> float:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(30):
                await asyncio.Event().wait()
        return asyncio.get_running_loop().time()

    assert run_virtual(main()) == 30


def test_a_deadlock_is_told_with_the_place_of_each_waiter() -> None:
    async def main() -> None:
        await asyncio.Event().wait()

    with pytest.raises(SimulationStuck, match=r"nothing can ever happen.*test_simloop\.py"):
        run_virtual(main())


def test_an_endless_ticker_ends_at_the_horizon() -> None:
    async def main() -> None:
        while True:
            await asyncio.sleep(10)

    with pytest.raises(SimulationStuck, match="horizon"):
        run_virtual(main(), horizon_s=1000)


def test_a_job_runs_in_the_loops_thread_and_its_error_reaches_the_waiter() -> None:
    async def main() -> int:
        with pytest.raises(ZeroDivisionError):
            await asyncio.to_thread(lambda: 1 // 0)
        return await asyncio.to_thread(os.getpid)

    assert run_virtual(main()) == os.getpid()


def test_a_real_descriptor_is_refused() -> None:
    async def main() -> None:
        left, right = socket.socketpair()
        with left, right:
            left.setblocking(False)
            await asyncio.get_running_loop().sock_recv(left, 1)

    with pytest.raises(RuntimeError, match="real file descriptor"):
        run_virtual(main())


@pytest.mark.leaks("errors", reason="the error is the subject")
def test_an_error_nobody_awaits_fails_the_run() -> None:
    async def main() -> None:
        asyncio.get_running_loop().call_soon(lambda: 1 // 0)
        await asyncio.sleep(1)

    with pytest.raises(BackgroundErrors, match="ZeroDivisionError"):
        run_virtual(main())


@pytest.mark.virtual
async def test_the_marker_gives_a_virtual_loop() -> None:
    loop = asyncio.get_running_loop()
    assert isinstance(loop, VirtualLoop)
    before = loop.time()
    await asyncio.sleep(86_400)
    assert loop.time() - before == 86_400


async def test_without_the_marker_the_loop_is_the_stock_one() -> None:
    assert not isinstance(asyncio.get_running_loop(), VirtualLoop)


def test_the_fixture_runs_a_coroutine(
    virtual: Callable[[Coroutine[Any, Any, float]], float],
) -> None:
    assert virtual(_wait(9)) == 9


async def _interleave(run: SimRun) -> list[str]:
    seen: list[str] = []

    async def worker(name: str) -> None:
        for step in range(3):
            seen.append(f"{name}{step}")
            await asyncio.sleep(run.rng.choice([0, 0, 1]))

    async with asyncio.TaskGroup() as group:
        for name in "abc":
            group.create_task(worker(name))
    return seen


def test_one_seed_is_one_interleaving() -> None:
    assert [run_seeded(7, _interleave) for _ in range(3)] == [run_seeded(7, _interleave)] * 3


def test_seeds_differ_and_keep_each_tasks_own_order() -> None:
    runs = [run_seeded(seed, _interleave) for seed in range(40)]
    assert len({tuple(run) for run in runs}) > 30
    for run in runs:
        for name in "abc":
            assert [step for step in run if step[0] == name] == [f"{name}{n}" for n in range(3)]


async def _racy_counter(_run: SimRun) -> None:
    """A read, a wait and a write: wrong only when another task comes between."""
    count = 0

    async def bump() -> None:
        nonlocal count
        read = count
        await asyncio.to_thread(lambda: None)
        count = read + 1

    first = asyncio.create_task(bump())
    await asyncio.sleep(0.004)  # the job takes up to 10 ms: some seeds interleave, others do not
    await asyncio.gather(first, bump())
    assert count == 2


def test_a_race_is_found_and_the_failure_says_how_to_replay_it(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHONHASHSEED", "0")
    failed: dict[int, AssertionError] = {}
    for seed in range(20):
        try:
            run_seeded(seed, _racy_counter)
        except AssertionError as error:
            failed[seed] = error
    assert 0 < len(failed) < 20
    seed, failure = next(iter(failed.items()))
    command = f"PYTHONHASHSEED=0 TEST_SIM_SEED={seed} .venv/bin/pytest -p no:randomly "
    assert command in failure.__notes__[0]
    assert "test_simloop.py::test_a_race_is_found" in failure.__notes__[0]
    assert command in capsys.readouterr().err


def test_a_planted_lost_wake_is_a_deadlock_of_some_seeds() -> None:
    async def main(_run: SimRun) -> None:
        bell = asyncio.Event()
        work: list[int] = []

        async def consumer() -> None:
            while not work:
                await asyncio.to_thread(
                    lambda: None
                )  # checks, yields, then clears: the wake is lost
                bell.clear()
                await bell.wait()

        async def producer() -> None:
            await asyncio.sleep(0.005)
            work.append(1)
            bell.set()

        await asyncio.gather(consumer(), producer())

    stuck = 0
    for seed in range(40):
        try:
            run_seeded(seed, main)
        except SimulationStuck:
            stuck += 1
    assert 0 < stuck < 40


def test_a_crash_stops_every_task_without_running_its_handlers() -> None:
    trace: list[str] = []

    async def patient() -> None:
        try:
            await asyncio.sleep(1)
            trace.append("woke")
            await asyncio.sleep(100)
        finally:
            trace.append("finally")

    def scenario(run: SimRun) -> list[str]:
        async def first(loop: SeededLoop) -> None:
            tasks = [asyncio.create_task(patient()) for _ in range(3)]
            loop.call_later(5, loop.crash)
            await asyncio.gather(*tasks)

        async def second(loop: SeededLoop) -> float:
            await asyncio.sleep(2)
            return loop.time()

        with pytest.raises(Crashed, match=r"5\.000 s"):
            run.life(first)
        at_crash = list(trace)
        assert run.life(second) == 7, "time goes on from the crash"
        assert run.lives == 2
        return at_crash

    assert run_lives(3, scenario) == ["woke"] * 3
    assert trace.count("finally") == 3, "buried when the run is over, and not before"


def test_a_crash_inside_a_step_lets_nothing_after_its_next_wait_run() -> None:
    trace: list[str] = []

    async def main(loop: SeededLoop) -> None:
        loop.call_soon(lambda: None)
        loop.crash()
        trace.append("same step")
        loop.call_soon(trace.append, "scheduled after the crash")
        await asyncio.sleep(0)
        trace.append("next step")

    with pytest.raises(Crashed):
        run_lives(1, lambda run: run.life(main))
    assert trace == ["same step"]


def test_seeds_come_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TEST_SIM_SEED", raising=False)
    monkeypatch.delenv("TEST_SIM_SEEDS", raising=False)
    assert list(seeds(3, corpus=[9, 1, 9])) == [9, 1, 0, 2]
    monkeypatch.setenv("TEST_SIM_SEEDS", "5")
    assert list(seeds(3)) == [0, 1, 2, 3, 4]
    monkeypatch.setenv("TEST_SIM_SEED", "77")
    assert list(seeds(3, corpus=[9])) == [77]


def test_a_runtime_error_of_the_work_itself_is_not_taken_for_a_crash() -> None:
    async def main(_loop: SeededLoop) -> None:
        raise RuntimeError("mine")

    with pytest.raises(RuntimeError, match="mine"):
        run_lives(1, lambda run: run.life(main))
