from __future__ import annotations

import asyncio
from typing import Any

import pytest

from tests.support import simloop
from tests.support.simloop import (
    BackgroundErrors,
    Crashed,
    SeededLoop,
    SimRun,
    SimulationStuck,
    run_lives,
    run_seeded,
    run_virtual,
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


@pytest.mark.leaks("errors", reason="the error is the subject")
def test_an_error_nobody_awaits_fails_the_run() -> None:
    async def main() -> None:
        asyncio.get_running_loop().call_soon(lambda: 1 // 0)
        await asyncio.sleep(1)

    with pytest.raises(BackgroundErrors, match="ZeroDivisionError"):
        run_virtual(main())


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
