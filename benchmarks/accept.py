"""Durable accept in process: `Mailbox.accept` by one caller and by sixteen, synchronous=FULL."""

from __future__ import annotations

import asyncio
from time import perf_counter

from agentsup.kit.clock import SystemClock
from agentsup.kit.entropy import SystemEntropy
from agentsup.mailbox.mailbox import Mailbox, MailboxLimits
from agentsup.model.ids import AgentId
from agentsup.model.message import DeliverTo, NewMessage, text_parts
from agentsup.model.principal import Principal, PrincipalKind
from agentsup.store.database import Database
from benchmarks.bare import BODY, BareTable
from benchmarks.figure import Figure, Ground, median, percentile
from benchmarks.timing import each_ms

CALLERS = 16
_PERSON = Principal(PrincipalKind.PERSON, "bob", "Bob")


def message(number: int) -> NewMessage:
    """A chat message of a person of about 1 kB, for one of twenty agents."""
    agent_id = AgentId(f"agent-{number % 20}")
    return NewMessage(
        agent_id=agent_id,
        session_key="chat:console:local",
        parts=text_parts(BODY),
        principal=_PERSON,
        deliver_to=DeliverTo("chat", agent_id=agent_id, channel="console", conversation="local"),
        source="console",
        external_id=f"in-{number}",
    )


async def measure(ground: Ground) -> list[Figure]:
    """Rounds of: one caller, bare commits, sixteen callers, bare batches of sixteen."""
    rounds, single, crowd = ground.size(12, 1), ground.size(150, 5), ground.size(2_400, 32)
    one_ms: list[float] = []
    bare_one_ms: list[float] = []
    rates: list[float] = []
    bare_rates: list[float] = []
    async with ground.fresh("accept") as folder:
        clock = SystemClock()
        database = await Database.open(folder / "state.db", clock=clock)
        mailbox = Mailbox(
            database,
            clock,
            SystemEntropy(clock),
            boot_id="bench",
            limits=MailboxLimits(queue_limit=10_000_000),
        )
        numbers = iter(range(1 << 62))

        async def accept(_: int) -> None:
            await mailbox.accept(message(next(numbers)))

        async def callers() -> float:
            began_s = perf_counter()
            async with asyncio.TaskGroup() as group:
                for _ in range(CALLERS):
                    group.create_task(each_ms(crowd // CALLERS, accept))
            return crowd / (perf_counter() - began_s)

        with BareTable(folder / "bare.db") as bare:
            await each_ms(20, accept)
            for _ in range(rounds):
                one_ms += await each_ms(single, accept)
                bare_one_ms += await bare.commits_ms(single)
                rates.append(await callers())
                batches_ms = await bare.commits_ms(crowd // CALLERS, rows=CALLERS)
                bare_rates.append(crowd / sum(batches_ms) * 1_000)
        await database.close()
    return [
        Figure(
            "accept, 1 caller, p50",
            median(one_ms),
            "ms",
            1.0,
            raw=median(bare_one_ms),
            raw_is="a bare commit of one row",
        ),
        Figure(
            "accept, 1 caller, p99",
            percentile(one_ms, 0.99),
            "ms",
            raw=percentile(bare_one_ms, 0.99),
            raw_is="the same, p99",
        ),
        Figure(
            "accepts at 16 callers",
            median(rates),
            "/s",
            8_000,
            at_most=False,
            raw=median(bare_rates),
            raw_is="rows/s, bare commits of 16 rows",
            note=f"best round {max(rates):,.0f}",
        ),
    ]
