from __future__ import annotations

import asyncio
import os
import socket
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from agentsup.kit.lag import LagProbe, LagStats, Stall
from agentsup.kit.sdnotify import notify, watchdog_interval_s
from agentsup.kit.tasks import TaskOwner
from tests.support.bound import BOUND_S


@pytest.fixture
def systemd(tmp_path: Path) -> Iterator[socket.socket]:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as listener:
        listener.bind(str(tmp_path / "notify"))
        listener.settimeout(5)
        yield listener


def test_a_state_reaches_systemd(systemd: socket.socket) -> None:
    assert notify("READY=1\nSTATUS=fine", env={"NOTIFY_SOCKET": systemd.getsockname()})
    assert systemd.recv(100) == b"READY=1\nSTATUS=fine"


def test_an_abstract_address_is_understood() -> None:
    name = f"agentsup-test-{os.getpid()}"
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as listener:
        listener.bind("\0" + name)
        listener.settimeout(5)
        assert notify("WATCHDOG=1", env={"NOTIFY_SOCKET": "@" + name})
        assert listener.recv(100) == b"WATCHDOG=1"


def test_without_systemd_nothing_is_sent(tmp_path: Path) -> None:
    assert not notify("READY=1", env={})
    assert not notify("READY=1", env={"NOTIFY_SOCKET": "relative"})
    assert not notify("READY=1", env={"NOTIFY_SOCKET": str(tmp_path / "nobody")})


def test_the_watchdog_is_fed_twice_per_interval() -> None:
    assert watchdog_interval_s(env={"WATCHDOG_USEC": "30000000"}) == 15
    mine = {"WATCHDOG_USEC": "1000000", "WATCHDOG_PID": str(os.getpid())}
    assert watchdog_interval_s(env=mine) == 0.5
    assert watchdog_interval_s(env={**mine, "WATCHDOG_PID": "1"}) is None
    assert watchdog_interval_s(env={}) is None
    assert watchdog_interval_s(env={"WATCHDOG_USEC": "0"}) is None
    assert watchdog_interval_s(env={"WATCHDOG_USEC": "soon"}) is None


async def test_a_blocked_loop_is_measured_named_and_dumped(tmp_path: Path) -> None:
    stalls, was_heavy = list[Stall](), asyncio.Event()

    def on_stall(stall: Stall) -> None:
        stalls.append(stall)
        if stall.task == "turn:heavy":  # a busy machine holds up the loop as well
            was_heavy.set()

    with (tmp_path / "stacks").open("w+", encoding="utf-8") as dump:
        probe = LagProbe(0.01, warn_s=0.05, dump_s=0.1, dump_to=dump, on_stall=on_stall)
        owner = TaskOwner("test")
        owner.spawn(probe.run(), name="probe:lag")
        while not probe.stats().samples:
            await asyncio.sleep(0.01)

        async def compute_heavily() -> None:
            until_s = time.monotonic() + BOUND_S
            while "compute_heavily" not in (tmp_path / "stacks").read_text(encoding="utf-8"):
                time.sleep(0.4)
                assert time.monotonic() < until_s, "it is not dumped"

        owner.spawn(compute_heavily(), name="turn:heavy")
        await was_heavy.wait()
        stats = probe.stats()
        assert await owner.close(BOUND_S) == []
        dump.seek(0)
        stacks = dump.read()
    (stall,) = [each for each in stalls if each.task == "turn:heavy"]
    assert stall.lasted_s >= 0.3
    assert stats.max_s == max(each.lasted_s for each in stalls)
    assert probe.stall_count == len(stalls)
    dumps = stacks.split("stands still")
    assert sum("compute_heavily" in each for each in dumps) == 1, "once for each stall"
    assert not any(thread.name == "lag-watcher" for thread in threading.enumerate())


@pytest.mark.virtual
async def test_a_loop_that_keeps_time_shows_no_lag() -> None:
    probe = LagProbe(0.1, watches_from_thread=False)
    assert probe.stats() == LagStats()
    assert probe.silence_s() == float("inf")
    owner = TaskOwner("test")
    owner.spawn(probe.run(), name="probe:lag")
    await asyncio.sleep(0.05)
    assert probe.silence_s() == pytest.approx(0.05), "measuring has begun, before its first sample"
    await asyncio.sleep(3600)
    assert probe.silence_s() <= 0.1
    stats = probe.stats()
    assert (stats.samples, probe.stall_count) == (600, 0)
    assert stats.max_s < 1e-6
    await owner.close(1)
    await asyncio.sleep(5)
    assert probe.silence_s() >= 5


def test_quantiles_come_from_the_last_minute() -> None:
    probe = LagProbe(0.6, warn_s=10)
    for second in range(300):
        probe._beat(second + (0.2 if second == 299 else 0.1), second)
    stats = probe.stats()
    assert stats.samples == 100
    assert (round(stats.p50_s, 6), round(stats.p99_s, 6), round(stats.max_s, 6)) == (0.1, 0.2, 0.2)
