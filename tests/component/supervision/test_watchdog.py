"""The watchdog in virtual time."""

from __future__ import annotations

import asyncio
import contextlib

import pytest

from agentsup.kit.lag import LagProbe
from agentsup.kit.tasks import TaskOwner
from agentsup.supervision import Watchdog
from tests.support.loop_clock import LoopClock

pytestmark = pytest.mark.virtual


class Fixture:
    """A watchdog over one probe whose behaviour the test sets."""

    def __init__(self) -> None:
        self.told: list[float] = []
        self.reason: str | None = None
        self.hangs = False
        self.is_deaf = False
        self.release = asyncio.Event()
        self.lag = LagProbe(0.1, watches_from_thread=False)
        self.owner = TaskOwner("ward")
        self.measuring = self.owner.spawn(self.lag.run(), name="probe:lag")
        self.dog = Watchdog(
            self.lag,
            {"store": self.store, "poll": self.poll},
            clock=LoopClock(),
            interval_s=5,
            probe_limit_s=2,
            notify=self.notify,
        )
        self.owner.spawn(self.dog.run(), name="watchdog:test")

    def notify(self, state: str) -> bool:
        assert state == "WATCHDOG=1"
        self.told.append(asyncio.get_running_loop().time())
        return True

    async def store(self) -> str | None:
        while self.hangs and not self.release.is_set():
            with contextlib.suppress(asyncio.CancelledError):
                await self.release.wait()
            if not self.is_deaf:
                raise asyncio.CancelledError
        if self.reason == "raise":
            raise LookupError("no row")
        return self.reason

    async def poll(self) -> str | None:
        return None

    def findings(self) -> dict[str, str]:
        return {probe.name: probe.detail for probe in self.dog.health().probes if not probe.ok}

    async def close(self) -> None:
        self.release.set()
        await self.owner.close(1)


async def test_nothing_checked_is_not_healthy() -> None:
    dog = Watchdog(LagProbe(watches_from_thread=False), {}, clock=LoopClock())
    assert not dog.health().ok


async def test_the_watchdog_is_fed_while_all_is_well() -> None:
    ward = Fixture()
    await asyncio.sleep(61)
    assert ward.dog.health().ok
    assert [probe.name for probe in ward.dog.health().probes] == [
        "lag",
        "watchdog",
        "store",
        "poll",
    ]
    assert len(ward.told) >= 12
    await ward.close()


async def test_a_reason_makes_us_unwell_but_not_dead() -> None:
    ward = Fixture()
    ward.reason = "the disk is full"
    await asyncio.sleep(31)
    assert ward.findings() == {"store": "the disk is full"}
    assert ward.told[-1] > 20
    ward.reason = "raise"
    await asyncio.sleep(10)
    assert "no row" in ward.findings()["store"]
    ward.reason = None
    await asyncio.sleep(10)
    assert ward.dog.health().ok
    await ward.close()


@pytest.mark.parametrize("is_deaf", [False, True])
async def test_a_hanging_probe_starves_the_watchdog(is_deaf: bool) -> None:
    ward = Fixture()
    await asyncio.sleep(12)
    fed = len(ward.told)
    ward.hangs, ward.is_deaf = True, is_deaf
    await asyncio.sleep(100)
    assert len(ward.told) == fed
    assert ward.findings() == {"store": "no answer in 2 s"}
    assert len(ward.owner.tasks) == 2
    assert len(ward.dog._owner.tasks) <= 2
    ward.release.set()
    await asyncio.sleep(20)
    assert ward.dog.health().ok
    assert len(ward.told) > fed
    await ward.close()


async def test_without_a_lag_measure_nothing_is_fed() -> None:
    ward = Fixture()
    await asyncio.sleep(12)
    ward.measuring.cancel()
    await asyncio.sleep(11)
    fed = len(ward.told)
    await asyncio.sleep(100)
    assert len(ward.told) == fed
    assert "lag" in ward.findings()
    await ward.close()


async def test_a_slow_loop_is_ill() -> None:
    ward = Fixture()
    await asyncio.sleep(12)
    for _ in range(20):
        now = asyncio.get_running_loop().time()
        ward.lag._beat(now, now - 0.4)
    assert ward.findings() == {"lag": "p99 400 ms"}
    await ward.close()


async def test_a_dead_watchdog_is_noticed() -> None:
    ward = Fixture()
    await asyncio.sleep(12)
    assert ward.dog.health().ok
    await ward.owner.close(1)
    ward.measuring = TaskOwner("again").spawn(ward.lag.run(), name="probe:lag")
    await asyncio.sleep(60)
    assert list(ward.findings()) == ["watchdog"]
    ward.measuring.cancel()
    await asyncio.wait({ward.measuring})
