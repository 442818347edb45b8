"""Chores on a slow beat: each in its time, one that fails costs only itself."""

from __future__ import annotations

import asyncio

import pytest

from agentsup.daemon.runtime.housekeeping import Chore, Housekeeper
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
