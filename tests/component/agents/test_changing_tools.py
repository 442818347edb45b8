"""Leave for tools of somebody else's servers: for the form they had, and not used up in vain."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from agentsup.agents import AgentStack
from agentsup.agents.mcp.failures import ServerUnavailable
from agentsup.model.principal import PersonRole, Principal, PrincipalKind
from agentsup.model.question import parse_permission_key, permission_key
from agentsup.model.tool import Tool, ToolContext
from tests.component.agents.shared import open_question
from tests.component.conftest import Open
from tests.support.virtual_daemon import VirtualDaemon, agent

pytestmark = pytest.mark.virtual

OTTO = Principal(PrincipalKind.PERSON, "otto", "Otto", PersonRole.OPERATOR)
NAME = "mcp:shop/drop"
DROP = {"tool": {"name": NAME, "args": {"table": "x"}}}


class Fixture:
    """The tools of an agent's own server, which may change, go away and come back."""

    def __init__(self) -> None:
        self.done: list[str] = []
        self.refusals = 0
        """How often it is still away."""
        self._tool = Tool(NAME, "", {"type": "object"}, self._drop, version="a" * 16)

    async def _drop(self, context: ToolContext, args: dict[str, Any]) -> str:
        self.done.append(args["table"])
        return f"dropped {args['table']}"

    def become(self, version: str) -> None:
        self._tool = replace(self._tool, version=version)

    def get(self, name: str) -> Tool | None:
        return self._tool if name == NAME and not self.refusals else None

    async def wait_for_tool(self, name: str) -> Tool | None:
        if self.refusals:
            self.refusals -= 1
            raise ServerUnavailable("the tool server shop is not running now, so nothing was done")
        return self.get(name)

    def all(self) -> tuple[Tool, ...]:
        return (self._tool,) if not self.refusals else ()


@pytest.fixture
def shop(monkeypatch: pytest.MonkeyPatch) -> Fixture:
    made = Fixture()

    async def own_tools(self: AgentStack, *, is_patient: bool) -> Fixture:
        return made

    monkeypatch.setattr(AgentStack, "own_tools", own_tools)
    return made


def ann(*steps: dict[str, Any]) -> dict[str, Any]:
    return agent("ann", {"match": "go", "steps": [*steps, {"say": "$result"}]})


async def question(house: VirtualDaemon) -> str:
    asked = await open_question(house)
    assert asked.tool == NAME, "people read the name alone"
    return asked.question_id


async def go(house: VirtualDaemon, answer: str) -> str:
    message = await house.said("ann", "go", who=OTTO)
    await house.daemon.mailbox.questions.answer(await question(house), answer, OTTO)
    return (await house.daemon.mailbox.queue.wait_done(message, 900)).result_text


async def asked_of(house: VirtualDaemon) -> int:
    return int((await house.sql("SELECT count(*) FROM questions"))[0][0])


async def test_leave_for_good_holds_for_the_form_that_the_tool_had(
    household: Open, shop: Fixture
) -> None:
    house = await household(ann(DROP))
    assert await go(house, "always") == "dropped x"
    await house.restart()
    assert (await house.ask("ann", "go", who=OTTO)).result_text == "dropped x"
    assert await asked_of(house) == 1
    shop.become("b" * 16)
    assert await go(house, "deny") != "dropped x", "its server has made something else of it"
    assert len(shop.done) == 2
    shop.become("a" * 16)
    assert (await house.ask("ann", "go", who=OTTO)).result_text == "dropped x"
    assert await asked_of(house) == 2


@pytest.mark.parametrize("answer", ["once", "run", "always"])
async def test_what_changes_between_question_and_answer_is_asked_about_anew(
    household: Open, shop: Fixture, answer: str
) -> None:
    house = await household(ann(DROP))
    message = await house.said("ann", "go", who=OTTO)
    first = await question(house)
    shop.become("b" * 16)
    await house.daemon.mailbox.questions.answer(first, answer, OTTO)
    second = await question(house)
    assert (second != first, shop.done) == (True, [])
    await house.daemon.mailbox.questions.answer(second, answer, OTTO)
    done = await house.daemon.mailbox.queue.wait_done(message, 900)
    assert (done.result_text, shop.done) == ("dropped x", ["x"])


async def test_leave_is_not_used_up_by_a_call_whose_server_is_away(
    household: Open, shop: Fixture
) -> None:
    house = await household(ann(DROP, DROP))
    message = await house.said("ann", "go", who=OTTO)
    asked = await question(house)
    shop.refusals = 1
    await house.daemon.mailbox.questions.answer(asked, "once", OTTO)
    done = await house.daemon.mailbox.queue.wait_done(message, 900)
    assert (done.result_text, shop.done) == ("dropped x", ["x"])
    assert await asked_of(house) == 1


async def test_a_call_whose_server_stays_away_fails_with_a_reason(
    household: Open, shop: Fixture
) -> None:
    house = await household(ann(DROP))
    message = await house.said("ann", "go", who=OTTO)
    asked = await question(house)
    shop.refusals = 9
    await house.daemon.mailbox.questions.answer(asked, "once", OTTO)
    done = await house.daemon.mailbox.queue.wait_done(message, 900)
    assert "shop is not running now, so nothing was done" in done.result_text
    assert shop.done == []


@pytest.mark.parametrize("name", ["exec", "mcp:a/b", "mcp:a/b@c", "@", "a@", NAME + "@" + "a" * 16])
def test_no_name_reads_like_another_with_a_version(name: str) -> None:
    for version in ("", "a" * 16):
        assert parse_permission_key(permission_key(name, version)) == (name, version)
    assert permission_key(NAME, "a" * 16) != permission_key(NAME + "@" + "a" * 16, "")
