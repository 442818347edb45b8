"""What background work costs the store: the transactions and reads of a task's life and of a wait."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from agentsup.mailbox.mail import BusRequest
from agentsup.model.principal import OPERATOR
from agentsup.model.task import NewTask, Task
from agentsup.tasks import RunReport
from tests.component.agents.handing_on import call, say
from tests.component.agents.test_turn_costs import counted, settled
from tests.component.conftest import Open
from tests.support.virtual_daemon import VirtualDaemon, agent

pytestmark = pytest.mark.virtual

RULES = (
    call("^spawn$", "agent_spawn", instruction="count", spawn_reason="there are many"),
    call("^wait (.*)$", "agent_wait", agent_id="$1"),
    say("^count$", "twelve", after_s=2),
    say(".*", "ok"),
)
CREATED = ["tasks.create", "mailbox.claim", "turn.complete"]


async def created(house: VirtualDaemon, prompt: str = "hello", **more: Any) -> Task:
    assert house.daemon.work.hub is not None
    new = NewTask(prompt, agent="ann", **more)
    return await house.daemon.work.hub.create(new, caller=OPERATOR)


async def ended(house: VirtualDaemon, task: Task) -> RunReport:
    return await house.daemon.work.runs.wait(task.current_run, 600)


async def told(house: VirtualDaemon, text: str) -> str:
    request = BusRequest(to="ann", text=text, silent=True)
    return (await house.daemon.bus.send(request, caller=OPERATOR)).text


async def test_a_life_of_a_task_is_three_transactions_and_one_read(household: Open) -> None:
    house = await household(agent("ann", *RULES))
    await ended(house, await created(house))
    await settled(house)
    with counted(house) as (writes, reads):
        task = await created(house)
        await settled(house)
    assert writes == CREATED
    assert reads == ["turn.start"]
    assert (await ended(house, task)).run.result == "ok"


async def test_whoever_waits_for_a_task_adds_one_read(household: Open) -> None:
    house = await household(agent("ann", *RULES))
    await ended(house, await created(house))
    await settled(house)
    with counted(house) as (writes, reads):
        report = await ended(house, await created(house, "count"))
        await settled(house)
    assert (report.status, report.run.outcome, report.run.result) == ("done", "ok", "twelve")
    assert report.run.finished_at is not None
    assert writes == CREATED
    assert sorted(reads) == ["runs.report", "turn.start"]


async def test_a_turn_that_waits_for_a_run_adds_one_transaction(household: Open) -> None:
    house = await household(agent("ann", *RULES, tools=["agent_*"]))
    await told(house, "spawn")
    run_id = str((await house.sql("SELECT run_id FROM runs"))[0][0])
    with counted(house) as (writes, reads):
        said = await told(house, f"wait {run_id}")
        await settled(house)
    assert "twelve" in said
    turn = ["mailbox.accept", "mailbox.claim", "turn.complete"]
    of_the_run = ["turn.complete"]
    assert sorted(writes) == sorted([*turn, *of_the_run, "runs.wait"])
    assert sorted(reads) == ["delegation.caller", "delegation.known", "turn.start"]


async def test_several_callers_hear_of_one_end_by_its_commit(household: Open) -> None:
    house = await household(agent("ann", *RULES))
    await ended(house, await created(house))
    await settled(house)
    with counted(house) as (writes, reads):
        task = await created(house, "count")
        reports = await asyncio.gather(*(ended(house, task) for _ in range(3)))
        await settled(house)
    assert {report.run.result for report in reports} == {"twelve"}
    assert writes == CREATED
    assert sorted(reads) == [*["runs.report"] * 3, "turn.start"]
