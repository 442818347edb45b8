"""``/stop`` beside work that the conversation has set going in the background: it is named, goes on,
and its result comes; what a stop does end is said once (P1, P5)."""

from __future__ import annotations

from typing import Any

import pytest

from agentsup.model.control import CommandReply
from agentsup.model.principal import OPERATOR, PersonRole, Principal, PrincipalKind
from tests.component.agents.handing_on import call, say
from tests.component.agents.shared import run_command
from tests.component.conftest import Open
from tests.support.virtual_daemon import VirtualDaemon, agent

pytestmark = pytest.mark.virtual

EVE = Principal(PrincipalKind.PERSON, "local", "Eve", PersonRole.OPERATOR)
MAX = Principal(PrincipalKind.PERSON, "max", "Max", PersonRole.USER)
WAYS = ("agent_spawn", "delegate_task", "ask_agent_async")
BEN = agent("ben", say("dig", "dug it", after_s=30))


def starting(tool: str, *, then_s: float = 0.0) -> dict[str, Any]:
    args: dict[str, dict[str, Any]] = {
        "agent_spawn": {"instruction": "dig", "agent": "ben"},
        "delegate_task": {"prompt": "dig", "agent": "ben", "label": "digger", "background": True},
        "ask_agent_async": {"to": "ben", "message": "dig"},
    }
    rest: list[dict[str, Any]] = [{"sleep": then_s}] if then_s else []
    step = {"tool": {"name": tool, "args": args[tool]}}
    return {"match": "go", "steps": [step, *rest, {"say": "begun"}]}


def ann(tool: str, *, then_s: float = 0.0) -> dict[str, Any]:
    return agent("ann", starting(tool, then_s=then_s), say("dug it", "ben has dug"), tools=["*"])


async def run(
    house: VirtualDaemon, text: str, *, who: Principal = EVE, name: str = "ann"
) -> CommandReply:
    return await run_command(house, name, text, principal=who)


async def background(house: VirtualDaemon) -> str:
    rows = await house.sql(
        "SELECT message_id FROM messages WHERE state IN ('queued', 'leased')"
        " AND deliver_to ->> '$.kind' = 'mailbox'"
    )
    assert len(rows) == 1, rows
    return str(rows[0][0])


async def has_begun(house: VirtualDaemon) -> bool:
    rows = await house.sql(
        "SELECT 1 FROM messages WHERE state = 'leased' AND deliver_to ->> '$.kind' = 'mailbox'"
    )
    return bool(rows)


def times(house: VirtualDaemon, what: str) -> int:
    return sum(what in text for text in house.texts())


@pytest.mark.parametrize("kill", [False, True])
@pytest.mark.parametrize("tool", WAYS)
async def test_what_runs_in_the_background_is_named_goes_on_and_tells_its_result(
    household: Open, tool: str, kill: bool
) -> None:
    house = await household(ann(tool), BEN)
    await house.ask("ann", "go")
    work_id = await background(house)
    stopped = await run(house, "/stop")
    assert work_id[-8:] in stopped.text, "it is named"
    assert f"/task cancel {work_id}" in [b.command for row in stopped.buttons for b in row]
    for command in ("/tasks", "/status"):
        assert work_id[-8:] in (await run(house, command)).text, command
    if kill:
        await house.restart(kill=True)
    await house.until(lambda: times(house, "ben has dug") == 1)
    await house.clock.sleep(120)
    assert times(house, "ben has dug") == 1
    assert work_id[-8:] not in (await run(house, "/tasks")).text


@pytest.mark.parametrize("tool", WAYS)
async def test_it_goes_on_also_where_the_turn_that_has_started_it_still_runs(
    household: Open, tool: str
) -> None:
    house = await household(ann(tool, then_s=20), BEN)
    turn = await house.said("ann", "go")
    await house.until(lambda: has_begun(house))
    work_id = await background(house)
    stopped = await run(house, "/stop")
    assert work_id[-8:] in stopped.text
    assert await house.state_of(turn) == "cancelled"
    await house.until(lambda: times(house, "ben has dug") == 1)
    assert times(house, "begun") == 0


async def test_what_comes_of_it_comes_also_through_runs_in_between(household: Open) -> None:
    # Ann's run has ended when she is stopped; the run that this one has started tells it, and it her.
    middle = agent(
        "mid", {**starting("agent_spawn"), "match": "go"}, say("dug it", "dug for mid"), tools=["*"]
    )
    first = call("go", "agent_spawn", instruction="go", agent="mid")
    house = await household(
        agent("ann", first, say("dug for mid", "ben has dug"), say(".*", "ok"), tools=["*"]),
        middle,
        BEN,
    )
    await house.ask("ann", "go")

    async def below() -> bool:
        rows = await house.sql("SELECT 1 FROM runs WHERE depth = 2")
        return bool(rows)

    await house.until(below)
    await house.clock.sleep(5)
    assert "/task cancel" in str((await run(house, "/stop")).buttons)
    await house.until(lambda: times(house, "ben has dug") == 1)


