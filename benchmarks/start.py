"""From the start of the process to ``/readyz``: an existing home with two agents."""

from __future__ import annotations

from benchmarks.daemon_fixture import write_home
from benchmarks.figure import BenchContext, Figure, median
from benchmarks.process import Process, run_ms

LIBRARIES = "import asyncio, aiohttp.web, aiosqlite, pydantic_settings, structlog, watchfiles"


async def measure(boot_context: BenchContext) -> list[Figure]:
    """Starts in turns with a process that only imports the libraries."""
    ready_ms, bare_ms = [], []
    async with boot_context.fresh("start") as folder:
        write_home(folder, [{"name": name, "engine": "scripted"} for name in ("ann", "bob")])
        for _ in range(boot_context.size(9, 1)):
            process = Process(folder)
            try:
                ready_ms.append(await process.ready())
            finally:
                await process.end()
            bare_ms.append(await run_ms("-c", LIBRARIES))
    return [
        Figure(
            "start to ready",
            median(ready_ms),
            "ms",
            900,
            raw=median(bare_ms),
            raw_is="a process that imports the libraries and ends",
            note=f"best {min(ready_ms):.0f}, worst {max(ready_ms):.0f}",
        )
    ]
