"""What it costs to import the daemon, and to run a short command against a running one."""

from __future__ import annotations

from benchmarks.daemon_fixture import write_home
from benchmarks.figure import BenchContext, Figure, median
from benchmarks.process import Process, run_ms
from benchmarks.start import LIBRARIES


async def measure(boot_context: BenchContext) -> list[Figure]:
    """Whole processes, in turns with a bare interpreter."""
    bare_ms, libraries_ms, daemon_ms, agents_ms, status_ms = [], [], [], [], []
    async with boot_context.fresh("imports") as folder:
        write_home(folder, [{"name": "ann", "engine": "scripted"}])
        process = Process(folder)
        try:
            await process.ready()
            for _ in range(boot_context.size(7, 1)):
                bare_ms.append(await run_ms("-c", "pass"))
                libraries_ms.append(await run_ms("-c", LIBRARIES))
                daemon_ms.append(await run_ms("-c", "import agentsup.daemon.main"))
                home = ("--home", str(folder))
                agents_ms.append(await run_ms("-m", "agentsup", *home, "agents", "list", "--json"))
                status_ms.append(await run_ms("-m", "agentsup", *home, "status", "--json"))
        finally:
            await process.end()
    raw, raw_is = median(bare_ms), "a bare interpreter"
    return [
        Figure(
            "import of the daemon",
            median(daemon_ms),
            "ms",
            raw=median(libraries_ms),
            raw_is="the libraries alone",
        ),
        Figure("agentsup agents list --json", median(agents_ms), "ms", raw=raw, raw_is=raw_is),
        Figure("agentsup status --json", median(status_ms), "ms", raw=raw, raw_is=raw_is),
    ]
