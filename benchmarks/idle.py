"""Fifty idle agents: memory and CPU of the daemon process, beside an idle process with the same
libraries and nothing to do."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from pathlib import Path

from benchmarks.figure import Figure, Ground, median
from benchmarks.household import write_home
from benchmarks.process import Process

AGENTS = 50
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


async def measure(ground: Ground) -> list[Figure]:
    """Let it settle, then watch it for some windows."""
    window_s, windows = (0.3, 1) if ground.tiny else (20.0, 3)
    entries = [{"name": f"agent-{n}", "engine": "scripted"} for n in range(ground.size(AGENTS, 2))]
    async with ground.fresh("idle") as folder:
        write_home(folder / "home", entries)
        bare = subprocess.Popen([sys.executable, "-c", _LIBRARIES], stdout=subprocess.PIPE)
        process = Process(folder / "home")
        try:
            assert bare.stdout is not None
            await asyncio.to_thread(bare.stdout.readline)
            await process.ready()
            await asyncio.sleep(0.1 if ground.tiny else 3.0)
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
    return [
        Figure(
            "50 idle agents, memory",
            rss_mib,
            "MiB",
            80,
            raw=bare_mib,
            raw_is="an idle process with the same libraries",
        ),
        Figure(
            "50 idle agents, CPU",
            median(shares),
            "%",
            0.5,
            note=f"of one core, windows of {window_s:g} s, worst {max(shares):.2f}",
        ),
    ]
