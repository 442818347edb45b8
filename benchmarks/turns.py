"""A whole turn, from accept to the committed answer, with an engine that costs nothing: one after
another in one agent, over fifty agents at once, and over fifty of five hundred."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from time import perf_counter, process_time
from typing import Any

from agentsup.store import Database
from benchmarks.bare import BareTable
from benchmarks.daemon_fixture import BenchDaemon, household
from benchmarks.figure import BenchContext, Figure, median, percentile
from benchmarks.peers import COMMITS, RULES, scripted
from benchmarks.timing import each_ms

AGENTS = 50
MANY = 500


async def _turn(home: BenchDaemon, name: str, number: int) -> None:
    mailbox = home.daemon.mailbox
    accepted, end = await mailbox.queue.accept_expecting(home.message(name, f"turn {number}"))
    message = await mailbox.queue.wait_done(accepted.message_id, 60.0, end=end)
    if message.result_text != "ok":
        raise RuntimeError(f"a wrong answer: {message}")


PARTS = {
    "mailbox.accept": "accept, a commit",
    "mailbox.claim": "claim, a commit",
    "turn.start": "read what it starts with",
    "turn.complete": "end and next claim, a commit",
}
"""The parts of a turn that wait for the store, by the names of their functions."""


@contextmanager
def timed_store(database: Database, took_ms: defaultdict[str, list[float]]) -> Iterator[None]:
    """Time the transactions and reads of turns inside the block."""
    write, read = database.write, database.read

    def timing(call: Any) -> Any:
        async def timed(*args: Any, name: str = "", **more: Any) -> Any:
            began_s = perf_counter()
            try:
                return await call(*args, name=name, **more)
            finally:
                took_ms[name].append((perf_counter() - began_s) * 1_000)

        return timed

    vars(database).update(write=timing(write), read=timing(read))
    try:
        yield
    finally:
        del vars(database)["write"], vars(database)["read"]


async def _crowd(home: BenchDaemon, agents: int, each: int) -> tuple[float, float]:
    """Each of so many callers its agent, so many turns each: turns per second, and ms of CPU for
    one of them."""
    began_s, began_cpu_s = perf_counter(), process_time()
    async with asyncio.TaskGroup() as group:
        for agent in range(agents):
            name = f"agent-{agent}"
            group.create_task(
                each_ms(each, lambda n, name=name: _turn(home, name, n))  # type: ignore[misc]
            )
    took_s, took_cpu_s = perf_counter() - began_s, process_time() - began_cpu_s
    return agents * each / took_s, took_cpu_s / agents / each * 1_000


async def _among(boot_context: BenchContext, all_agents: int) -> float:
    """CPU in ms of a turn while a few of so many agents work: of the best round, because what else
    the machine does only adds to it."""
    agents, each = boot_context.size(AGENTS, 2), boot_context.size(30, 2)
    async with (
        boot_context.fresh("turns") as folder,
        household(folder / "home", scripted(all_agents), files=RULES) as home,
    ):
        await _crowd(home, agents, each)
        found = [await _crowd(home, agents, each) for _ in range(boot_context.size(5, 1))]
    return min(cpu_ms for _, cpu_ms in found)


async def measure(boot_context: BenchContext) -> list[Figure]:
    """Rounds of single turns and bare commits, then a crowd: each of fifty callers its agent."""
    agents, each = boot_context.size(AGENTS, 2), boot_context.size(30, 2)
    single_ms: list[float] = []
    bare_ms: list[float] = []
    rates: list[float] = []
    cpu_ms: list[float] = []
    parts_ms: defaultdict[str, list[float]] = defaultdict(list)
    timed_ms: list[float] = []
    bare_rates: list[float] = []
    async with (
        boot_context.fresh("turns") as folder,
        household(folder / "home", scripted(agents), files=RULES) as home,
    ):
        with BareTable(folder / "bare.db") as bare:
            for _ in range(boot_context.size(5, 1)):
                single_ms += await each_ms(each * 2, lambda n: _turn(home, "agent-0", n))
                commits_ms = await bare.commits_ms(COMMITS * each * 2)
                bare_ms += [
                    sum(commits_ms[at : at + COMMITS]) for at in range(0, len(commits_ms), COMMITS)
                ]
                with timed_store(home.database, parts_ms):
                    timed_ms += await each_ms(each, lambda n: _turn(home, "agent-0", n))
                rate, took_ms = await _crowd(home, agents, each)
                rates.append(rate)
                cpu_ms.append(took_ms)
                batches_ms = await bare.commits_ms(each * COMMITS, rows=agents)
                bare_rates.append(agents * each / sum(batches_ms) * 1_000)
    few_ms = await _among(boot_context, agents)
    many_ms = await _among(boot_context, boot_context.size(MANY, 3))
    raw_is = f"{COMMITS} bare commits of one row"
    parts = [(name, median(parts_ms[key])) for key, name in PARTS.items()]
    rest_ms = median(timed_ms) - sum(value for _, value in parts)
    return [
        Figure(
            "turn overhead, p50",
            median(single_ms),
            "ms",
            limit=3.5,
            raw=median(bare_ms),
            raw_is=raw_is,
        ),
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
            limit=500,
            at_most=False,
            raw=median(bare_rates),
            raw_is=f"{COMMITS} rows each, bare commits of 50 rows",
        ),
        Figure("CPU of such a turn", median(cpu_ms), "ms", limit=1.9),
        Figure(
            "CPU of a turn: with 500 agents to with 50",
            many_ms / few_ms,
            "",
            limit=1.1,
            note=f"{many_ms:.3g} ms to {few_ms:.3g} ms, of 50 agents at work",
        ),
        *(Figure(f"of it: {name}", value, "ms") for name, value in parts),
        Figure("of it: everything else", rest_ms, "ms"),
    ]
