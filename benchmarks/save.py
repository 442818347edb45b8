"""From saving agents.json to the edit being applied, seen from outside a running daemon."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from time import perf_counter
from typing import Any

from watchfiles import awatch

from benchmarks.daemon_fixture import write_home
from benchmarks.figure import BenchContext, Figure, median, percentile
from benchmarks.process import Process

AGENTS = 20
LIMIT_S = 10.0


def _save(path: Path, content: str) -> float:
    """Replace ``path`` at once, as editors do; returns the instant."""
    fresh = path.with_name(path.name + ".new")
    fresh.write_text(content, encoding="utf-8")
    fresh.replace(path)
    return perf_counter()


async def _noticed_ms(path: Path, content: str) -> float:
    """How long watchfiles alone takes to report a replaced file, at its quickest setting."""
    stop = asyncio.Event()
    events = awatch(path.parent, stop_event=stop, step=1, debounce=5, recursive=False)
    waiting = asyncio.ensure_future(anext(events))
    await asyncio.sleep(0.15)
    saved_s = _save(path, content)
    await waiting
    took_ms = (perf_counter() - saved_s) * 1_000
    stop.set()
    await events.aclose()
    return took_ms


async def _pause(number: int) -> None:
    """Let it come to rest. The watcher looks in steps that begin with the last change: pauses of
    one length would meet it in always the same moment of a step, these meet it in any."""
    await asyncio.sleep(0.2 + number * 0.0618 % 0.1)


async def _applied(lines: asyncio.StreamReader) -> dict[str, Any]:
    """The data of the next config.applied event."""
    async with asyncio.timeout(LIMIT_S):
        while True:
            line = await lines.readline()
            if not line:
                raise RuntimeError("the event stream ended")
            if line.startswith(b"data:"):
                found: dict[str, Any] = json.loads(line[5:])
                return found


async def measure(boot_context: BenchContext) -> list[Figure]:
    """Live edits, and agents added and removed; the raw cost in turns with them."""
    entries: list[dict[str, Any]] = [
        {"name": f"agent-{n}", "engine": "scripted", "description": ""} for n in range(AGENTS)
    ]
    live_ms: list[float] = []
    set_ms: list[float] = []
    noticed_ms: list[float] = []
    async with boot_context.fresh("save") as folder:
        home, bare = folder / "home", folder / "bare" / "agents.json"
        bare.parent.mkdir()
        write_home(home, entries)
        process = Process(home)
        try:
            await process.ready()
            async with process.events("config.applied") as lines:
                for number in range(boot_context.size(40, 2)):
                    changed = json.dumps(
                        [{**entries[0], "description": f"edit {number}"}, *entries[1:]]
                    )
                    await _pause(2 * number)
                    saved_s = _save(home / "agents.json", changed)
                    await _applied(lines)
                    live_ms.append((perf_counter() - saved_s) * 1_000)
                    noticed_ms.append(await _noticed_ms(bare, changed))
                    extra = {"name": f"extra-{number}", "engine": "scripted"}
                    await _pause(2 * number + 1)
                    saved_s = _save(home / "agents.json", json.dumps([*entries, extra]))
                    await _applied(lines)
                    set_ms.append((perf_counter() - saved_s) * 1_000)
        finally:
            await process.end()
    both = live_ms + set_ms
    raw = median(noticed_ms)
    raw_is = "watchfiles alone, step 1 ms"
    return [
        Figure("save → applied, p50", median(both), "ms", 120, raw=raw, raw_is=raw_is),
        Figure(
            "save → applied, p95",
            percentile(both, 0.95),
            "ms",
            300,
            raw=percentile(noticed_ms, 0.95),
            raw_is=raw_is + ", p95",
        ),
        Figure("save → live field applied, p50", median(live_ms), "ms"),
        Figure("save → set of agents applied, p50", median(set_ms), "ms"),
    ]
