"""What searching the memory costs among 100,000 entries of fifty agents, beside a bare query of the
index, and what a turn pays for being told what it should remember."""

from __future__ import annotations

import random
import sqlite3
from itertools import accumulate
from pathlib import Path
from time import perf_counter

from agentsup.agents.memory import AgentMemory, MemoryKind, MemoryOwner, MemoryScope, rows
from agentsup.agents.memory.ranking import audience
from agentsup.kit.clock import SystemClock
from agentsup.kit.entropy import SystemEntropy
from agentsup.store import Database
from benchmarks.figure import BenchContext, Figure, percentile

ENTRIES, AGENTS, WORDS = 100_000, 50, 20_000
_BARE = "SELECT rowid FROM memories_index WHERE memories_index MATCH ? ORDER BY rank LIMIT 50"


class _Speech:
    """Texts whose words are as frequent as those of a language: the n-th one time in n."""

    def __init__(self) -> None:
        self._chance = random.Random(7)
        letters = "abcdefghijklmnopqrstuvwxyz"
        self._words = [
            "".join(self._chance.choices(letters, k=self._chance.randint(3, 9)))
            for _ in range(WORDS)
        ]
        self._weights = list(accumulate(1 / (n + 1) for n in range(WORDS)))

    def text(self, words: int) -> str:
        return " ".join(self._chance.choices(self._words, cum_weights=self._weights, k=words))

    def usual(self, words: int) -> list[str]:
        """Words that tell something."""
        return self._chance.choices(self._words[100:5000], k=words)

    def frequent(self, words: int) -> list[str]:
        """Words that stand in a large part of all entries."""
        return self._chance.choices(self._words[:30], k=words)


def fill(path: Path, speech: _Speech, entries: int) -> None:
    """Entries of all agents, one in ten for everybody."""
    connection = sqlite3.connect(path)
    with connection:
        connection.executemany(
            "INSERT INTO agents (agent_id, name, created_at) VALUES (?, ?, 0)",
            [(f"agt_{n}", f"agent{n}") for n in range(AGENTS)],
        )
        for number in range(entries):
            owner = MemoryOwner(f"agt_{number % AGENTS}")
            scope = MemoryScope.GLOBAL if number % 10 == 0 else MemoryScope.INSTANCE
            connection.execute(
                "INSERT INTO memories (memory_id, agent_id, person, scope, kind, key, content,"
                " confidence, audience, created_at, updated_at, touched_at)"
                " VALUES (?, ?, ?, ?, 'fact', ?, ?, 0.5, ?, 0, 0, 0)",
                (
                    *(f"mem_{number}", owner.agent_id, owner.person, scope.value),
                    *(f"{speech.text(2)} {number}", speech.text(30)),
                    audience(owner, scope, MemoryKind.FACT),
                ),
            )
    connection.close()


async def measure(boot_context: BenchContext) -> list[Figure]:
    """Searches of six words: usual ones, and the most frequent of all."""
    speech, figures = _Speech(), list[Figure]()
    async with boot_context.fresh("memory") as folder:
        path = folder / "state.db"
        clock = SystemClock()
        await (await Database.open(path, clock=clock)).close()
        count = boot_context.size(ENTRIES, 200)
        fill(path, speech, count)
        database = await Database.open(path, clock=clock)
        memory = AgentMemory(database, clock, SystemEntropy(clock))
        bare = sqlite3.connect(path)
        for name, words in (("usual", speech.usual), ("frequent", speech.frequent)):
            ours, raw = [], []
            for number in range(boot_context.size(200, 2)):
                wanted = words(6)
                began_s = perf_counter()
                await memory.search(
                    MemoryOwner(f"agt_{number % AGENTS}"), " ".join(wanted), limit=8
                )
                ours.append((perf_counter() - began_s) * 1_000)
                began_s = perf_counter()
                query = " OR ".join(f'"{word}"' for word in wanted)
                bare.execute(_BARE, (query,)).fetchall()
                raw.append((perf_counter() - began_s) * 1_000)
            figures += [
                Figure(
                    f"memory search among {count:,}, {name} words, {label}",
                    percentile(ours, share),
                    "ms",
                    raw=percentile(raw, share),
                    raw_is="the index alone, over all agents",
                )
                for label, share in (("p50", 0.5), ("p95", 0.95))
            ]
        took = []
        for number in range(boot_context.size(200, 2)):
            began_s = perf_counter()
            await memory.save(MemoryOwner("agt_1"), f"new {number}", speech.text(30))
            took.append((perf_counter() - began_s) * 1_000)
        figures.append(Figure("memory save among them, p50", percentile(took, 0.5), "ms"))
        bare.close()
        assert await database.read(lambda r: rows.count_of(r, "agt_1"))
        await database.close()
    return figures
