"""A process with sixteen writers: prints an id only once its commit was confirmed.

Usage: writers.py DATABASE MIGRATIONS BOOT. Each id is new; the parent kills this process at will.
"""

from __future__ import annotations

import asyncio
import os
import sys
from functools import partial
from pathlib import Path

from agentsup.kit.clock import SystemClock
from agentsup.store import Database, StoreOptions, Tx


def insert(item_id: str, tx: Tx) -> None:
    # Two rows in one function: half of it must never be seen.
    tx.execute("INSERT INTO items (item_id, half) VALUES (?, 1)", (item_id,))
    tx.execute("INSERT INTO items (item_id, half) VALUES (?, 2)", (item_id,))


async def write_for_ever(store: Database, prefix: str) -> None:
    for number in range(1_000_000):
        item_id = f"{prefix}-{number}"
        await store.write(partial(insert, item_id))
        os.write(1, f"{item_id}\n".encode())


async def main(path: Path, migrations: Path, boot: str) -> None:
    store = await Database.open(
        path,
        clock=SystemClock(),
        migrations=migrations,
        options=StoreOptions(reserve_bytes=100_000),
    )
    async with asyncio.TaskGroup() as writers:
        for number in range(16):
            writers.create_task(write_for_ever(store, f"{boot}-{number}"))


asyncio.run(main(Path(sys.argv[1]), Path(sys.argv[2]), sys.argv[3]))
