"""Looking at work and waiting for it is no loop, callers of one instant spread, and what is cut says
where the rest is."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from agentsup.agents.persona import prompt
from agentsup.agents.roles import LiveRoleRegistry, Roles, read_roles
from agentsup.engines.scripted.engine import ScriptedSession
from agentsup.model.control import CommandReply
from agentsup.model.engine import EngineEvent, Segment
from agentsup.model.principal import PersonRole, Principal, PrincipalKind
from agentsup.model.tool_names import OURS
from tests.component.agents.handing_on import call, document, said, say
from tests.component.agents.shared import run_command
from tests.component.conftest import Open
from tests.support.virtual_daemon import VirtualDaemon, agent

pytestmark = pytest.mark.virtual

OWN = ["agent_*", "task_*", "delegate_task", "route_to_agent", "dispatch_team", "list_agents"]
EVE = Principal(PrincipalKind.PERSON, "eve", "Eve", PersonRole.OPERATOR)


def tool(name: str, **args: Any) -> dict[str, Any]:
    return {"tool": {"name": name, "args": args}}


async def test_the_list_of_names_is_that_of_the_tools(household: Open) -> None:
    house = await household(agent("ann"))
    assert {tool.name for tool in house.daemon.calls.tools.all()} == OURS - {"think"}


async def test_a_run_of_half_an_hour_is_waited_for_in_one_turn(household: Open) -> None:
    wait, look = tool("agent_wait", agent_id="$1"), tool("list_agents")
    looks = {"match": "wait (.*)", "steps": [*[wait] * 8, {"say": "$result"}]}
    house = await household(
        agent("ann", call("go", "agent_spawn", instruction="dig", agent="ben"), looks, tools=OWN),
        agent("ben", {"match": "dig", "steps": [*[{"sleep": 250}, look] * 7, {"say": "dug"}]}),
    )
    run_id = (await document(house, "ann", "go"))["agent_id"]
    assert json.loads(await said(house, "ann", f"wait {run_id}"))["result"] == "dug"


@pytest.mark.parametrize("pause_s,ends", [(2.0, "ok"), (0.0, "loop_detected")])
async def test_looking_again_is_a_loop_only_without_any_time_between(
    household: Open, pause_s: float, ends: str
) -> None:
    look = tool("task_status", task_id="$1")
    pause = [{"sleep": pause_s}] if pause_s else []
    steps = [step for _ in range(40) for step in (look, *pause)]
    house = await household(
        agent(
            "ann",
            call("go", "agent_spawn", instruction="dig", agent="ben"),
            {"match": "watch (.*)", "steps": [*steps, {"say": "seen"}]},
            tools=OWN,
        ),
        agent("ben", say("dig", "dug", after_s=3000)),
    )
    run_id = (await document(house, "ann", "go"))["agent_id"]
    message = await house.ask("ann", f"watch {run_id}")
    assert (message.result_text, message.error_code) == (
        ("seen", "") if ends == "ok" else ("", "loop_detected")
    )


async def test_another_call_made_again_and_again_is_a_loop_as_before(household: Open) -> None:
    steps = [tool("memory_recall", query="x")] * 6
    house = await household(agent("ann", {"match": "go", "steps": steps}))
    assert (await house.ask("ann", "go")).error_code == "loop_detected"


@pytest.mark.parametrize("named", ["capability", "required_capabilities", ""])
async def test_callers_of_one_instant_spread(household: Open, named: str) -> None:
    args = {named: "code" if named == "capability" else ["code"]} if named else {}
    workers = ("w1", "w2", "w3", "w4")
    house = await household(
        agent("ann", call("go", "route_to_agent", prompt="dig", **args), tools=OWN, slots=8),
        *(agent(name, say("dig", "dug", after_s=5), capabilities=["code"]) for name in workers),
        agent("main", say("dig", "dug", after_s=5)),
    )
    asked = [house.ask("ann", "go", conversation=f"c{n}") for n in range(8)]
    found = [message.result_text.partition("\n")[0] for message in await asyncio.gather(*asked)]
    counts = Counter(found)
    if named:
        assert sorted(counts.values()) == [2, 2, 2, 2], counts
    else:
        assert max(counts.values()) <= 2, counts
    # What is done counts no more: the first of those with nothing to do is chosen each time.
    later = [(await said(house, "ann", "go")).partition("\n")[0] for _ in range(2)]
    assert later[0] == later[1], later


async def test_the_rest_of_a_long_answer_can_be_read(household: Open) -> None:
    long = "".join(f"line {n}\n" for n in range(4000))
    read = {
        "match": "read (.*)",
        "steps": [tool("result_read", ref="$1", offset=len(long) - 10), {"say": "$result"}],
    }
    house = await household(
        agent(
            "ann",
            call("go", "delegate_task", prompt="dig", agent="ben"),
            call("spawn", "agent_spawn", instruction="dig", agent="ben"),
            call("result (.*)", "task_result", task_id="$1"),
            call("wait (.*)", "agent_wait", agent_id="$1"),
            read,
            tools=["*"],
        ),
        agent("ben", say("dig", long)),
    )
    run_id = (await document(house, "ann", "spawn"))["agent_id"]
    shown = await said(house, "ann", "go")
    for text in (shown, await said(house, "ann", f"result {run_id}")):
        assert "read on with result_read(ref=" in text
        ref = text.partition('ref="')[2].partition('"')[0]
        assert "line 3999" in await said(house, "ann", f"read {ref}")
    # A run's own id is a reference, too, for the session that has started it and no other.
    assert f'result_read(ref=\\"{run_id}\\"' in await said(house, "ann", f"wait {run_id}")
    assert "line 3999" in await said(house, "ann", f"read {run_id}")
    other = await house.ask("ann", f"read {run_id}", conversation="other")
    assert "there is no stored result" in other.result_text


async def test_an_argument_that_means_nothing_is_named(household: Open) -> None:
    house = await household(
        agent("ann", call("go", "list_agents", runner="x", grep="y"), tools=["*"])
    )
    assert "list_agents has no argument 'runner', 'grep'" in await said(house, "ann", "go")


async def test_a_status_without_an_id_lists_and_a_todo_says_what_it_can_be(household: Open) -> None:
    house = await household(
        agent(
            "ann",
            call("todo", "task_create", prompt="dig", title="dig", start=False),
            call("all", "task_status"),
            call("begin (.*)", "task_update", task_id="$1", status="in_progress"),
            tools=["*"],
        )
    )
    task_id = (await document(house, "ann", "todo"))["task_id"]
    assert (await document(house, "ann", "all"))["tasks"][0]["task_id"] == task_id
    refused = await said(house, "ann", f"begin {task_id}")
    assert "has no run that could be running" in refused
    assert "as its run is" not in refused


# -- roles -------------------------------------------------------------------------------------------


async def command(house: VirtualDaemon, text: str) -> CommandReply:
    return await run_command(house, "ann", text, principal=EVE, has_buttons=False)


async def test_a_role_that_only_thinks_can_be_taken_and_one_without_its_tools_says_why(
    household: Open,
) -> None:
    house = await household(agent("ann"))
    house.put_role("critic", "keywords: [criticise]")
    house.put_role("pilot", 'max_tools: ["mcp:plane/*"]')
    shown = (await command(house, "/role")).text
    assert "critic" in shown
    assert "navigator" not in shown, "web_fetch alone makes no browser"
    assert (await command(house, "/role critic")).ok
    assert "critic" in (await command(house, "/route criticise this plan")).text
    refused = (await house.say("ann", "/role pilot")).text
    assert "mcp:plane/*" in refused
    assert "always_include: true" in refused


async def test_a_role_that_disappears_degrades_its_agents_until_it_is_back(household: Open) -> None:
    house = await household(agent("ann", role="writer"), agent("ben"), roles=["writer"])
    await command(house, "/role")  # looks at the files
    assert house.state("ann") == "running"
    path = house.home.roles / "writer" / "AGENT.md"
    path.unlink()
    await command(house, "/role")  # looks at the files
    assert house.state("ann") == "degraded"
    view = await house.daemon.control.agent("ann")
    assert "it has no tools: there is no role 'writer'" in view.last_reason
    assert "writer" in (await command(house, "/status")).text
    house.put_role("writer")
    await command(house, "/role")  # looks at the files
    assert house.state("ann") == "running"


async def test_an_edit_with_an_unknown_role_is_refused_and_applied_once_there_is_one(
    household: Open,
) -> None:
    ann = agent("ann")
    house = await household(ann)
    assert not await house.save([{**ann, "role": "writer"}])
    assert house.unit("ann").spec.role is None
    house.put_role("writer")
    await command(house, "/role")  # looks at the files
    await house.until(lambda: house.unit("ann").spec.role == "writer")


async def test_work_for_a_role_that_there_is_not_is_given_to_nobody(household: Open) -> None:
    letter = {"to_role": "writer", "subject": "s", "body": "b"}
    house = await household(
        agent("ann", call("go", "mailbox_send", **letter), tools=["*"]), agent("ben", role="writer")
    )
    await command(house, "/role")  # looks at the files
    refused = await said(house, "ann", "go")
    assert "no agent with role 'writer' can work: there is no role 'writer'" in refused


def test_a_ceiling_with_an_unknown_name_is_told_and_its_edit_refused(tmp_path: Path) -> None:
    path = tmp_path / "reader" / "AGENT.md"
    path.parent.mkdir()
    path.write_text('---\nname: reader\nmax_tools: ["fs_read"]\n---\nRead.\n')
    before = read_roles(tmp_path)
    path.write_text('---\nname: reader\nmax_tools: ["fs_raed", "fs_list"]\n---\nRead.\n')
    after = read_roles(tmp_path, before)
    assert after.roles["reader"].max_tools == ("fs_read",), "it stays as it was"
    [finding] = after.findings
    assert "there is no tool 'fs_raed'" in str(finding)
    assert "fs_read" in str(finding.hint)
    assert read_roles(tmp_path).roles["reader"].allows("fs_list"), "a start takes what there is"


async def test_a_model_is_told_which_roles_there_are(
    household: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[Segment] = []
    run = ScriptedSession.run

    def noted(session: ScriptedSession, segment: Segment) -> AsyncIterator[EngineEvent]:
        asked.append(segment)
        return run(session, segment)

    monkeypatch.setattr(ScriptedSession, "run", noted)
    seen = await household(agent("ann", say("hello", "hi"), tools=["*"]), roles=["writer"])
    await command(seen, "/role")
    await seen.ask("ann", "hello")
    assert "Roles that it can be done in: " in asked[0].system
    assert "writer" in asked[0].system
    shelf = LiveRoleRegistry(seen.home.roles, seen.daemon.calls.tools.all)
    await shelf.refresh()
    roles = Roles(shelf)
    spec = seen.unit("ann").spec
    told = dict(roles.for_others(await roles.in_role(spec, "")))
    assert "writer" in told
    assert "planner" in told
    assert "navigator" not in told
    assert list(dict(roles.for_others(await roles.in_role(spec, "writer")))) == ["writer"]
    many = tuple((f"role{n}", "x" * 200) for n in range(50))
    text = prompt.delegation_notes(("delegate_task",), many)
    assert "role0 (xxx" in text
    assert "and 38 more" in text
    assert len(text) < 1800
    assert prompt.delegation_notes(("fs_read",), many) == ""
