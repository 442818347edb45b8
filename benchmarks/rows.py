"""What one change of a message costs as the store grows: claim and completion of one message."""

from __future__ import annotations

import sqlite3
from time import perf_counter

from agentsup.kit.clock import SystemClock
from agentsup.kit.entropy import SystemEntropy
from agentsup.mailbox import Mailbox
from agentsup.mailbox.messages import Completion, MailboxLimits
from agentsup.model.message import LaneName, MessageOutcome
from agentsup.store import Database
from benchmarks.accept import message
from benchmarks.figure import BenchContext, Figure, median
from benchmarks.recovery import fill
from benchmarks.timing import each_ms

SIZES = (100, 10_000, 100_000)
_FREE = dict.fromkeys(LaneName, 1)


async def _cycle_ms(mailbox: Mailbox, times: int, first: int) -> list[float]:
    """Accept one message, then time its claim and its end."""
    took = []
    for number in range(first, first + times):
        new = message(number * 20)
        await mailbox.queue.accept(new)
        began_s = perf_counter()
        (lease,) = (await mailbox.leases.claim(new.agent_id, "ins", _FREE)).leases
        await mailbox.leases.complete(lease, Completion(MessageOutcome.OK, "done"))
        took.append((perf_counter() - began_s) * 1_000)
    return took


async def measure(boot_context: BenchContext) -> list[Figure]:
    """A store of each size; the raw cost is an update of one indexed row in it, twice."""
    figures = []
    for size in SIZES:
        async with boot_context.fresh("rows") as folder:
            path = folder / "state.db"
            count = boot_context.size(size, 100)
            await fill(path, count, still_open=0)
            clock = SystemClock()
            database = await Database.open(path, clock=clock)
            mailbox = Mailbox(
                database, clock, SystemEntropy(clock), boot_id="bench", limits=MailboxLimits()
            )
            took_ms, bare_ms = [], []
            connection = sqlite3.connect(path, isolation_level=None)
            connection.execute("PRAGMA synchronous = FULL")

            async def change(number: int, connection: sqlite3.Connection = connection) -> None:
                connection.execute("UPDATE messages SET fence = fence + 1 WHERE seq = ?", (number,))

            for part in range(boot_context.size(6, 1)):
                took_ms += await _cycle_ms(
                    mailbox, boot_context.size(40, 2), 1_000_000 + part * 1_000
                )
                bare_ms += await each_ms(boot_context.size(40, 2), change)
            connection.close()
            await database.close()
        figures.append(
            Figure(
                f"claim and complete at {size:,} rows, p50",
                median(took_ms),
                "ms",
                raw=2 * median(bare_ms),
                raw_is="two bare updates of one row",
            )
        )
    return figures
