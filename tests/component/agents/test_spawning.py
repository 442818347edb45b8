"""Runs that an agent looks after: started, waited for, told, stopped; and what it hears of its
tasks."""

from __future__ import annotations

import json
from typing import Any

import pytest

from agentsup.model.hook import (
    Allow,
    Deny,
    Phase,
    SubagentFacts,
    SubagentGate,
    SubagentWatch,
    Verdict,
)
from tests.component.agents.handing_on import call, document, runs, said, say
from tests.component.conftest import Open
from tests.support.virtual_daemon import VirtualDaemon, agent

pytestmark = pytest.mark.virtual

OWN = ["agent_*", "task_*", "delegate_task", "fs_*"]


def by_id(match: str, name: str, **args: Any) -> dict[str, Any]:
    """A call about the run whose id follows ``match``."""
    return call(f"{match} (.*)", name, **{"agent_id": "$1", **args})


ANN = (
    call("spawn", "agent_spawn", instruction="dig", agent="ben", spawn_reason="deep"),
    by_id("wait", "agent_wait", timeout=5),
    by_id("look", "agent_wait", timeout=0),
    by_id("long", "agent_wait"),
    by_id("stop", "agent_stop"),
    by_id("steer", "agent_steer", text="hurry"),
    call("status (.*)", "task_status", task_id="$1"),
    call("result (.*)", "task_result", task_id="$1"),
    call("cancel (.*)", "task_cancel", task_id="$1"),
    call("logs (.*)", "task_logs", task_id="$1"),
    say("dug", "ben has dug"),
)


async def test_a_run_is_started_looked_at_and_waited_for(household: Open) -> None:
    house = await household(
        agent("ann", *ANN, tools=OWN), agent("ben", say("dig", "dug", after_s=30))
    )
    spawned = await document(house, "ann", "spawn")
    run_id = spawned["agent_id"]
    assert spawned == {
        "agent_id": run_id,
        "status": "spawned",
        "requested_agent": "ben",
        "spawn_reason": "deep",
    }
    looked = await document(house, "ann", f"look {run_id}")
    assert looked == {"agent_id": run_id, "status": "running", "timeout": True}
    began_s = house.clock.monotonic()
    assert (await document(house, "ann", f"wait {run_id}"))["timeout"] is True
    assert 5 <= house.clock.monotonic() - began_s < 6
    assert (await document(house, "ann", f"status {run_id}"))["status"] == "running"
    logged = (await said(house, "ann", f"logs {run_id}")).splitlines()
    assert [line.split()[1] for line in logged] == [
        "message.accepted",
        "run.started",
        "message.started",
    ]
    assert "not found" in await said(house, "ann", "logs msg_nothing")
    ended = await document(house, "ann", f"long {run_id}")
    assert ended == {"agent_id": run_id, "status": "completed", "result": "dug", "error": ""}
    assert await document(house, "ann", f"look {run_id}") == ended
    assert await said(house, "ann", f"result {run_id}") == "dug"
    # What was read is not told once more.
    await house.clock.sleep(10)
    assert "ben has dug" not in house.texts()


async def test_a_run_that_is_stopped_is_gone_and_stays_so(household: Open) -> None:
    house = await household(
        agent("ann", *ANN, tools=OWN), agent("ben", say("dig", "dug", after_s=30))
    )
    run_id = (await document(house, "ann", "spawn"))["agent_id"]
    assert await document(house, "ann", f"stop {run_id}") == {
        "agent_id": run_id,
        "status": "cancelled",
    }
    assert await said(house, "ann", f"stop {run_id}") == f"run {run_id} is already cancelled"
    ended = await document(house, "ann", f"look {run_id}")
    assert ended["error"] == "it was stopped"
    await house.clock.sleep(60)
    assert "ben has dug" not in house.texts()
    assert not any("dug" in text for text in house.texts())


async def test_other_conversations_runs_are_not_found(household: Open) -> None:
    house = await household(
        agent("ann", *ANN, tools=OWN), agent("ben", say("dig", "dug", after_s=30))
    )
    run_id = (await document(house, "ann", "spawn"))["agent_id"]
    for text in (f"look {run_id}", f"stop {run_id}", f"steer {run_id}", f"status {run_id}"):
        message = await house.ask("ann", text, conversation="another")
        assert message.result_text == f"run {run_id} not found"
    assert await said(house, "ann", "look msg_none") == "run msg_none not found"


