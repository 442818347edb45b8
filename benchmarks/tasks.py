"""Background work: whole lives of tasks, and how soon a turn that waits for a run goes on after it."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from dataclasses import dataclass, field
from time import perf_counter

from agentsup.mailbox.mail import Asker, to_asker
from agentsup.mailbox.work import Handler, Work
from agentsup.model.ids import AgentId
from agentsup.model.message import IN_STORE, MessageKind, NewMessage, text_parts
from agentsup.model.principal import OPERATOR
from agentsup.model.task import NewTask, RunKind
from agentsup.tasks import NewRun
from benchmarks.bare import BODY, BareTable
from benchmarks.figure import BenchContext, Figure, median, percentile
from benchmarks.workshop import AtOnce, EngineFleet, at_work, workshop

AGENTS = 20
CALLERS = 64
ROWS = 4
"""Of one life, at the least: the task, the message of its run, the claim, the end."""
WAITERS = 20
WORK_S = 0.02
"""What a run takes, so that its turn waits already when it ends."""


async def measure(boot_context: BenchContext) -> list[Figure]:
    """Rounds of a crowd of callers and bare commits, then turns that wait: one, and a crowd."""
    rounds, lives = boot_context.size(8, 1), boot_context.size(1_500, 8)
    rates: list[float] = []
    bare_rates: list[float] = []
    async with boot_context.fresh("tasks") as folder, workshop(folder, AGENTS) as shop:
        with BareTable(folder / "bare.db") as bare:
            async with at_work(shop, lambda name: AtOnce(shop)):
                await _lives_per_s(shop, min(lives, 200))
                for _ in range(rounds):
                    rates.append(await _lives_per_s(shop, lives))
                    batches_ms = await bare.commits_ms(
                        ROWS * max(1, lives // CALLERS), rows=CALLERS
                    )
                    bare_rates.append(CALLERS * max(1, lives // CALLERS) / sum(batches_ms) * 1_000)
            bare_ms = await bare.commits_ms(boot_context.size(200, 2))
        one_ms = await _wakes_ms(shop, agents=1, each=boot_context.size(300, 2))
        crowd_ms = await _wakes_ms(shop, agents=WAITERS, each=boot_context.size(30, 1))
    raw_is = "a bare commit of one row"
    return [
        Figure(
            "lives of tasks: created, run, done",
            median(rates),
            "/s",
            500,
            at_most=False,
            raw=median(bare_rates),
            raw_is=f"{ROWS} rows each, bare commits of {CALLERS} rows",
            note=f"{CALLERS} callers, {AGENTS} agents, worst round {min(rates):,.0f}",
        ),
        Figure(
            "agent_wait: end of the run → waiter goes on, p50",
            median(one_ms),
            "ms",
            raw=median(bare_ms),
            raw_is=raw_is,
        ),
        Figure(
            "agent_wait: end of the run → waiter goes on, p99",
            percentile(one_ms, 0.99),
            "ms",
            20,
            raw=percentile(bare_ms, 0.99),
            raw_is=raw_is + ", p99",
        ),
        Figure(
            f"the same, {WAITERS} turns waiting at once, p99",
            percentile(crowd_ms, 0.99),
            "ms",
            raw=percentile(bare_ms, 0.99),
            raw_is=raw_is + ", p99",
        ),
    ]


async def _lives_per_s(shop: EngineFleet, count: int) -> float:
    """Many callers at once, each with one task after another: created, run, its end heard of."""
    numbers: Iterator[int] = iter(range(count))

    async def caller() -> None:
        for number in numbers:
            new = NewTask(BODY, name=f"task {number}", agent=f"agent-{number % AGENTS}")
            task = await shop.hub.create(new, caller=OPERATOR)
            report = await shop.runs.wait(task.current_run, 60.0)
            if report.status != "done":
                raise RuntimeError(f"task {task.task_id} is {report.status}")

    began_s = perf_counter()
    async with asyncio.TaskGroup() as group:
        for _ in range(min(CALLERS, count)):
            group.create_task(caller())
    return count / (perf_counter() - began_s)


@dataclass(slots=True)
class _Waiting:
    """A turn starts a run of its own agent and waits for it, again and again; a run takes a while."""

    shop: EngineFleet
    times: int
    took_ms: list[float] = field(default_factory=list)

    async def handle(self, work: Work) -> None:
        if work.lease.message.kind is MessageKind.TASK:
            await asyncio.sleep(WORK_S)
        else:
            for number in range(self.times):
                await self._wait_once(work, number)
        await self.shop.finish(work)

    async def _wait_once(self, work: Work, number: int) -> None:
        message = work.lease.message
        new = NewRun(
            RunKind.SPAWN,
            message.agent_id,
            "count the sheep",
            message.principal,
            to_asker(message, waited=False),
            label=f"count {number}",
            parent=message,
            key=f"{message.message_id}:{number}",
        )
        run = await self.shop.database.write(self.shop.runs.start_tx, new)
        ended_s: list[float] = []

        def ended() -> None:
            ended_s.append(perf_counter())

        unlisten = self.shop.database.listen(f"done:{run.run_id}", ended)
        try:
            report = await self.shop.runs.wait(run.run_id, 60.0, asker=Asker(work.lease, work.slot))
        finally:
            unlisten()
        if report.status != "done" or not ended_s:
            raise RuntimeError(f"run {run.run_id} is {report.status}")
        self.took_ms.append((perf_counter() - ended_s[0]) * 1_000)


async def _wakes_ms(shop: EngineFleet, *, agents: int, each: int) -> list[float]:
    """From the moment at which the loop hears of the commit that ends a run until the turn that
    waited for it goes on; the agents' turns side by side. A turn has as many runs as it may."""
    most = 8
    found: list[float] = []

    def handler(name: str) -> Handler:
        return _Waiting(shop, min(most, each), found)

    async with at_work(shop, handler):

        async def turns(name: str) -> None:
            for _ in range(-(-each // most)):
                accepted = await shop.mailbox.queue.accept(_request(name))
                await shop.mailbox.queue.wait_done(accepted.message_id, 60.0)

        async with asyncio.TaskGroup() as group:
            for number in range(agents):
                group.create_task(turns(f"agent-{number}"))
    return found


def _request(name: str) -> NewMessage:
    return NewMessage(
        agent_id=AgentId(name),
        session_key="bench",
        parts=text_parts("wait for your runs"),
        principal=OPERATOR,
        deliver_to=IN_STORE,
        silent=True,
    )
