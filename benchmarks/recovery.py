"""Ready again after ``kill -9`` with 100,000 stored messages."""

from __future__ import annotations

import asyncio
import shutil
import sqlite3
import subprocess
import sys
import tempfile
from pathlib import Path
from time import perf_counter

from agentsup.kit.clock import SystemClock
from agentsup.kit.entropy import SystemEntropy
from agentsup.mailbox import Mailbox
from agentsup.mailbox.messages import MailboxLimits
from agentsup.store import Database, StoreOptions, Tx
from benchmarks.accept import message
from benchmarks.daemon_fixture import write_home
from benchmarks.figure import BenchContext, Figure, median
from benchmarks.process import Process, run_ms
from benchmarks.start import LIBRARIES

MESSAGES = 100_000
OPEN = 500
"""So many of them are still queued."""


async def fill(path: Path, count: int, *, still_open: int = OPEN) -> None:
    """Put ``count`` accepted messages into the store at ``path``, all but a few of them ended."""
    clock = SystemClock()
    database = await Database.open(path, clock=clock, options=StoreOptions(slow_ms=60_000))
    mailbox = Mailbox(
        database,
        clock,
        SystemEntropy(clock),
        boot_id="filler",
        limits=MailboxLimits(queue_limit=count + 1),
    )
    step = 1_000
    for first in range(0, count, step):
        numbers = range(first, min(count, first + step))

        def accept(tx: Tx, numbers: range = numbers) -> None:
            for number in numbers:
                mailbox.queue.accept_tx(tx, message(number))

        await database.write(accept)

    def end(tx: Tx) -> None:
        tx.execute(
            "UPDATE messages SET state = 'done', outcome = 'ok', result_text = 'done',"
            " started_at = accepted_at, finished_at = accepted_at WHERE seq <= ?",
            (count - still_open,),
        )

    await database.write(end)
    await database.close()


def _bare_ms(path: Path) -> float:
    """Open a copy of the file without agentsup and count its messages.

    A copy, because SQLite removes the log beside the file when it closes it, and the daemon does
    not start without that log.
    """
    with tempfile.TemporaryDirectory(dir=path.parent.parent) as folder:
        for each in path.parent.glob(f"{path.name}*"):
            shutil.copy(each, folder)
        began_s = perf_counter()
        connection = sqlite3.connect(Path(folder) / path.name)
        connection.execute("SELECT COUNT(*) FROM messages").fetchone()
        connection.close()
        return (perf_counter() - began_s) * 1_000


def _load(process: Process) -> subprocess.Popen[bytes]:
    """Eight callers that send to an agent until they are killed."""
    return subprocess.Popen(
        [
            sys.executable,
            "-m",
            "benchmarks.load",
            str(process.port),
            "8",
            "30",
            process.token,
            "/interagent/send_async",
            '{"to": "ann", "message": "hello"}',
        ],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )


async def measure(boot_context: BenchContext) -> list[Figure]:
    """Kill a daemon that is taking messages, start it again, several times over."""
    count = boot_context.size(MESSAGES, 200)
    ready_ms, bare_ms = [], []
    async with boot_context.fresh("recovery") as folder:
        write_home(folder, [{"name": name, "engine": "scripted"} for name in ("ann", "bob")])
        await fill(folder / "state.db", count, still_open=min(OPEN, count // 2))
        process = Process(folder)
        await process.ready()
        for _ in range(boot_context.size(5, 1)):
            load = _load(process)
            await asyncio.sleep(0.3 if boot_context.tiny else 1.5)
            process.kill()
            load.kill()
            load.wait()
            bare_ms.append(_bare_ms(folder / "state.db") + await run_ms("-c", LIBRARIES))
            process = Process(folder)
            ready_ms.append(await process.ready())
        await process.end()
    return [
        Figure(
            "ready after kill -9 with 100k messages",
            median(ready_ms),
            "ms",
            1_500,
            raw=median(bare_ms),
            raw_is="import the libraries, open the file and count",
            note=f"best {min(ready_ms):.0f}, worst {max(ready_ms):.0f}",
        )
    ]
