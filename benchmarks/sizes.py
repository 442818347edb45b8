"""How much memory of the daemon an open session takes, and a turn that waits for a person."""

from __future__ import annotations

import asyncio
import sqlite3
from contextlib import closing
from pathlib import Path

import aiohttp

from benchmarks.daemon_fixture import write_home
from benchmarks.figure import BenchContext, Figure
from benchmarks.process import Process

AGENTS = 50
FEW, MANY = 2, 12
"""Sessions, or waiting turns, of each agent; the memory of one is the difference between both."""
_RULES = {
    "rules.yaml": (
        "- match: wait\n  steps:\n    - question: {text: Go on}\n    - say: ok\n"
        "- match: '(?s).*'\n  steps:\n    - say: ok\n"
    )
}


async def measure(boot_context: BenchContext) -> list[Figure]:
    """One daemon for each; messages of the operator, each in a thread of its own."""
    few, many = boot_context.size(FEW, 1), boot_context.size(MANY, 2)
    agents = boot_context.size(AGENTS, 2)
    figures = []
    for name, text, state, limit_kib in (
        ("one open session, memory", "hello", "done", 16),
        ("one waiting turn, memory", "wait", "parked", 16),
    ):
        async with boot_context.fresh("sizes") as folder:
            write_home(folder, _entries(agents), _RULES)
            process = Process(folder)
            try:
                await process.ready()
                sizes = []
                for first, last in ((0, few), (few, many)):
                    await _said(process, agents, range(first, last), text)
                    await _until(folder / "state.db", state, agents * last)
                    await asyncio.sleep(0.1 if boot_context.tiny else 2.0)
                    sizes.append(process.rss_mib())
            finally:
                await process.end()
        one_kib = (sizes[1] - sizes[0]) * 1024 / (agents * (many - few))
        note = f"{agents * many} less {agents * few}, the same process"
        figures.append(Figure(name, one_kib, "KiB", limit_kib, note=note))
    return figures


def _entries(count: int) -> list[dict[str, object]]:
    options = {"script": "file:rules.yaml"}
    return [
        {"name": f"agent-{n}", "engine": "scripted", "engine_options": options}
        for n in range(count)
    ]


async def _said(process: Process, agents: int, threads: range, text: str) -> None:
    headers = {"Authorization": f"Bearer {process.token}"}
    url = f"http://127.0.0.1:{process.port}/interagent/send_async"
    async with aiohttp.ClientSession(headers=headers) as http:
        for thread in threads:
            for number in range(agents):
                body = {"to": f"agent-{number}", "message": text, "thread_id": f"thread-{thread}"}
                async with http.post(url, json=body) as answer:
                    if answer.status >= 300:
                        raise RuntimeError(await answer.text())


async def _until(store: Path, state: str, count: int) -> None:
    query = "SELECT count(*) FROM messages WHERE state = ?"
    async with asyncio.timeout(60):
        while True:
            with closing(sqlite3.connect(f"file:{store}?mode=ro", uri=True)) as connection:
                if connection.execute(query, (state,)).fetchone()[0] >= count:
                    return
            await asyncio.sleep(0.1)
