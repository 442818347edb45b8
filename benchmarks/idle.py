"""Idle agents: memory and CPU of the daemon process, beside an idle process with the same libraries
and nothing to do; and how much memory one more agent takes."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from pathlib import Path

from benchmarks.daemon_fixture import write_home
from benchmarks.figure import BenchContext, Figure, median
from benchmarks.process import Process

AGENTS, MORE_AGENTS = 50, 150
"""The memory of one more is the difference between both, by the number of those between."""
_LIBRARIES = (
    "import asyncio, aiohttp.web, aiosqlite, pydantic_settings, structlog, watchfiles, sys\n"
    "async def idle():\n"
    "    print('up', flush=True)\n"
    "    await asyncio.Event().wait()\n"
    "asyncio.run(idle())\n"
)


def _rss_mib(pid: int) -> float:
    status = Path(f"/proc/{pid}/status").read_text(encoding="ascii")
    (line,) = (line for line in status.splitlines() if line.startswith("VmRSS:"))
    return int(line.split()[1]) / 1024


def _entries(count: int) -> list[dict[str, str]]:
    return [{"name": f"agent-{n}", "engine": "scripted"} for n in range(count)]


async def measure(boot_context: BenchContext) -> list[Figure]:
    """Let it settle, then watch it for some windows."""
    window_s, windows = (0.3, 1) if boot_context.tiny else (20.0, 3)
    count, more = boot_context.size(AGENTS, 2), boot_context.size(MORE_AGENTS, 4)
    async with boot_context.fresh("idle") as folder:
        write_home(folder / "home", _entries(count))
        bare = subprocess.Popen([sys.executable, "-c", _LIBRARIES], stdout=subprocess.PIPE)
        process = Process(folder / "home")
        try:
            assert bare.stdout is not None
            await asyncio.to_thread(bare.stdout.readline)
            await process.ready()
            await asyncio.sleep(0.1 if boot_context.tiny else 3.0)
            shares = []
            for _ in range(windows):
                before_s = process.cpu_s()
                await asyncio.sleep(window_s)
                shares.append((process.cpu_s() - before_s) / window_s * 100)
            rss_mib, bare_mib = process.rss_mib(), _rss_mib(bare.pid)
        finally:
            await process.end()
            bare.kill()
            bare.communicate()
        write_home(folder / "more", _entries(more))
        process = Process(folder / "more")
        try:
            await process.ready()
            await asyncio.sleep(0.1 if boot_context.tiny else 3.0)
            more_mib = process.rss_mib()
        finally:
            await process.end()
    return [
        Figure(
            "50 idle agents, memory",
            rss_mib,
            "MiB",
            70,
            raw=bare_mib,
            raw_is="an idle process with the same libraries",
        ),
        Figure(
            "one more idle agent, memory",
            (more_mib - rss_mib) * 1024 / (more - count),
            "KiB",
            250,
            note=f"{more} agents less {count}, the same daemon",
        ),
        Figure(
            "50 idle agents, CPU",
            median(shares),
            "%",
            0.4,
            note=f"of one core, windows of {window_s:g} s, worst {max(shares):.2f}",
        ),
    ]
