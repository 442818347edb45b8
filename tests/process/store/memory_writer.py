"""Saves, saves again, recalls and forgets until it is killed; prints what was confirmed."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

from agentsup.agents.memory.entry import MemoryOwner, PersonKey
from agentsup.agents.memory.service import AgentMemory
from agentsup.kit.clock import SystemClock
from agentsup.kit.entropy import SystemEntropy
from agentsup.store import Database, StoreOptions


async def main(path: Path, boot: str) -> None:
    clock = SystemClock()
    database = await Database.open(path, clock=clock, options=StoreOptions(reserve_bytes=0))
    memory, owner = AgentMemory(database, clock, SystemEntropy(clock)), MemoryOwner("agt_a", "", 25)

    async def one(number: int) -> None:
        key = f"{boot} {number}"
        await memory.save(owner, key, f"first {number} word")
        await memory.save(owner, key, f"second {number} word")
        await memory.recall(owner, f"second {number}")
        if number % 3 == 0:
            await memory.forget("agt_a", PersonKey("", key))
        else:
            await memory.pin("agt_a", PersonKey("", key))
            print(key, flush=True)

    for start in range(0, 24, 4):
        await asyncio.gather(*(one(number) for number in range(start, start + 4)))
    await database.close()


asyncio.run(main(Path(sys.argv[1]), sys.argv[2]))
