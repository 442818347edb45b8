"""P1, P2, P5, P6, P7, P8: work that is handed on is lost to nobody, starts nothing twice, ends with
whoever waits for it, stays within bounds, widens nothing, and gives people their time."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Coroutine, Iterable
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

import pytest

from agentsup.agents.delegation import fan_out
from agentsup.agents.delegation.service import DelegatingTurn, DelegationService
from agentsup.agents.delegation.tools import teams
from agentsup.agents.persona.context import AgentContext
from agentsup.agents.roles.limits import RoleLimits
from agentsup.agents.turn.handler import Bounding, TurnHandler
from agentsup.agents.turn.services import TurnServices
from agentsup.mailbox.lifecycle import claim
from agentsup.mailbox.queue import delegated, waits
from agentsup.mailbox.work.slots import TurnSlot
from agentsup.model.agent import AgentSpec
from agentsup.model.ids import AgentId
from agentsup.model.task import Run
from agentsup.store.transaction import Tx
from agentsup.tasks import lineage
from agentsup.tasks.reports import RunReport
from agentsup.tasks.runs import NewRun
from tests.component.proofs.house import EVA, ProofDaemon, agent
from tests.component.proofs.proof import Claim, Proof, Removal

T = TypeVar("T")
kept, once, stopped, bounded = Claim("P1"), Claim("P2"), Claim("P5"), Claim("P6")
within, patient = Claim("P7"), Claim("P8")

TEAM = {"team": "red", "capabilities": ["code"]}
ROUTE = {"name": "route_to_agent", "args": {"capability": "code", "prompt": "write"}}
FAN_OUT = {"name": "dispatch_team", "args": {"team": "red", "prompt": "go", "timeout_s": 10}}


def rule(match: str, *steps: dict[str, Any]) -> dict[str, Any]:
    return {"match": match, "steps": list(steps)}


def calls(match: str, *tools: dict[str, Any]) -> dict[str, Any]:
    return rule(match, *({"tool": tool} for tool in tools), {"say": "it said: $result"})


async def count_of_runs(house: ProofDaemon) -> int:
    return int((await house.sql("SELECT count(*) FROM runs"))[0][0])


async def answered(house: ProofDaemon) -> None:
    """A person answers the one question that is open."""
    ((question_id,),) = await house.sql("SELECT question_id FROM questions WHERE state = 'open'")
    await house.daemon.mailbox.answer(question_id, "here", EVA)


# -- proofs ----------------------------------------------------------------------------------------


ASKING = [
    agent("main"),
    agent(
        "ann",
        [
            calls("go", {"name": "dispatch_team", "args": {"team": "red", "prompt": "dig"}}),
            rule(r"(?s).*dug here.*", {"say": "it is done"}),
        ],
        tools=["*", "dispatch_team"],
    ),
    agent(
        "ben",
        [
            rule(
                "dig", {"question": {"text": "where?", "options": ["here"]}}, {"say": "dug $result"}
            )
        ],
        **TEAM,
    ),
]
"""ann waits for ben, and ben for a person."""


async def a_result_outlives_who_waited_for_it(home: Path) -> None:
    """A kill ends the wait, and by the time somebody answers nobody asks for the result again."""
    async with ProofDaemon(home, ASKING) as house:
        await house.say("ann", "go")
        await asyncio.sleep(5)
        await house.crash()
        await asyncio.sleep(3600)
        await house.open()
        await asyncio.sleep(60)
        await answered(house)
        await kept.comes(lambda: house.heard("it is done"), 120, "nobody heard of the result")


async def a_person_may_take_long_to_answer_a_member(home: Path) -> None:
    async with ProofDaemon(home, ASKING) as house:
        await house.say("ann", "go")
        await asyncio.sleep(3500)
        await answered(house)
        await patient.comes(
            lambda: house.heard("it said:") and house.heard("dug here"),
            60,
            "the turn of who waits for a member has run out of time",
        )


async def a_choice_outlives_a_crash(home: Path) -> None:
    """Killed while the chosen one is at work: then another one would have less to do."""
    slow = rule(".*", {"sleep": 5}, {"say": "done"})
    agents = [
        agent("main"),
        agent("ann", [calls("go", ROUTE)], tools=["route_to_agent"]),
        *(agent(name, [slow], **TEAM) for name in ("ben", "cat")),
    ]
    async with ProofDaemon(home, agents) as house:
        await house.say("ann", "go")
        await asyncio.sleep(2)
        await house.crash()
        await house.open()
        await once.comes(lambda: house.heard("done"), 120, "no answer came")
        count = await count_of_runs(house)
        once.holds(count == 1, f"one call set {count} to work")


async def who_hangs_holds_up_nobody(home: Path) -> None:
    """Two of three hang: the deadline is that of all together."""
    hang, quick = rule(".*", {"sleep": 200}), rule(".*", {"sleep": 1}, {"say": "quick"})
    agents = [
        agent("main"),
        agent("ann", [calls("go", FAN_OUT)], tools=["dispatch_team"]),
        *(agent(f"h{n}", [hang], **TEAM) for n in range(2)),
        agent("ben", [quick], **TEAM),
    ]
    async with ProofDaemon(home, agents) as house:
        await house.say("ann", "go")
        await bounded.comes(
            lambda: house.heard("quick"), 12, "the others waited for one that hangs"
        )


async def work_ends_with_whoever_waits_for_it(home: Path) -> None:
    hands_on = {"name": "delegate_task", "args": {"prompt": "dig", "agent": "ben"}}
    digs = rule("dig", {"sleep": 60}, {"effect": "dug"}, {"say": "dug"})
    agents = [agent("main"), agent("ann", [calls("go", hands_on)]), agent("ben", [digs])]
    async with ProofDaemon(home, agents) as house:
        await house.say("ann", "go")
        await asyncio.sleep(5)
        reply = await house.daemon.inbox.say(
            agent_name="ann",
            channel="console",
            conversation="c1",
            text="/stop",
            principal=EVA,
            external_id="stop",
        )
        assert reply.message is None
        await asyncio.sleep(100)
        made = [each for each in house.home.root.rglob("dug") if each.is_file()]
        stopped.holds(not made, "work went on that nobody waits for any more")


async def a_request_sets_off_so_many_and_no_more(home: Path) -> None:
    part = [{"name": "delegate_task", "args": {"prompt": f"part {n}"}} for n in range(12)]
    rules = [calls("go", *part), rule("part.*", {"say": "done"})]
    async with ProofDaemon(home, [agent("main"), agent("ann", rules)]) as house:
        await house.say("ann", "go")
        await bounded.comes(lambda: house.heard("it said:"), 60, "the turn did not end")
        count = await count_of_runs(house)
        bounded.holds(count == 10, f"one request set off {count} runs")


async def a_stand_in_may_use_what_both_may(home: Path) -> None:
    writes = {"name": "fs_write", "args": {"path": "made", "content": "x"}}
    hands_on = {"name": "delegate_task", "args": {"prompt": "write", "agent": "ben"}}
    agents = [
        agent("main"),
        agent("ann", [calls("go", hands_on)], tools=["delegate_task"]),
        agent("ben", [calls("write", writes)], tools=["fs_*"]),
    ]
    async with ProofDaemon(home, agents) as house:
        await house.say("ann", "go")
        await within.comes(lambda: house.heard("it said:"), 60, "the turn did not end")
        made = [each for each in house.home.root.rglob("made") if each.is_file()]
        within.holds(not made, "what the caller may not, another did for it")


# -- what is taken out -----------------------------------------------------------------------------


def waits_that_nobody_takes_back(patch: pytest.MonkeyPatch) -> None:
    def close_tx(tx: Tx, message_id: str, *, as_target: bool = True) -> None:
        tx.execute("DELETE FROM waits WHERE waiter_id = ?", (message_id,))
        if as_target:
            tx.execute("DELETE FROM waits WHERE target_id = ?", (message_id,))

    patch.setattr(waits, "close_tx", close_tx)
    patch.setattr(claim, "close_tx", close_tx)


def time_that_others_take_counted(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(TurnSlot, "watched", lambda self, rest, wake: nullcontext())


def a_key_for_each_attempt(patch: pytest.MonkeyPatch) -> None:
    start, numbers = DelegationService.start, itertools.count()

    async def keyed(
        self: DelegationService, caller: DelegatingTurn, new: NewRun, **more: Any
    ) -> Run:
        return await start(self, caller, replace(new, key=f"{new.key}:{next(numbers)}"), **more)

    patch.setattr(DelegationService, "start", keyed)


def one_wait_after_the_other(patch: pytest.MonkeyPatch) -> None:
    async def wait_all(work: Iterable[tuple[str, Coroutine[Any, Any, T]]]) -> list[T]:
        return [await each for _, each in work]

    for module in (fan_out, teams):
        patch.setattr(module, "wait_all", wait_all)


def work_that_nobody_ends(patch: pytest.MonkeyPatch) -> None:
    async def wait(
        self: DelegationService, caller: DelegatingTurn, run_id: str, timeout_s: float
    ) -> RunReport:
        return await self.s.runs.wait(run_id, timeout_s, asker=caller.asker)

    patch.setattr(DelegationService, "wait", wait)
    patch.setattr(delegated, "ending_with", lambda reader, messages, **more: [])


def runs_that_nobody_counts(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(lineage, "check_count", lambda count: None)


def bounds_of_the_other_alone(patch: pytest.MonkeyPatch) -> None:
    original = TurnHandler.__init__

    def init(
        self: TurnHandler,
        services: TurnServices,
        agent_id: AgentId,
        agent: AgentContext,
        bounds: Bounding,
    ) -> None:
        async def own(spec: AgentSpec) -> RoleLimits:
            return replace(await bounds(spec), callers=())

        original(self, services, agent_id, agent, own)

    patch.setattr(TurnHandler, "__init__", init)


PROOFS = (
    Proof(
        "a result outlives who waited for it",
        "P1",
        a_result_outlives_who_waited_for_it,
        Removal("waits that nobody takes back", waits_that_nobody_takes_back),
    ),
    Proof(
        "a person may take long to answer a member",
        "P8",
        a_person_may_take_long_to_answer_a_member,
        Removal("time that others take counted", time_that_others_take_counted),
    ),
    Proof(
        "a choice outlives a crash",
        "P2",
        a_choice_outlives_a_crash,
        Removal("a key for each attempt", a_key_for_each_attempt),
    ),
    Proof(
        "who hangs holds up nobody",
        "P6",
        who_hangs_holds_up_nobody,
        Removal("one wait after the other", one_wait_after_the_other),
    ),
    Proof(
        "work ends with whoever waits for it",
        "P5",
        work_ends_with_whoever_waits_for_it,
        Removal("work that nobody ends", work_that_nobody_ends),
    ),
    Proof(
        "a request sets off so many and no more",
        "P6",
        a_request_sets_off_so_many_and_no_more,
        Removal("runs that nobody counts", runs_that_nobody_counts),
    ),
    Proof(
        "a persona may use what both may",
        "P7",
        a_stand_in_may_use_what_both_may,
        Removal("bounds of the other alone", bounds_of_the_other_alone),
    ),
)
