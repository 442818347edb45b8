"""``python -m benchmarks [NAME ...] [--tiny] [--strict] [--record]``: measure, print a table, write
JSON."""

from __future__ import annotations

import argparse
import asyncio
import importlib
import os
import platform
import sqlite3
import sys
import tempfile
from collections.abc import Awaitable, Callable
from pathlib import Path
from time import perf_counter

from benchmarks.figure import RESULTS, BenchContext, Figure
from benchmarks.recorded import record, recorded, values
from benchmarks.table import Outcome, as_json, table, write
from benchmarks.timing import calibrate

NAMES = (
    "accept",
    "http",
    "save",
    "stop",
    "idle",
    "start",
    "recovery",
    "peers",
    "turns",
    "tools",
    "tasks",
    "dispatch",
    "rows",
    "memory",
    "sizes",
    "lag",
    "programs",
    "imports",
    "telegram",
    "web",
)
"""The order of a whole run."""


async def run_one(name: str, *, tiny: bool, folder: Path) -> Outcome:
    """Run one benchmark; what it raises becomes its error."""
    measure: Callable[[BenchContext], Awaitable[list[Figure]]] = importlib.import_module(
        f"benchmarks.{name}"
    ).measure
    before_us = await calibrate()
    began_s = perf_counter()
    figures: list[Figure] = []
    error = ""
    try:
        figures = await measure(BenchContext(folder, tiny))
    except Exception as failure:  # noqa: BLE001 - one broken benchmark must not hide the others
        error = f"{type(failure).__name__}: {failure}"[:300]
    return Outcome(
        name, (before_us, await calibrate()), perf_counter() - began_s, tuple(figures), error
    )


def main(arguments: list[str] | None = None) -> int:
    """Exit code 0; with ``--strict`` 1 if a figure misses its target or a benchmark failed."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help=", ".join(NAMES))
    parser.add_argument("--tiny", action="store_true", help="smallest sizes; figures mean nothing")
    parser.add_argument("--strict", action="store_true", help="exit with 1 if a target is missed")
    parser.add_argument("--record", action="store_true", help="write docs/performance.md, too")
    parser.add_argument("--out", type=Path, default=RESULTS / "latest.json", help="the JSON file")
    given = parser.parse_args(arguments)
    if unknown := set(given.names) - set(NAMES):
        parser.error(f"there is no benchmark {', '.join(sorted(unknown))}; {', '.join(NAMES)}")
    RESULTS.mkdir(parents=True, exist_ok=True)
    outcomes = []
    for name in given.names or NAMES:
        print(f"{name} …", file=sys.stderr, flush=True)
        with tempfile.TemporaryDirectory(prefix="work-", dir=RESULTS) as folder:
            outcomes.append(asyncio.run(run_one(name, tiny=given.tiny, folder=Path(folder))))
    machine = {
        "python": platform.python_version(),
        "sqlite": sqlite3.sqlite_version,
        "system": f"{platform.system()} {platform.machine()}",
        "processors": os.cpu_count(),
        "load": os.getloadavg(),
        "tiny": given.tiny,
    }
    run = as_json(outcomes, machine)
    write(given.out, run)
    print(table(outcomes, values(recorded())))
    if given.record:
        record(run, NAMES)
    print(f"\n{given.out}", file=sys.stderr)
    missed = any(o.error or any(f.is_met is False for f in o.figures) for o in outcomes)
    return 1 if given.strict and missed else 0


if __name__ == "__main__":
    sys.exit(main())
