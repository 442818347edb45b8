"""``/stop_all`` over 50 agents with 100 processes, which obey SIGTERM or ignore it."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import subprocess
from collections.abc import AsyncIterator
from pathlib import Path
from time import perf_counter

from agentsup.engines.registry import EngineRegistry
from agentsup.kit import proctable
from agentsup.kit.pipes import Stdio
from agentsup.kit.procgroup import ProcessGroup
from agentsup.model.engine import (
    EngineCaps,
    EngineDone,
    EngineEvent,
    EngineHost,
    EngineSpec,
    Segment,
)
from agentsup.model.principal import OPERATOR
from benchmarks.daemon_fixture import BenchDaemon, household
from benchmarks.figure import BenchContext, Figure, median

AGENTS = 50
_TREE = 'read -r go || exit 1; sleep "$0" & wait'
_BARE = "sleep 600 & wait"


class ObedientEngine:
    """Runs a child and a grandchild that end on SIGTERM; in the place of the engine ``command``."""

    name = "command"
    caps = EngineCaps()

    async def open(self, spec: EngineSpec, host: EngineHost) -> ObedientSession:
        return ObedientSession(spec, host)

    async def close(self) -> None:
        """Nothing is held."""


class ObedientSession:
    """One turn: waits for its children."""

    def __init__(self, spec: EngineSpec, host: EngineHost) -> None:
        self._spec = spec
        self._host = host

    async def run(self, segment: Segment) -> AsyncIterator[EngineEvent]:
        group = await ProcessGroup.spawn(
            ["/bin/sh", "-c", _TREE, "600"],
            env=self._spec.env,
            cwd=self._spec.workspace,
            stdin=Stdio.PIPE,
            stdout=Stdio.NULL,
            stderr=Stdio.NULL,
        )
        try:
            record = group.record
            await self._host.spawned(record.pgid, record.started_ticks, record.argv0)
            if group.stdin is not None:
                group.stdin.feed(b"go\n")
            await group.wait()
        finally:
            try:
                await group.stop(term_grace_s=0.5)
            finally:
                await self._host.reaped(group.pgid)
        yield EngineDone("ok", text="ended")

    async def close(self) -> None:
        """Nothing to force."""


def _descendants() -> int:
    """Living processes below this one."""
    return sum(row.is_alive for row in proctable.descendants({os.getpid()}))


async def _until_children(count: int) -> None:
    async with asyncio.timeout(60):
        while _descendants() < count:
            await asyncio.sleep(0.02)


async def _stop_ms(home: BenchDaemon, agents: int) -> float:
    """Give every agent a turn with two processes, stop all of it, and look that nothing is left."""
    for number in range(agents):
        await home.daemon.mailbox.queue.accept(home.message(f"agent-{number}", "work"))
    await _until_children(2 * agents)
    began_s = perf_counter()
    report = await home.daemon.control.stop("all", OPERATOR)
    took_ms = (perf_counter() - began_s) * 1_000
    left = _descendants()
    if (report.running, report.processes, left) != (agents, 2 * agents, 0):
        raise RuntimeError(f"{agents} agents: {report}, {left} processes left")
    return took_ms


async def _bare_ms(groups: int, number: signal.Signals) -> float:
    """Signal as many bare groups of two and collect them."""
    children = [
        subprocess.Popen(["/bin/sh", "-c", _BARE], start_new_session=True) for _ in range(groups)
    ]
    await _until_children(2 * groups)
    began_s = perf_counter()
    for child in children:
        os.killpg(child.pid, number)
    for child in children:
        with contextlib.suppress(ChildProcessError):
            while True:
                os.waitpid(-child.pid, 0)  # the leader, then its orphan, which falls to us
        child.returncode = 0
    return (perf_counter() - began_s) * 1_000


async def _measure(
    folder: Path, boot_context: BenchContext, engine: str, bare: signal.Signals
) -> tuple[list[float], list[float]]:
    agents = boot_context.size(AGENTS, 2)
    script = {"rules.yaml": "- match: work\n  steps:\n    - spawn: 600\n"}
    entries = [
        {
            "name": f"agent-{n}",
            "engine": engine,
            "engine_options": {"script": "file:rules.yaml"} if engine == "scripted" else {},
        }
        for n in range(agents)
    ]

    def add(registry: EngineRegistry) -> None:
        registry.add("command", ObedientEngine)

    stop_ms, bare_ms = [], []
    async with household(folder, entries, files=script, engines=add) as home:
        for _ in range(boot_context.size(5, 1)):
            stop_ms.append(await _stop_ms(home, agents))
            bare_ms.append(await _bare_ms(agents, bare))
    return stop_ms, bare_ms


async def measure(boot_context: BenchContext) -> list[Figure]:
    """Both kinds of processes, each in turns with bare groups that are signalled directly."""
    figures = []
    for name, engine, number, limit_ms in (
        ("obey", "command", signal.SIGTERM, 150.0),
        ("ignore TERM", "scripted", signal.SIGKILL, 1_000.0),
    ):
        async with boot_context.fresh("stop") as folder:
            stop_ms, bare_ms = await _measure(folder, boot_context, engine, number)
        figures.append(
            Figure(
                f"stop_all, 50 agents, 100 processes that {name}",
                median(stop_ms),
                "ms",
                limit_ms,
                raw=median(bare_ms),
                raw_is=f"{number.name} to bare groups until they are gone",
                note=f"worst {max(stop_ms):.0f}",
            )
        )
    return figures
