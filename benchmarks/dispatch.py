"""Work for others: given to whoever of a role is free, told to many at once, and routed by ability."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable
from time import perf_counter

from agentsup.agents.delegation.desk import Caller, DelegationServices
from agentsup.agents.delegation.routes import Router
from agentsup.agents.mcp.servers import AgentServers
from agentsup.agents.pipeline.hooks import Hooks
from agentsup.agents.roles.book import RoleShelf
from agentsup.kit.clock import SystemClock
from agentsup.mailbox.bus import Asker
from agentsup.mailbox.letters import Letter
from agentsup.mailbox.slots import Slots
from agentsup.model.agent import AgentSpec
from agentsup.model.ids import AgentId
from agentsup.model.message import IN_STORE, Lane, NewMessage, text_parts
from agentsup.model.principal import OPERATOR
from agentsup.teams.routing import Match
from benchmarks.bare import BODY, BareTable
from benchmarks.figure import Figure, Ground, median
from benchmarks.recovery import fill
from benchmarks.workshop import AtOnce, Workshop, at_work, workshop

AGENTS = 100
STORED = 100_000
CALLERS = 16
FAN_OUTS = (1, 10, 50)
STAGES = 3
"""Commits of a letter: stored, leased, ended."""
A_TURN = 8
"""Routes of one turn; it may have ten."""
ABILITIES = ("count", "read", "write", "paint", "sing")

Act = Callable[[int], Awaitable[object]]


async def measure(ground: Ground) -> list[Figure]:
    """Each kind in turns with its bare commits, over one store that has seen much."""
    rounds, each = ground.size(6, 1), ground.size(400, 16)
    agents = ground.size(AGENTS, 10)
    assigned: list[float] = []
    routed: list[float] = []
    bare_rates: list[float] = []
    async with ground.fresh("dispatch") as folder:
        await fill(folder / "state.db", ground.size(STORED, 100), still_open=0)
        async with workshop(folder, agents) as shop:
            with BareTable(folder / "bare.db") as bare:
                async with at_work(shop, lambda name: AtOnce(shop.mailbox)):
                    fan_outs = [
                        await _fan_out(shop, bare, min(size, agents), ground.size(20, 1))
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
            raw=median(bare_rates),
            raw_is=raw_is,
            note=f"{CALLERS} callers, worst round {min(assigned):,.0f}",
        ),
        Figure(
            f"routes chosen among {AGENTS} agents",
            median(routed),
            "/s",
            raw=median(bare_rates),
            raw_is=raw_is,
            note=f"{CALLERS} callers, worst round {min(routed):,.0f}",
        ),
        *fan_outs,
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


async def _assigns_per_s(shop: Workshop, first: int, count: int) -> float:
    """Nobody works meanwhile, so that the loads are known: each agent's is as any other's."""
    given: Counter[str] = Counter()

    async def assign(number: int) -> None:
        letter = Letter(f"{first + number} {BODY}", silent=True)
        sent = await shop.dispatcher.assign(letter, role="worker", caller=OPERATOR)
        given[sent.agent] += 1

    rate = await _per_s(count, assign)
    loads = [given[name] for name in shop.directory.names()]
    if max(loads) - min(loads) > 2:
        raise RuntimeError(f"the work is spread unevenly: {sorted(loads)}")
    return rate


async def _fan_out(shop: Workshop, bare: BareTable, size: int, times: int) -> Figure:
    """One letter to so many, until each of them has ended its copy."""
    took_ms: list[float] = []
    bare_ms: list[float] = []
    for number in range(times):
        began_s = perf_counter()
        told = await shop.dispatcher.broadcast(
            Letter(f"{number} {BODY}", silent=True),
            names=shop.directory.names()[:size],
            caller=OPERATOR,
        )
        async with asyncio.TaskGroup() as group:
            for copy in told.copies:
                group.create_task(shop.mailbox.wait_done(copy.message_id, 60.0))
        took_ms.append((perf_counter() - began_s) * 1_000)
        bare_ms.append(sum(await bare.commits_ms(STAGES, rows=size)))
    return Figure(
        f"fan-out to {size}: told, worked on, ended",
        median(took_ms),
        "ms",
        raw=median(bare_ms),
        raw_is=f"{STAGES} bare commits of {size} rows",
    )


class _Declared:
    """Agents with two abilities each; nobody else is asked about."""

    def __init__(self, names: tuple[str, ...]) -> None:
        self._specs = {
            name: AgentSpec(name, capabilities=(ABILITIES[n % 5], ABILITIES[(n + 1) % 5]))
            for n, name in enumerate(names)
        }

    def spec(self, agent_id: str) -> AgentSpec | None:
        return self._specs.get(agent_id)

    def is_kept_down(self, agent_id: str) -> bool:
        return False

    def name_of(self, agent_id: str) -> str:
        return agent_id

    def servers(self, agent_id: str) -> AgentServers | None:
        return None

    def asker(self, message_id: str) -> Asker | None:
        return None


async def _router(shop: Workshop) -> Callable[[int, int], Awaitable[Act]]:
    """Routing as turns of an agent do it: ranked, with the reasons on record."""
    declared = _Declared(shop.directory.names())
    router = Router(
        DelegationServices(
            runs=shop.runs,
            database=shop.database,
            directory=shop.directory,
            askers=declared,
            others=declared,
            roles=_unasked_roles,
            hooks=_unasked_hooks,
            fan_out=lambda: 10,
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


async def _caller(shop: Workshop, session: str) -> Caller:
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
    await shop.mailbox.accept(new)
    free = dict.fromkeys(Lane, 1)
    (lease,) = (await shop.mailbox.claim(new.agent_id, "bench", free)).leases
    slot = Slots(free, _wake).take(lease.message.lane)
    return Caller(Asker(lease, slot), spec, spec, "", OPERATOR, "call")


def _unasked_roles() -> RoleShelf:
    raise RuntimeError("routing asks for no role")


def _unasked_hooks() -> Hooks:
    raise RuntimeError("routing asks no hook")


def _wake() -> None:
    """Nobody waits for a slot."""