async def test_a_run_that_waits_for_a_person_is_reported_and_not_failed(household: Open) -> None:
    asking = {"match": "dig", "steps": [{"question": {"text": "where?"}}, {"say": "$result"}]}
    house = await household(agent("ann", *ANN, tools=OWN), agent("ben", asking))
    run_id = (await document(house, "ann", "spawn"))["agent_id"]
    found = await document(house, "ann", f"wait {run_id}")
    assert (found["status"], found["timeout"]) == ("running", True)
    assert found["runtime_condition"] == "blocked_waiting_message"
    assert found["blocked_reason"] == "where?"
    assert await house.state_of(run_id) == "parked"


async def test_a_run_may_use_only_what_it_was_given(household: Open) -> None:
    def dig(*allowed: str) -> dict[str, Any]:
        return call(
            f"only {' '.join(allowed)}",
            "agent_spawn",
            instruction="dig",
            agent="ben",
            allowed_tools=list(allowed),
        )

    writing = call("dig", "fs_write", path="made.txt", content="x")
    house = await household(
        agent("ann", dig("fs_list"), dig("exec"), *ANN, tools=OWN),
        agent("ben", writing, tools=["fs_*"]),
    )
    refused = await said(house, "ann", "only exec")
    assert refused == "exec is beyond what ben may use"
    assert await runs(house) == []
    run_id = (await document(house, "ann", "only fs_list"))["agent_id"]
    ended = await document(house, "ann", f"long {run_id}")
    assert "fs_write is not among the tools of whoever started the run" in ended["result"]


async def test_what_it_is_told_is_behind_its_next_result(household: Open) -> None:
    look = {"tool": {"name": "fs_list", "args": {"path": "."}}}
    digging = {"match": "dig", "steps": [{"sleep": 20}, look, {"say": "$result"}]}
    house = await household(agent("ann", *ANN, tools=OWN), agent("ben", digging))
    run_id = (await document(house, "ann", "spawn"))["agent_id"]
    assert (await document(house, "ann", f"steer {run_id}"))["told"] is True
    ended = await document(house, "ann", f"long {run_id}")
    assert ended["result"].endswith("[Note from ann] hurry")


async def test_hooks_may_refuse_a_run_and_hear_of_its_end(household: Open) -> None:
    house = await household(
        agent(
            "ann",
            *ANN,
            call("no", "delegate_task", prompt="evil", agent="ben"),
            call("task", "task_create", prompt="dig", agent="ben"),
            call("evil task", "task_create", prompt="evil"),
            tools=OWN,
        ),
        agent("ben", say("dig", "dug", after_s=5)),
    )
    heard: list[SubagentFacts] = []

    async def gate(facts: SubagentFacts) -> Verdict:
        return Deny("not evil things") if facts.instruction == "evil" else Allow()

    hooks = house.daemon.calls.pipeline.hooks
    hooks.add(SubagentGate(name="g", phase=Phase.SUBAGENT_SPAWNING, about="", run=gate))
    hooks.add(SubagentWatch(name="w", phase=Phase.SUBAGENT_ENDED, about="", run=heard.append))
    assert "can't be handed on: not evil things" in await said(house, "ann", "no")
    assert await runs(house) == []
    run_id = (await document(house, "ann", "spawn"))["agent_id"]
    assert heard == []
    await house.until(lambda: len(heard) == 1)
    assert (heard[0].run_id, heard[0].outcome, heard[0].instruction) == (run_id, "done", "dig")
    await said(house, "ann", "task")
    await house.until(lambda: len(heard) == 2)
    assert "not evil things" in await said(house, "ann", "evil task")


