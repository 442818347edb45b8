"""What the pipeline adds to a tool's call: one that only reads, and one that is journaled, beside the
bare function and the two commits that a journal needs."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any

from agentsup.agents.roles.limits import RoleLimits
from agentsup.agents.turn import HostServices
from agentsup.agents.turn.calls import CallContext
from agentsup.agents.turn.engine_host import TurnHost
from agentsup.agents.workspace import ProcessTable
from agentsup.daemon.assembly.tool_pipeline import CallSettings, host_services
from agentsup.kit.clock import SystemClock
from agentsup.kit.entropy import SystemEntropy
from agentsup.mailbox.work import Work
from agentsup.mailbox.work.slots import SlotPool, TurnSlot
from agentsup.model.agent import AgentSpec
from agentsup.model.ids import AgentId
from agentsup.model.message import LaneName
from agentsup.model.tool import Effect, Safety, Tool, ToolContext
from benchmarks.bare import BareTable
from benchmarks.daemon_fixture import BenchDaemon, household
from benchmarks.figure import BenchContext, Figure, median, percentile
from benchmarks.peers import RULES, scripted
from benchmarks.timing import each_ms
from tests.support.mode_approver import ModeApprover

CALLS = 150
"""Under the most calls of a turn."""
COMMITS = 2


async def _nothing(context: ToolContext, args: dict[str, Any]) -> str:
    return "ok"


def _tool(name: str, effect: Effect) -> Tool:
    return Tool(name, "", {}, _nothing, effect, Safety.SAFE)


async def measure(boot_context: BenchContext) -> list[Figure]:
    """A host over the real store, called one time after the other within a leased message."""
    read_ms: list[float] = []
    written_ms: list[float] = []
    bare_ms: list[float] = []
    calls = boot_context.size(CALLS, 6)
    async with (
        boot_context.fresh("tools") as folder,
        household(folder / "home", scripted(1), files=RULES) as home,
    ):
        shared = _services(home)
        with BareTable(folder / "bare.db") as bare:
            for number in range(boot_context.size(5, 1)):
                host = await _host(home, shared, number)
                read_ms += await each_ms(calls // 2, partial(_call, host, "look"))
                written_ms += await each_ms(calls // 2, partial(_call, host, "touch"))
                commits_ms = await bare.commits_ms(COMMITS * (calls // 2))
                bare_ms += [
                    sum(commits_ms[at : at + COMMITS]) for at in range(0, len(commits_ms), COMMITS)
                ]
    raw_is = f"{COMMITS} bare commits of one row"
    return [
        Figure("a call that reads, p50", median(read_ms), "ms"),
        Figure("a call that reads, p99", percentile(read_ms, 0.99), "ms"),
        Figure(
            "a journaled call, p50", median(written_ms), "ms", raw=median(bare_ms), raw_is=raw_is
        ),
        Figure(
            "a journaled call, p99",
            percentile(written_ms, 0.99),
            "ms",
            raw=percentile(bare_ms, 0.99),
            raw_is=raw_is + ", p99",
        ),
    ]


async def _call(host: TurnHost, name: str, number: int) -> None:
    result = await host.call(name, {"number": number})
    if not result.ok:
        raise RuntimeError(result.text)


def _services(home: BenchDaemon) -> HostServices:
    clock = SystemClock()
    return host_services(
        home.database,
        clock,
        SystemEntropy(clock),
        ProcessTable(home.database, clock, "boot"),
        (_tool("look", Effect.READ), _tool("touch", Effect.BLIND)),
        CallSettings(ModeApprover()),
    )


async def _host(home: BenchDaemon, shared: HostServices, number: int) -> TurnHost:
    """A turn of an agent that no stack runs, so that nobody else takes its message."""
    agent_id = AgentId(f"agt_bench{number}")
    new = replace(home.message("agent-0", "x", session=f"tools{number}"), agent_id=agent_id)
    await home.daemon.mailbox.queue.accept(new)
    claimed = await home.daemon.mailbox.leases.claim(agent_id, "bench", dict.fromkeys(LaneName, 1))
    return TurnHost(
        shared,
        CallContext(
            work=Work(
                claimed.leases[0],
                TurnSlot(SlotPool(dict.fromkeys(LaneName, 1), _wake), LaneName.PEER),
            ),
            agent_id=agent_id,
            spec=AgentSpec("bench"),
            bounds=RoleLimits(),
            workspace=str(home.home),
            can_suspend=False,
        ),
    )


def _wake() -> None:
    """Nobody waits for a slot."""
