"""Work for others: given to whoever of a role is free, told to many at once, and routed by ability."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable
from time import perf_counter

from agentsup.agents.delegation import Router
from agentsup.agents.delegation.ranking import (
    Candidate,
    Candidates,
    Match,
    RouteQuery,
    RouteSnapshot,
    best,
)
from agentsup.agents.delegation.service import DelegatingTurn, DelegationServices
from agentsup.agents.mcp import AgentServers
from agentsup.agents.pipeline import Hooks
from agentsup.agents.roles import LiveRoleRegistry
from agentsup.kit.clock import SystemClock
from agentsup.mailbox.mail import Asker, new_mail
from agentsup.mailbox.work.slots import SlotPool
from agentsup.model.agent import AgentSpec
from agentsup.model.ids import AgentId
from agentsup.model.message import IN_STORE, LaneName, NewMessage, text_parts
from agentsup.model.principal import OPERATOR
from benchmarks.bare import BODY, BareTable
from benchmarks.figure import BenchContext, Figure, median
from benchmarks.recovery import fill
from benchmarks.workshop import ABILITIES, AtOnce, EngineFleet, at_work, workshop

AGENTS = 100
STORED = 100_000
CALLERS = 16
FAN_OUTS = (1, 10, 50)
STAGES = 3
"""Commits of a letter: stored, leased, ended."""
A_TURN = 8
"""Routes of one turn; it may have ten."""
DECISIONS = 20_000

Act = Callable[[int], Awaitable[object]]


async def measure(boot_context: BenchContext) -> list[Figure]:
    """Each kind in turns with its bare commits, over one store that has seen much."""
    rounds, each = boot_context.size(6, 1), boot_context.size(400, 16)
    agents = boot_context.size(AGENTS, 10)
    assigned: list[float] = []
    routed: list[float] = []
    bare_rates: list[float] = []
    async with boot_context.fresh("dispatch") as folder:
        await fill(folder / "state.db", boot_context.size(STORED, 100), still_open=0)
        async with workshop(folder, agents) as shop:
            with BareTable(folder / "bare.db") as bare:
                async with at_work(shop, lambda name: AtOnce(shop)):
                    fan_outs = [
                        await _fan_out(shop, bare, min(size, agents), boot_context.size(20, 1))
                        for size in FAN_OUTS
                    ]
                route = await _router(shop)
                for number in range(rounds):
                    assigned.append(await _assigns_per_s(shop, number * each, each))
                    routed.append(await _per_s(each, await route(number, each)))
                    batches_ms = await bare.commits_ms(each // CALLERS, rows=CALLERS)
                    bare_rates.append(each / sum(batches_ms) * 1_000)
    raw_is = f"rows/s, bare commits of {CALLERS} rows"
    return [
        Figure(
            f"assigns over {AGENTS} agents with 100k stored messages",
            median(assigned),
            "/s",
            limit=2_000,
            at_most=False,
            raw=median(bare_rates),
            raw_is=raw_is,
            note=f"{CALLERS} callers, worst round {min(assigned):,.0f}",
        ),
        Figure(
            f"routes chosen among {AGENTS} agents",
            median(routed),
            "/s",
            limit=2_000,
            at_most=False,
            raw=median(bare_rates),
            raw_is=raw_is,
            note=f"{CALLERS} callers, worst round {min(routed):,.0f}",
        ),
        *_decisions(agents, boot_context.size(DECISIONS, 100)),
        *fan_outs,
    ]


def _decisions(agents: int, count: int) -> list[Figure]:
    """Choices alone: nothing is recorded, and no time is shared with anything."""
    candidates = Candidates.of(
        Candidate(name, name, (ABILITIES[n % 5], ABILITIES[(n + 1) % 5]))
        for n, name in enumerate(f"agent-{n}" for n in range(agents))
    )
    loads = {each.agent_id: 1 + n % 7 for n, each in enumerate(candidates.agents)}
    queries = [
        RouteQuery.of((ABILITIES[n % 5], ABILITIES[(n + 2) % 5]), Match.ANY, asker=f"agent-{n}")
        for n in range(5)
    ]
    still = RouteSnapshot.of(candidates, loads, {})

    def frozen(number: int) -> object:
        return best(queries[number % 5], still)

    def moving(number: int) -> object:
        chosen = best(queries[number % 5], RouteSnapshot.of(candidates, loads, {}))
        assert chosen is not None
        loads[chosen.agent_id] += 1
        return chosen

    def plain(number: int) -> object:
        return min(loads.items(), key=lambda each: each[1])

    rates = []
    for act in (frozen, moving, plain):
        began_s = perf_counter()
        for number in range(count):
            act(number)
        rates.append(count / (perf_counter() - began_s))
    name, raw_is = f"route decisions among {AGENTS} agents", "the least of as many loads"
    return [
        Figure(
            f"{name}, on a snapshot",
            rates[0],
            "/s",
            limit=50_000,
            at_most=False,
            raw=rates[2],
            raw_is=raw_is,
        ),
        Figure(f"{name}, each with its own snapshot", rates[1], "/s", raw=rates[2], raw_is=raw_is),
    ]


async def _per_s(count: int, act: Act) -> float:
    """Sixteen callers at once."""
    numbers = iter(range(count))

    async def caller() -> None:
        for number in numbers:
            await act(number)

    began_s = perf_counter()
    async with asyncio.TaskGroup() as group:
        for _ in range(CALLERS):
            group.create_task(caller())
    return count / (perf_counter() - began_s)


async def _assigns_per_s(shop: EngineFleet, first: int, count: int) -> float:
    """Nobody works meanwhile, so that the loads are known: each agent's is as any other's."""
    given: Counter[str] = Counter()

    async def assign(number: int) -> None:
        letter = new_mail(f"{first + number} {BODY}", silent=True)
        sent = await shop.dispatcher.assign(letter, role="worker", caller=OPERATOR)
        given[sent.agent] += 1

    rate = await _per_s(count, assign)
    loads = [given[name] for name in shop.directory.names()]
    if max(loads) - min(loads) > 2:
        raise RuntimeError(f"the work is spread unevenly: {sorted(loads)}")
    return rate


async def _fan_out(shop: EngineFleet, bare: BareTable, size: int, times: int) -> Figure:
    """One letter to so many, until each of them has ended its copy."""
    took_ms: list[float] = []
    bare_ms: list[float] = []
    for number in range(times):
        began_s = perf_counter()
        told = await shop.dispatcher.broadcast(
            new_mail(f"{number} {BODY}", silent=True),
            names=shop.directory.names()[:size],
            caller=OPERATOR,
        )
        async with asyncio.TaskGroup() as group:
            for copy in told.copies:
                group.create_task(shop.mailbox.queue.wait_done(copy.message_id, 60.0))
        took_ms.append((perf_counter() - began_s) * 1_000)
        bare_ms.append(sum(await bare.commits_ms(STAGES, rows=size)))
    return Figure(
        f"fan-out to {size}: told, worked on, ended",
        median(took_ms),
        "ms",
        raw=median(bare_ms),
        raw_is=f"{STAGES} bare commits of {size} rows",
    )


class _Unasked:
    """Routing asks the directory alone."""

    def spec(self, agent_id: str) -> AgentSpec | None:
        return None

    def is_disabled(self, agent_id: str) -> bool:
        return False

    def name_of(self, agent_id: str) -> str:
        return agent_id

    def servers(self, agent_id: str) -> AgentServers | None:
        return None


async def _router(shop: EngineFleet) -> Callable[[int, int], Awaitable[Act]]:
    """Routing as turns of an agent do it: ranked, with the reasons on record."""
    router = Router(
        DelegationServices(
            runs=shop.runs,
            database=shop.database,
            directory=shop.directory,
            others=_Unasked(),
            roles=_unasked_roles,
            hooks=_unasked_hooks,
            fan_out=lambda: 10,
            loads=shop.mailbox.context.loads,
        ),
        SystemClock(),
    )

    async def of_round(number: int, count: int) -> Act:
        turns = [await _caller(shop, f"{number}-{turn}") for turn in range(-(-count // A_TURN))]

        def choose(number: int) -> Awaitable[object]:
            needs = (ABILITIES[number % 5], ABILITIES[(number + 2) % 5])
            turn, call = divmod(number, A_TURN)
            return router.choose(turns[turn], f"call-{call}", needs, Match.ANY)

        return choose

    return of_round


async def _caller(shop: EngineFleet, session: str) -> DelegatingTurn:
    """A turn of an agent that works on nothing else."""
    spec = AgentSpec("router")
    new = NewMessage(
        agent_id=AgentId("router"),
        session_key=session,
        parts=text_parts("route it"),
        principal=OPERATOR,
        deliver_to=IN_STORE,
        silent=True,
    )
    await shop.mailbox.queue.accept(new)
    free = dict.fromkeys(LaneName, 1)
    (lease,) = (await shop.mailbox.leases.claim(new.agent_id, "bench", free)).leases
    slot = SlotPool(free, _wake).take(lease.message.lane)
    return DelegatingTurn(Asker(lease, slot), spec, spec, "", OPERATOR, "call")


def _unasked_roles() -> LiveRoleRegistry:
    raise RuntimeError("routing asks for no role")


def _unasked_hooks() -> Hooks:
    raise RuntimeError("routing asks no hook")


def _wake() -> None:
    """Nobody waits for a slot."""