@pytest.mark.parametrize("tool", WAYS)
async def test_a_stop_of_the_agent_says_once_what_it_has_dropped(
    household: Open, tool: str
) -> None:
    house = await household(ann(tool), BEN)
    await house.ask("ann", "go")
    await house.until(lambda: has_begun(house))
    work_id = await background(house)
    await house.until(lambda: times(house, "begun") == 1)
    before = len(house.texts())
    agent_id = house.roster.entry("ann").agent_id
    await house.daemon.control.stop(f"agent:{agent_id}", OPERATOR)
    await house.clock.sleep(120)
    # A run is the agent's own work and is ended; what it has asked another agent is that one's.
    state = "done" if tool == "ask_agent_async" else "cancelled"
    assert await house.state_of(work_id) == state
    assert times(house, "ben has dug") == 0
    told = house.texts()[before:]
    assert len(told) == 1, told
    assert ("dropped" in told[0]) or ("stopped" in told[0])


async def test_a_result_that_waits_when_the_stop_comes_is_said_to_be_dropped(
    household: Open,
) -> None:
    slow = say("talk", "talked", after_s=300)
    house = await household(
        agent("ann", starting("agent_spawn"), slow, say("dug it", "ben has dug"), tools=["*"]), BEN
    )
    await house.ask("ann", "go")
    work_id = await background(house)
    await house.said("ann", "talk")

    async def waits() -> bool:
        return bool(
            await house.sql("SELECT 1 FROM messages WHERE kind = 'reply' AND state = 'queued'")
        )

    await house.until(waits)
    await run(house, "/stop")
    await house.until(lambda: times(house, "dropped") == 1)
    [note] = [text for text in house.texts() if "dropped" in text]
    assert work_id[-8:] in note
    shown = await run(house, f"/task {work_id}")
    assert "dug it" in shown.text, "it can still be read"
    assert times(house, "ben has dug") == 0


async def test_the_result_that_comes_while_the_stop_is_being_written_is_not_lost(
    household: Open,
) -> None:
    house = await household(ann("agent_spawn"), BEN)
    message = await house.ask("ann", "go")
    scope = f"session:{message.session_id}"
    house.daemon.mailbox.context.epochs.raise_now(scope)  # as a stop does before it is written

    async def ended() -> bool:
        return bool(
            await house.sql("SELECT 1 FROM messages WHERE kind = 'task' AND state = 'done'")
        )

    await house.until(ended)
    report = await house.daemon.control.stop(scope, OPERATOR)
    assert report.queued == 1, "the result had come, and is counted"
    await house.until(lambda: times(house, "dropped") == 1)


async def test_background_work_is_ended_from_the_chat_by_those_who_are_in_it(
    household: Open,
) -> None:
    house = await household(ann("agent_spawn"), BEN)
    await house.ask("ann", "go")
    work_id = await background(house)
    refused = await house.say("ann", f"/task cancel {work_id}", who=MAX, conversation="another")
    assert await house.state_of(work_id) in ("queued", "leased"), refused
    ended = await run(house, f"/task cancel {work_id[-8:]}")
    assert ended.ok, ended.text
    assert await house.state_of(work_id) == "cancelled"
    await house.clock.sleep(120)
    assert times(house, "ben has dug") == 0


async def test_with_a_run_ends_what_it_has_asked_without_waiting(household: Open) -> None:
    ask = {"tool": {"name": "ask_agent_async", "args": {"to": "cid", "message": "dig"}}}
    house = await household(
        agent("ann", call("go", "agent_spawn", instruction="ask", agent="ben"), tools=["*"]),
        agent("ben", {"match": "ask", "steps": [ask, {"sleep": 60}]}, tools=["*"]),
        agent("cid", say("dig", "dug it", after_s=30)),
    )
    await house.ask("ann", "go")
    cid = house.roster.entry("cid").agent_id

    async def states() -> list[Any]:
        return await house.sql("SELECT state FROM messages WHERE agent_id = ?", cid)

    async def asked() -> bool:
        return bool(await states())

    await house.until(asked)
    ((run_id,),) = await house.sql("SELECT run_id FROM runs")
    ended = await run(house, f"/task cancel {run_id}")
    assert ended.ok, ended.text
    assert await states() == [("cancelled",)]


async def test_who_is_asked_by_a_turn_that_is_stopped_need_not_go_on(household: Open) -> None:
    waiting = call("go", "ask_agent", to="ben", message="dig")
    house = await household(agent("ann", waiting, tools=["*"]), BEN)
    await house.said("ann", "go")
    await house.until(lambda: has_begun(house))
    work_id = await background(house)
    await run(house, "/stop")
    assert await house.state_of(work_id) == "cancelled"
    assert await house.sql("SELECT state FROM messages WHERE state = 'leased'") == []
