"""A whole turn, from accept to the committed answer, with an engine that costs nothing: one after
another in one agent, and over fifty agents at once."""

from __future__ import annotations

import asyncio
from time import perf_counter

from benchmarks.bare import BareTable
from benchmarks.figure import Figure, Ground, median, percentile
from benchmarks.household import Household, household
from benchmarks.peers import COMMITS, RULES, scripted
from benchmarks.timing import each_ms

AGENTS = 50


async def _turn(home: Household, name: str, number: int) -> None:
    accepted = await home.daemon.mailbox.accept(home.message(name, f"turn {number}"))
    message = await home.daemon.mailbox.wait_done(accepted.message_id, 60.0)
    if message.result_text != "ok":
        raise RuntimeError(f"a wrong answer: {message}")


async def measure(ground: Ground) -> list[Figure]:
    """Rounds of single turns and bare commits, then a crowd: each of fifty callers its agent."""
    agents, each = ground.size(AGENTS, 2), ground.size(30, 2)
    single_ms: list[float] = []
    bare_ms: list[float] = []
    rates: list[float] = []
    bare_rates: list[float] = []
    async with (
        ground.fresh("turns") as folder,
        household(folder / "home", scripted(agents), files=RULES) as home,
    ):
        with BareTable(folder / "bare.db") as bare:
            for _ in range(ground.size(5, 1)):
                single_ms += await each_ms(each * 2, lambda n: _turn(home, "agent-0", n))
                commits_ms = await bare.commits_ms(COMMITS * each * 2)
                bare_ms += [
                    sum(commits_ms[at : at + COMMITS]) for at in range(0, len(commits_ms), COMMITS)
                ]
                began_s = perf_counter()
                async with asyncio.TaskGroup() as group:
                    for agent in range(agents):
                        name = f"agent-{agent}"
                        group.create_task(
                            each_ms(each, lambda n, name=name: _turn(home, name, n))  # type: ignore[misc]
                        )
                rates.append(agents * each / (perf_counter() - began_s))
                batches_ms = await bare.commits_ms(each * COMMITS, rows=agents)
                bare_rates.append(agents * each / sum(batches_ms) * 1_000)
    raw_is = f"{COMMITS} bare commits of one row"
    return [
        Figure("turn overhead, p50", median(single_ms), "ms", raw=median(bare_ms), raw_is=raw_is),
        Figure(
            "turn overhead, p99",
            percentile(single_ms, 0.99),
            "ms",
            raw=percentile(bare_ms, 0.99),
            raw_is=raw_is + ", p99",
        ),
        Figure(
            "turns over 50 agents",
            median(rates),
            "/s",
            raw=median(bare_rates),
            raw_is=f"{COMMITS} rows each, bare commits of 50 rows",
        ),
    ]