@pytest.mark.parametrize("kill", [True, False])
@pytest.mark.parametrize("tool", ["agent_spawn", "delegate_task"])
async def test_hooks_hear_once_of_a_run_that_an_earlier_life_has_begun(
    household: Open, tool: str, kill: bool
) -> None:
    named = {"instruction": "dig"} if tool == "agent_spawn" else {"prompt": "dig"}
    bound = {"allowed_tools": ["fs_list"]} if tool == "agent_spawn" else {}
    house = await household(
        agent("ann", call("go", tool, agent="ben", **named, **bound), tools=OWN),
        agent("ben", say("dig", "dug", after_s=60)),
    )
    heard: list[SubagentFacts] = []
    turn = await house.said("ann", "go")

    async def begun() -> bool:
        return bool(await runs(house))

    await house.until(begun)
    for _ in range(2):
        await house.restart(kill=kill)
        watch = SubagentWatch(name="w", phase=Phase.SUBAGENT_ENDED, about="", run=heard.append)
        house.daemon.calls.pipeline.hooks.add(watch)
    await house.until(lambda: bool(heard))
    await house.clock.sleep(600)
    ((run_id, target),) = await house.sql("SELECT run_id, target FROM runs")
    tools = ("fs_list",) if bound else None
    assert heard == [SubagentFacts(run_id, turn, target, "dig", tools, "done")]


async def test_a_run_may_begin_with_what_was_said(household: Open) -> None:
    house = await household(
        agent(
            "ann",
            call("with", "agent_spawn", instruction="dig", inherit_last=4),
            say("dig", "dug"),
            say("hello", "hi"),
            tools=OWN,
        )
    )
    await said(house, "ann", "hello")
    run_id = (await document(house, "ann", "with"))["agent_id"]
    await house.daemon.mailbox.queue.wait_done(run_id, 60)
    found = await house.sql(
        "SELECT role, text FROM transcript WHERE session_id ="
        " (SELECT session_id FROM messages WHERE message_id = ?) ORDER BY entry_id",
        run_id,
    )
    assert found[:2] == [("user", "hello"), ("assistant", "hi")]


# -- tasks -------------------------------------------------------------------------------------------


def tasks_of(house: VirtualDaemon) -> Any:
    return house.sql("SELECT task_id, state, target, parent_message_id FROM tasks")


async def test_an_agent_manages_its_schedules(household: Open) -> None:
    """With the tools that an agent has when its entry names none."""
    house = await household(
        agent(
            "ann",
            call("remind", "task_create", prompt="dig", cron="0 8 * * *", zone="Europe/Zurich"),
            call("list", "task_list"),
            call("later (.*)", "task_update", task_id="$1", cron="0 9 * * *", zone="Europe/Zurich"),
            call("rest (.*)", "task_update", task_id="$1", paused=True),
            call("both (.*)", "task_update", task_id="$1", cron="0 7 * * *", status="odd"),
            call("end (.*)", "task_cancel", task_id="$1"),
        )
    )
    task_id = (await document(house, "ann", "remind"))["task_id"]
    await document(house, "ann", f"later {task_id}")
    [listed] = (await document(house, "ann", "list"))["tasks"]
    assert (listed["task_id"], listed["schedule"]["spec"]) == (task_id, "0 9 * * *")
    assert "no status 'odd'" in await said(house, "ann", f"both {task_id}")
    [listed] = (await document(house, "ann", "list"))["tasks"]
    assert listed["schedule"]["spec"] == "0 9 * * *", "a wrong argument changes nothing"
    await document(house, "ann", f"rest {task_id}")
    [listed] = (await document(house, "ann", "list"))["tasks"]
    assert listed["schedule"]["is_paused"] is True
    assert (await document(house, "ann", f"end {task_id}"))["status"] == "cancelled"


async def test_a_task_goes_on_by_itself_and_can_be_looked_after(household: Open) -> None:
    house = await household(
        agent(
            "ann",
            call("task", "task_create", prompt="dig", agent="ben", title="Digging"),
            call("list", "task_list"),
            *ANN,
            tools=OWN,
        ),
        agent("ben", say("dig", "dug", after_s=30)),
    )
    made = await document(house, "ann", "task")
    task_id = made["task_id"]
    [(found_id, _, target, parent)] = await tasks_of(house)
    assert (found_id, target) == (task_id, f"agent:{house.roster.entry('ben').agent_id}")
    assert parent
    status = await document(house, "ann", f"status {task_id}")
    assert (status["name"], status["status"]) == ("Digging", "running")
    listed = await document(house, "ann", "list")
    assert listed["tasks"] == [{"task_id": task_id, "name": "Digging", "status": "running"}]
    await house.until(lambda: "ben has dug" in house.texts())
    assert await said(house, "ann", f"result {task_id}") == "dug"
    assert "task.created" in await said(house, "ann", f"logs {task_id}")
    again = await document(house, "ann", "task")
    assert (await document(house, "ann", f"cancel {again['task_id']}"))["status"] == "cancelled"


