"""Handing work on as programs do it, over MCP; and what a task may cost."""

from __future__ import annotations

import json

import pytest

from agentsup.model.principal import OPERATOR
from agentsup.model.task import NewTask, TaskState
from tests.component.agents.handing_on import say
from tests.component.agents.shared import hub_of
from tests.component.agents.test_served import play
from tests.component.conftest import Open
from tests.support.virtual_daemon import agent

pytestmark = pytest.mark.virtual


async def test_a_program_hands_work_on_over_mcp(household: Open) -> None:
    house = await household(
        agent("ann", tools=["delegate_task", "task_create", "task_status", "dispatch_team"]),
        agent("ben", say(".*", "by ben"), team="t"),
        agent("cat", say(".*", "by cat"), team="t"),
    )
    program = play(
        house,
        ("delegate_task", {"prompt": "sum it", "agent": "ben", "label": "sums"}),
        ("dispatch_team", {"team": "t", "prompt": "sum it"}),
        ("task_create", {"prompt": "sum it", "agent": "cat"}),
        ("delegate_task", {"prompt": "sum it", "agent": "nobody"}),
    )
    await house.ask("ann", "go")
    assert {"delegate_task", "task_create", "task_status", "dispatch_team"} <= set(program.offered)
    assert "ask_parent" not in program.offered  # it works on no run
    assert "mailbox_send" not in program.offered  # nobody named it
    assert all(leave.allowed for leave in program.leave)
    in_place, team, task, refused = program.results
    assert (in_place.ok, in_place.text) == (True, "[sums]\n\nby ben")
    assert team.ok
    assert all(text in team.text for text in ("by ben", "by cat"))
    assert json.loads(task.text)["status"] in ("queued", "running")
    assert not refused.ok
    assert "nobody" in refused.text


async def test_a_task_costs_no_more_than_its_bound_over_all_its_runs(household: Open) -> None:
    used = {"input": 10, "output": 10, "usd": 0.6}
    house = await household(
        agent("ann", {"match": ".*", "steps": [{"usage": used}, {"say": "paid"}]})
    )
    hub = hub_of(house)
    task = await hub.create(NewTask("one", agent="ann", max_usd=1.0), caller=OPERATOR)
    states, errors = [], []
    for _ in range(4):
        await house.daemon.mailbox.queue.wait_done(task.current_run, 60)
        task = await hub.get(task.task_id, caller=OPERATOR)
        states.append(task.state)
        errors.append(task.error_code)
        task = await hub.resume(task.task_id, "again", caller=OPERATOR)
    assert states[0] is TaskState.DONE
    assert states[-1] is TaskState.FAILED, (states, errors)
    assert errors[-1] == "budget_exceeded"
    ((spent,),) = await house.sql("SELECT sum(usd) FROM usage")
    assert spent <= 1.2 + 1e-9


async def test_what_a_bounded_task_hands_on_is_within_its_bound(household: Open) -> None:
    used = {"input": 10, "output": 10, "usd": 0.6}
    parts = [{"tool": {"name": "delegate_task", "args": {"prompt": f"dig {n}"}}} for n in range(4)]
    house = await household(
        agent(
            "ann",
            {"match": "all of it", "steps": [*parts, {"say": "$result"}]},
            {"match": "dig.*", "steps": [{"usage": used}, {"say": "dug"}]},
        )
    )
    hub = hub_of(house)
    task = await hub.create(NewTask("all of it", agent="ann", max_usd=1.0), caller=OPERATOR)
    await house.daemon.mailbox.queue.wait_done(task.current_run, 60)
    ended = await house.sql(
        "SELECT error_code FROM messages WHERE in_reply_to = ? ORDER BY seq", task.current_run
    )
    codes = [code for (code,) in ended]
    assert (codes[0], codes[-1]) == ("", "budget_exceeded"), codes
    ((spent,),) = await house.sql("SELECT sum(usd) FROM usage")
    assert spent <= 1.2 + 1e-9
