"""Engines that are programs: how fast a cancelled one is gone, and how late the loop is with many."""

from __future__ import annotations

import asyncio
import contextlib
import json
import sys
from contextlib import aclosing
from pathlib import Path
from time import perf_counter
from typing import Any

from agentsup.engines.command import CommandEngine
from agentsup.engines.guard import GuardedSession, open_guarded
from agentsup.engines.process import ProcessLauncher, ProcessSlotLimits
from agentsup.kit.clock import SystemClock
from agentsup.kit.lag import LagProbe, LagStats
from agentsup.model.engine import EngineSpec, TextDelta
from benchmarks.figure import BenchContext, Figure, median, percentile
from tests.support import scripted_program
from tests.support.engine_host import MemoryHost, segment

STREAMS = 100
CANCELS = 40


async def _open(
    folder: Path, engine: CommandEngine, name: str, steps: list[dict[str, Any]]
) -> GuardedSession:
    workspace = folder / name / "workspace"
    workspace.mkdir(parents=True)
    scenes = folder / name / "scenes.json"
    scenes.write_text(json.dumps(steps))
    stub = [sys.executable, "-S", "-E", scripted_program.__file__, "command", str(scenes)]
    spec = EngineSpec(
        "command",
        options={"command": stub},
        workspace=str(workspace),
        env={"PATH": "/usr/bin:/bin"},
        agent=name,
    )
    return await open_guarded(engine, spec, MemoryHost())


async def _cancelled_s(session: GuardedSession) -> float:
    """From the cancellation at the first text until every process of the group is gone."""
    began_s = perf_counter()
    async with aclosing(session.run(segment())) as events:
        async for event in events:
            if isinstance(event, TextDelta):
                began_s = perf_counter()
                session.cancel()
    took_s = perf_counter() - began_s
    await session.close()
    return took_s


async def _streamed(session: GuardedSession, all_speak: asyncio.Barrier) -> None:
    async with aclosing(session.run(segment())) as events:
        async for event in events:
            if isinstance(event, TextDelta):
                break
        await all_speak.wait()
        async for _ in events:
            pass
    await session.close()


async def _lag_until(over: asyncio.Event) -> LagStats:
    probe = LagProbe(0.01, watches_from_thread=False)
    probing = asyncio.ensure_future(probe.run())
    await over.wait()
    probing.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await probing
    return probe.stats()


async def _side_by_side(sessions: list[GuardedSession]) -> tuple[LagStats, LagStats]:
    """How late the loop was while all were started, and while all of them spoke."""
    all_speak, speaking, over = asyncio.Barrier(len(sessions) + 1), asyncio.Event(), asyncio.Event()
    async with asyncio.TaskGroup() as group:
        starting = group.create_task(_lag_until(speaking))
        streams = [group.create_task(_streamed(each, all_speak)) for each in sessions]
        await all_speak.wait()
        speaking.set()
        streaming = group.create_task(_lag_until(over))
        await asyncio.wait(streams)
        over.set()
    return starting.result(), streaming.result()


async def measure(boot_context: BenchContext) -> list[Figure]:
    """Cancels one after the other, then streams side by side."""
    count = boot_context.size(CANCELS, 2)
    streams = boot_context.size(STREAMS, 3)
    wide = ProcessSlotLimits(total=streams, per_agent=streams)
    children = ProcessLauncher(SystemClock(), limits=lambda: wide)
    engine = CommandEngine(children)
    endless: dict[str, Any] = {"do": "say", "chunks": ["first", "second"], "every_s": 30}
    spoken = {"do": "say", "chunks": ["word "] * 50, "every_s": 0.2}
    took: dict[str, list[float]] = {"obeys": [], "ignores TERM": []}
    async with boot_context.fresh("programs") as folder:
        stubborn: list[dict[str, Any]] = [{"do": "ignore_term"}, {"do": "family"}, endless]
        for kind, steps in (("obeys", [endless]), ("ignores TERM", stubborn)):
            for number in range(count):
                session = await _open(folder, engine, f"{kind[0]}{number}", steps)
                took[kind].append(await _cancelled_s(session))
        sessions = [await _open(folder, engine, f"s{n}", [spoken]) for n in range(streams)]
        starting, streaming = await _side_by_side(sessions)
        await children.close()
    owed = {"obeys": 500, "ignores TERM": 1500}
    return [
        *(
            Figure(
                f"cancel to all processes gone, {kind}, p99",
                percentile(times, 0.99) * 1000,
                "ms",
                owed[kind],
                note=f"p50 {median(times) * 1000:.0f} ms, {count} times",
            )
            for kind, times in took.items()
        ),
        Figure(
            f"loop lag while {streams} programs stream, p99",
            streaming.p99_s * 1000,
            "ms",
            50,
            note=f"p50 {streaming.p50_s * 1000:.1f} ms, worst {streaming.max_s * 1000:.0f} ms",
        ),
        Figure(
            f"loop lag while {streams} programs are started at once, p99",
            starting.p99_s * 1000,
            "ms",
            15,
            note=f"p50 {starting.p50_s * 1000:.1f} ms, worst {starting.max_s * 1000:.0f} ms",
        ),
    ]
