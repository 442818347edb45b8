"""How late the event loop is while 50 agents chat and 100 messages a second are stored."""

from __future__ import annotations

import asyncio
import contextlib
from time import perf_counter

from agentsup.kit.lag import LagProbe, LagStats
from benchmarks.daemon_fixture import BenchDaemon, household
from benchmarks.figure import BenchContext, Figure
from benchmarks.peers import RULES, scripted

AGENTS = 50
PER_S = 100


async def _observed(seconds: float) -> LagStats:
    probe = LagProbe(0.01, watches_from_thread=False)
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            await probe.run()
    return probe.stats()


async def _chat(home: BenchDaemon, agents: int, seconds: float) -> int:
    """A message to the next agent every hundredth of a second, as the clock says."""
    began_s = perf_counter()
    sent = 0
    async with asyncio.TaskGroup() as group:
        while (elapsed_s := perf_counter() - began_s) < seconds:
            while sent < elapsed_s * PER_S:
                new = home.chat(f"agent-{sent % agents}", f"hello {sent}", f"room-{sent % 3}")
                group.create_task(home.daemon.mailbox.queue.accept(new))
                sent += 1
            await asyncio.sleep(0.005)
    return sent


async def measure(boot_context: BenchContext) -> list[Figure]:
    """The same daemon idle, then under load."""
    agents = boot_context.size(AGENTS, 2)
    seconds = 0.3 if boot_context.tiny else 10.0
    async with (
        boot_context.fresh("lag") as folder,
        household(folder / "home", scripted(agents), files=RULES) as home,
    ):
        idle = await _observed(seconds)
        async with asyncio.TaskGroup() as group:
            chatting = group.create_task(_chat(home, agents, seconds))
            busy = await _observed(seconds)
    note = f"{chatting.result() / seconds:.0f} messages/s, each answered and delivered"
    return [
        Figure(
            "loop lag under load, p50",
            busy.p50_s * 1_000,
            "ms",
            raw=idle.p50_s * 1_000,
            raw_is="the same daemon idle",
            note=note,
        ),
        Figure(
            "loop lag under load, p99",
            busy.p99_s * 1_000,
            "ms",
            raw=idle.p99_s * 1_000,
            raw_is="the same daemon idle",
        ),
        Figure(
            "loop lag under load, worst",
            busy.max_s * 1_000,
            "ms",
            raw=idle.max_s * 1_000,
            raw_is="the same daemon idle",
        ),
    ]
