"""Chores on a slow beat: each in its time, one that fails costs only itself."""

from __future__ import annotations

import asyncio

import pytest

from agentsup.daemon.runtime.housekeeping import Chore, Housekeeper, ReplacedFiles
from agentsup.kit.log import FACTS
from agentsup.model.errors import StoreUnavailable
from tests.support.loop_clock import LoopClock

pytestmark = pytest.mark.virtual


async def test_each_chore_in_its_time(caplog: pytest.LogCaptureFixture) -> None:
    clock, ran = LoopClock(), []

    def chore(name: str, every_s: float, first_s: float) -> Chore:
        async def run() -> None:
            ran.append((round(clock.monotonic()), name))
            if name == "full":
                raise StoreUnavailable("the disk is full")

        return Chore(name, every_s, first_s, run)

    keeper = Housekeeper((chore("often", 10, 5), chore("full", 20, 0)), clock)
    draining, ready = asyncio.Event(), []
    task = asyncio.ensure_future(keeper.run(lambda: ready.append(1), draining))
    await clock.sleep(31)
    draining.set()
    await task
    assert ready == [1]
    assert ran == [(0, "full"), (5, "often"), (15, "often"), (20, "full"), (25, "often")]
    put_off = [getattr(record, FACTS) for record in caplog.records]
    assert {"chore": "full", "reason": "the disk is full"} in put_off


async def test_a_beat_does_not_drift_and_missed_ones_are_made_up_for_once() -> None:
    clock, ran = LoopClock(), []

    async def slow() -> None:
        ran.append(clock.monotonic())
        await clock.sleep(0.3 if len(ran) < 3 else 2.5)

    await clock.sleep(0.7)
    keeper = Housekeeper((Chore("slow", 1, 1, slow),), clock)
    draining = asyncio.Event()
    task = asyncio.ensure_future(keeper.run(lambda: None, draining))
    await clock.sleep(7)
    draining.set()
    await task
    assert ran == [2, 3, 4, 6.5]


async def test_a_defect_of_a_chore_ends_the_life() -> None:
    async def broken() -> None:
        raise RuntimeError("a bug")

    keeper = Housekeeper((Chore("broken", 1, 0, broken),), LoopClock())
    with pytest.raises(RuntimeError, match="a bug"):
        await keeper.run(lambda: None, asyncio.Event())


class Replaced:
    """What a daemon sees, says and does while its files are replaced."""

    def __init__(self, *, comes_back: bool) -> None:
        self.change, self.running = "", 1
        self.told: list[str] = []
        self.ended: list[str] = []
        self.files = ReplacedFiles(
            self._look, self._tell, self._is_quiet, self.ended.append if comes_back else None
        )

    async def _look(self) -> str:
        return self.change

    async def _tell(self, text: str) -> None:
        self.told.append(text)

    async def _is_quiet(self) -> bool:
        return not self.running


async def test_replaced_files_are_told_once_and_bring_a_restart_when_nothing_runs() -> None:
    seen = Replaced(comes_back=True)
    await seen.files.keep_up()
    assert not seen.files.warnings
    for seen.change in ("changed (a 1 → missing)", "changed (a 1 → 2)", "changed (a 1 → 3)"):
        await seen.files.keep_up()
        assert seen.files.warnings == (f"{seen.change}: it restarts when nothing runs",)
    assert seen.told == [], "an installer may be at work"
    for _ in range(2):
        await seen.files.keep_up()
    assert seen.told == ["Changed (a 1 → 3): it restarts when nothing runs."]
    assert seen.ended == []
    seen.running = 0
    await seen.files.keep_up()
    assert len(seen.told) == len(seen.ended) == 1


async def test_nothing_ends_for_replaced_files_where_nothing_starts_it_again() -> None:
    seen = Replaced(comes_back=False)
    seen.change, seen.running = "changed (a 1 → missing)", 0
    for _ in range(3):
        await seen.files.keep_up()
    assert seen.told == [], "an installer may be at work"
    seen.change = "changed (a 1 → 2)"
    for _ in range(3):
        await seen.files.keep_up()
    assert seen.told == ["Changed (a 1 → 2): restart it: `agentsup restart`."]
    assert seen.ended == []
