"""Durable accept in process: ``MessageQueue.accept`` by one caller and by sixteen, synchronous=FULL."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from dataclasses import dataclass
from time import perf_counter

from agentsup.kit.clock import SystemClock
from agentsup.kit.entropy import SystemEntropy
from agentsup.mailbox import Mailbox
from agentsup.mailbox.messages import MailboxLimits
from agentsup.model.ids import AgentId
from agentsup.model.message import DeliverTo, NewMessage, text_parts
from agentsup.model.principal import Principal, PrincipalKind
from agentsup.store import Database
from benchmarks.bare import BODY, BareTable
from benchmarks.figure import BenchContext, Figure, median, percentile
from benchmarks.timing import each_ms

CALLERS = 16
_PERSON = Principal(PrincipalKind.PERSON, "bob", "Bob")


def message(number: int, *, agents: int = 20) -> NewMessage:
    """A chat message of a person of about 1 kB, for one of some agents."""
    agent_id = AgentId(f"agent-{number % agents}")
    return NewMessage(
        agent_id=agent_id,
        session_key="chat:console:local",
        parts=text_parts(BODY),
        principal=_PERSON,
        deliver_to=DeliverTo("chat", agent_id=agent_id, channel="console", conversation="local"),
        source="console",
        external_id=f"in-{number}",
    )


@dataclass(slots=True)
class _Callers:
    """Callers with their messages ready; numbers are never used twice."""

    mailbox: Mailbox
    next_number: int = 0

    def ready(self, count: int, agents: int) -> Iterator[NewMessage]:
        first, self.next_number = self.next_number, self.next_number + count
        return iter([message(n, agents=agents) for n in range(first, first + count)])

    async def one_ms(self, count: int) -> list[float]:
        """One caller, one message after another: how long each took, in ms."""
        waiting = self.ready(count, 1)
        return await each_ms(count, lambda _: self.mailbox.queue.accept(next(waiting)))

    async def crowd_per_s(self, count: int, agents: int) -> float:
        """Sixteen callers at once: messages per second."""
        waiting = self.ready(count, agents)

        async def caller() -> None:
            for new in waiting:
                await self.mailbox.queue.accept(new)

        began_s = perf_counter()
        async with asyncio.TaskGroup() as group:
            for _ in range(CALLERS):
                group.create_task(caller())
        return count / (perf_counter() - began_s)


async def measure(boot_context: BenchContext) -> list[Figure]:
    """Rounds of: one caller, bare commits, sixteen callers, bare batches of sixteen."""
    rounds, single, crowd = (
        boot_context.size(12, 1),
        boot_context.size(150, 5),
        boot_context.size(2_400, 32),
    )
    one_ms: list[float] = []
    bare_one_ms: list[float] = []
    rates: dict[int, list[float]] = {1: [], 20: []}
    bare_rates: list[float] = []
    async with boot_context.fresh("accept") as folder:
        clock = SystemClock()
        database = await Database.open(folder / "state.db", clock=clock)
        limits = MailboxLimits(queue_limit=10_000_000)
        callers = _Callers(
            Mailbox(database, clock, SystemEntropy(clock), boot_id="bench", limits=limits)
        )
        with BareTable(folder / "bare.db") as bare:
            await callers.one_ms(20)
            for _ in range(rounds):
                one_ms += await callers.one_ms(single)
                bare_one_ms += await bare.commits_ms(single)
                for agents, found in rates.items():
                    found.append(await callers.crowd_per_s(crowd, agents))
                batches_ms = await bare.commits_ms(crowd // CALLERS, rows=CALLERS)
                bare_rates.append(crowd / sum(batches_ms) * 1_000)
        await database.close()
    raw_is = "rows/s, bare commits of 16 rows"
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
            median(rates[1]),
            "/s",
            8_000,
            at_most=False,
            raw=median(bare_rates),
            raw_is=raw_is,
            note=f"best round {max(rates[1]):,.0f}",
        ),
        Figure(
            "accepts at 16 callers, to 20 agents",
            median(rates[20]),
            "/s",
            raw=median(bare_rates),
            raw_is=raw_is,
            note=f"best round {max(rates[20]):,.0f}",
        ),
    ]
