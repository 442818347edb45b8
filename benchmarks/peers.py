"""One agent asks another and waits: the bus's ``send``, with an engine that costs nothing."""

from __future__ import annotations

from agentsup.mailbox.mail import BusRequest
from agentsup.model.principal import Principal, PrincipalKind
from benchmarks.bare import BareTable
from benchmarks.daemon_fixture import household
from benchmarks.figure import BenchContext, Figure, median, percentile
from benchmarks.timing import each_ms

RULES = {"rules.yaml": "- match: '(?s).*'\n  steps:\n    - say: ok\n"}
COMMITS = 4
"""Accept, claim, begin of the segment, completion."""


def scripted(count: int) -> list[dict[str, object]]:
    """Agents that answer at once."""
    return [
        {
            "name": f"agent-{n}",
            "engine": "scripted",
            "engine_options": {"script": "file:rules.yaml"},
        }
        for n in range(count)
    ]


async def measure(boot_context: BenchContext) -> list[Figure]:
    """Rounds of questions between two agents and as many bare commits."""
    asked_ms: list[float] = []
    bare_ms: list[float] = []
    async with (
        boot_context.fresh("peers") as folder,
        household(folder / "home", scripted(2), files=RULES) as home,
    ):
        asker = Principal(PrincipalKind.AGENT, home.id_of("agent-0"), "agent-0")

        async def ask(number: int) -> None:
            request = BusRequest(to="agent-1", text=f"question {number}")
            reply = await home.daemon.bus.send(request, caller=asker, timeout_s=30.0)
            if reply.text != "ok":
                raise RuntimeError(f"a wrong answer: {reply}")

        with BareTable(folder / "bare.db") as bare:
            await each_ms(5, ask)
            for _ in range(boot_context.size(10, 1)):
                asked_ms += await each_ms(boot_context.size(60, 3), ask)
                commits_ms = await bare.commits_ms(COMMITS * boot_context.size(60, 3))
                bare_ms += [
                    sum(commits_ms[at : at + COMMITS]) for at in range(0, len(commits_ms), COMMITS)
                ]
    raw_is = f"{COMMITS} bare commits of one row"
    return [
        Figure(
            "agent → agent and back, p50",
            median(asked_ms),
            "ms",
            limit=3.5,
            raw=median(bare_ms),
            raw_is=raw_is,
        ),
        Figure(
            "agent → agent and back, p99",
            percentile(asked_ms, 0.99),
            "ms",
            raw=percentile(bare_ms, 0.99),
            raw_is=raw_is + ", p99",
        ),
    ]
