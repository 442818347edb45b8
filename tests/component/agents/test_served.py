"""Calls that a program makes over MCP, in the whole daemon: leave, ceilings, and a person who is
asked."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from agentsup.agents import AgentStack
from agentsup.agents.tools import Tools
from agentsup.model.engine import (
    EngineCaps,
    EngineDone,
    Permission,
    PermissionRequest,
    Segment,
)
from agentsup.model.hook import Allow, CallFacts, Deny, Suspend, Verdict
from agentsup.model.principal import OPERATOR
from agentsup.model.tool import Effect, Safety, Tool, ToolContext, ToolResult
from agentsup.model.tool_names import wire_name
from tests.component.agents.shared import (
    PlayedEngine,
    give_append,
    let_go,
    log_of,
    open_question,
    played,
)
from tests.component.conftest import Open
from tests.support.mode_approver import ModeApprover
from tests.support.virtual_daemon import VirtualDaemon, agent

pytestmark = pytest.mark.virtual


class Program(PlayedEngine):
    """Asks leave as a coding CLI does, then calls with the token it was given."""

    caps = EngineCaps(suspend=True)

    def __init__(self, house: VirtualDaemon, *wanted: tuple[str, dict[str, Any]]) -> None:
        super().__init__()
        self._house, self._wanted = house, wanted
        self.leave: list[Permission] = []
        self.results: list[ToolResult] = []
        self.offered: tuple[str, ...] = ()

    async def run(self, segment: Segment) -> Any:
        header = self.spec.mcp_servers["agentsup"]["headers"]["Authorization"]
        turn = _served(self._house).find(header.removeprefix("Bearer "))
        assert turn is not None
        self.offered = tuple(tool.name for tool in turn.tools())
        for number, (name, args) in enumerate(self._wanted):
            request = PermissionRequest(f"r{number}", f"mcp__agentsup__{name}", args)
            self.leave.append(await self.host.permit(request))
            self.results.append(await turn.call(name, args, str(number)))
        yield EngineDone("ok", text="done")


def _served(house: VirtualDaemon) -> Any:
    stack = house.unit("ann").stack
    assert stack is not None
    return stack._services.served


def play(house: VirtualDaemon, *wanted: tuple[str, dict[str, Any]]) -> Program:
    return played(house, "ann", Program(house, *wanted))


@pytest.fixture(autouse=True)
def append_tool(monkeypatch: pytest.MonkeyPatch) -> None:
    give_append(monkeypatch)


async def test_leave_is_judged_with_the_call(household: Open) -> None:
    house = await household(agent("ann"), approver=ModeApprover())
    program = play(house, ("list_agents", {}), ("append", {"text": "one"}))
    await house.ask("ann", "go")
    assert [each.allowed for each in program.leave] == [True, True]
    assert [each.ok for each in program.results] == [True, False]
    assert "dangerous" in program.results[1].text
    assert log_of(house) == []


async def test_names_that_are_none_of_ours_are_judged_as_anything_else(household: Open) -> None:
    house = await household(agent("ann", tools=["list_agents", "exec"]), approver=ModeApprover())
    names = ("exec", "append", "fs_write", "nothing", "")
    program = play(house, *((name, {}) for name in names))
    await house.ask("ann", "go")
    assert "list_agents" in program.offered
    assert not {"exec", "append", "fs_write"} & set(program.offered)
    assert [each.allowed for each in program.leave] == [False] * 5
    assert [each.ok for each in program.results] == [False] * 5


async def test_a_tool_of_the_agents_own_server_is_known_by_the_name_that_programs_take(
    household: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def echo(context: ToolContext, args: dict[str, Any]) -> str:
        return "echoed"

    own = Tools([Tool("mcp:wiki/read.page", "", {}, echo, Effect.BLIND, Safety.SAFE)])

    async def own_tools(self: AgentStack, *, is_patient: bool) -> Tools:
        return own

    monkeypatch.setattr(AgentStack, "own_tools", own_tools)
    house = await household(agent("ann", tools=["mcp:wiki/*"]), approver=ModeApprover())
    known = wire_name("mcp:wiki/read.page")
    program = play(house, (known, {}), ("mcp__other__read", {}), ("mcp:wiki/read.page", {}))
    await house.ask("ann", "go")
    # Leave is given at once only for what comes to us to be judged there.
    assert [each.allowed for each in program.leave] == [True, False, False]
    assert [each.ok for each in program.results] == [False, False, True]
    assert program.results[2].text == "echoed"


async def test_without_tools_there_is_no_server(household: Open) -> None:
    house = await household(agent("ann", tools=[]))
    stack = house.unit("ann").stack
    assert stack is not None
    assert stack.engine_spec("token", "").mcp_servers == {}


class Person:
    """Is asked about what is dangerous, and takes an hour."""

    def __init__(self) -> None:
        self.asked = asyncio.Event()
        self.says = asyncio.Event()

    async def decide(self, call: CallFacts) -> Verdict:
        dangerous = call.safety is Safety.DANGEROUS
        return Suspend("May I?", ("yes", "no"), timeout_s=7200) if dangerous else Allow()

    async def wait(self, call: CallFacts, ask: Suspend) -> Allow | Deny:
        self.asked.set()
        await self.says.wait()
        return Allow({"text": "edited"})


async def test_a_call_waits_for_a_person_though_its_segment_could_end(household: Open) -> None:
    """The engine can end its segment for calls of its own; a program that waits is not one."""
    person = Person()
    house = await household(agent("ann"), approver=person)
    program = play(house, ("append", {"text": "one"}))
    message = await house.said("ann", "go")
    await person.asked.wait()
    await house.clock.sleep(3600)
    assert log_of(house) == []
    person.says.set()
    await house.daemon.mailbox.queue.wait_done(message, 60)
    assert log_of(house) == ["edited"]
    assert [each.text for each in program.results] == ["appended edited"]


async def test_a_stop_ends_the_door_and_what_waits_in_it(household: Open) -> None:
    person = Person()
    house = await household(agent("ann"), approver=person)
    program = play(house, ("append", {"text": "one"}))
    message = await house.said("ann", "go")
    await person.asked.wait()
    token = program.spec.env["AGENTSUP_TOKEN"]
    assert _served(house).find(token) is not None
    await house.command("ann", "/stop")
    assert await house.state_of(message) == "cancelled"
    assert _served(house).find(token) is None
    person.says.set()
    await house.clock.sleep(5)
    assert log_of(house) == []


async def test_the_guard_ends_a_program_that_goes_in_circles(household: Open) -> None:
    house = await household(agent("ann"))
    program = play(house, *[("memory_recall", {"query": "x"})] * 9)
    done = await house.ask("ann", "go")
    assert (done.error_code, len(program.results)) == ("loop_detected", 4)


async def test_a_call_that_waits_is_made_once_though_its_turn_was_let_go(household: Open) -> None:
    house = await household(agent("ann"))
    play(house, ("append", {"text": "one"}))
    message = await house.said("ann", "go")
    await open_question(house)
    assert await house.state_of(message) == "leased"
    await let_go(house, message)
    question = await open_question(house)
    await house.daemon.mailbox.questions.answer(question.question_id, "once", OPERATOR)
    await house.daemon.mailbox.queue.wait_done(message, 60)
    assert log_of(house) == ["one"]