async def test_a_todo_and_a_schedule_are_written_down(household: Open) -> None:
    house = await household(
        agent(
            "ann",
            call("todo", "task_create", title="buy tea", start=False),
            call("each", "task_create", prompt="tick", every_s=60),
            call("done (.*)", "task_update", task_id="$1", status="done"),
            say("tick", "tock"),
            say("tock", "heard tock"),
            tools=OWN,
        )
    )
    todo = await document(house, "ann", "todo")
    assert todo["status"] == "todo"
    assert (await document(house, "ann", f"done {todo['task_id']}"))["status"] == "done"
    await said(house, "ann", "each")
    assert (await house.sql("SELECT kind FROM schedules")) == [("every",)]


async def test_a_crash_after_a_call_begins_no_second_task(household: Open) -> None:
    steps = [{"tool": {"name": "task_create", "args": {"prompt": "dig"}}}, {"sleep": 10}]
    house = await household(
        agent("ann", {"match": "go", "steps": [*steps, {"say": "$result"}]}, say("dig", "dug"))
    )
    message = await house.said("ann", "go")
    await house.clock.sleep(3)
    await house.restart(kill=True)
    made = json.loads((await house.daemon.mailbox.queue.wait_done(message, 600)).result_text)
    assert [row[0] for row in await tasks_of(house)] == [made["task_id"]]


@pytest.mark.parametrize(
    "tool, args, field",
    [
        ("agent_spawn", {"instruction": "dig", "timeout": 0}, "timeout"),
        ("agent_spawn", {"instruction": "dig", "timeout": 1e12}, "timeout"),
        ("agent_spawn", {"instruction": "dig", "agent": "x" * 121}, "agent"),
        ("agent_spawn", {"instruction": "dig", "agent": "two\nlines"}, "agent"),
        ("delegate_task", {"prompt": "dig", "label": "x" * 121}, "label"),
        ("delegate_task", {"prompt": "dig", "max_cost_usd": 0}, "max_cost_usd"),
        ("delegate_task", {"prompt": "dig", "max_cost_usd": -1}, "max_cost_usd"),
        ("task_create", {"prompt": "dig", "max_cost_usd": 0}, "max_usd"),
    ],
)
async def test_what_makes_no_sense_starts_nothing(
    household: Open, tool: str, args: dict[str, Any], field: str
) -> None:
    house = await household(agent("ann", call("go", tool, **args), tools=OWN))
    assert field in await said(house, "ann", "go")
    assert await runs(house) == []


async def test_an_argument_that_is_null_is_not_given(household: Open) -> None:
    nothing = dict.fromkeys(("agent", "role", "personality", "label", "timeout", "background"))
    house = await household(
        agent(
            "ann",
            call("go", "delegate_task", prompt="dig", **nothing),
            say("dig", "dug"),
            tools=OWN,
        )
    )
    assert await said(house, "ann", "go") == "dug"


async def test_tasks_are_listed_by_state_and_by_what_they_are_part_of(household: Open) -> None:
    house = await household(
        agent(
            "ann",
            call("whole", "task_create", title="whole", start=False),
            call("part (.*)", "task_create", title="part", start=False, parent_id="$1"),
            call("of (.*)", "task_list", parent_id="$1"),
            call("state (.*)", "task_list", status="$1"),
            tools=OWN,
        )
    )
    whole = (await document(house, "ann", "whole"))["task_id"]
    part = (await document(house, "ann", f"part {whole}"))["task_id"]
    row = {"task_id": part, "name": "part", "status": "todo"}
    assert await document(house, "ann", f"of {whole}") == {"tasks": [row], "count": 1}
    assert (await document(house, "ann", "state todo"))["count"] == 2
    for word in ("in_progress", "blocked", "completed", "running"):
        assert await document(house, "ann", f"state {word}") == {"tasks": [], "count": 0}
    assert "there is no status 'odd'" in await said(house, "ann", "state odd")
    assert "there is no task task_no" in await said(house, "ann", "of task_no")
