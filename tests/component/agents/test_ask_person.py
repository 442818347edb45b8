"""A program that asks a person over MCP: the answer is its result, whatever ends in between."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from agentsup.model.principal import OPERATOR
from tests.component.agents.shared import let_go, open_question
from tests.component.agents.test_served import Program, play
from tests.component.conftest import Open
from tests.support.virtual_daemon import agent

pytestmark = pytest.mark.virtual

ASK: tuple[str, dict[str, Any]] = (
    "ask_person",
    {"text": "Which colour, sk-known-4711?", "options": ["red", "blue"]},
)


async def test_a_program_asks_and_reads_the_answer(household: Open) -> None:
    house = await household(agent("ann", permission_mode="bypassPermissions"))
    house.redactor.add("sk-known-4711")
    program = play(house, ASK)
    message = await house.said("ann", "go")
    asked = await open_question(house)
    assert (asked.kind, asked.text, asked.options) == (
        "question",
        "Which colour, [redacted]?",
        ("red", "blue"),
    )
    assert await house.state_of(message) == "leased"
    await house.daemon.mailbox.questions.answer(asked.question_id, "blue", OPERATOR)
    await house.daemon.mailbox.queue.wait_done(message, 60)
    assert [(each.ok, each.text) for each in program.results] == [(True, "blue")]
    assert "ask_person" in program.offered
    assert "ask_person" not in [tool.name for tool in program.host.tools()]


async def test_an_answer_that_comes_after_the_turn_was_let_go_is_met(household: Open) -> None:
    house = await household(agent("ann"))
    program = play(house, ASK)
    message = await house.said("ann", "go")
    asked = await open_question(house)
    await let_go(house, message)
    await house.daemon.mailbox.questions.answer(asked.question_id, "red", OPERATOR)
    await house.daemon.mailbox.queue.wait_done(message, 60)
    assert program.results[-1].text == "red"
    assert await house.sql("SELECT count(*) FROM questions") == [(1,)]


async def test_a_kill_while_a_person_is_asked_asks_nobody_twice(household: Open) -> None:
    house = await household(agent("ann"))
    play(house, ASK)
    message = await house.said("ann", "go")
    asked = await open_question(house)
    await house.restart(kill=True)
    program: Program = play(house, ASK)
    await house.clock.sleep(3600)
    assert await house.state_of(message) == "parked"
    await house.daemon.mailbox.questions.answer(asked.question_id, "red", OPERATOR)
    await house.daemon.mailbox.queue.wait_done(message, 60)
    assert [each.text for each in program.results] == ["red"]
    assert await house.sql("SELECT count(*) FROM questions") == [(1,)]


async def test_a_stop_withdraws_the_question(household: Open) -> None:
    house = await household(agent("ann"))
    play(house, ASK)
    message = await house.said("ann", "go")
    await open_question(house)
    await house.command("ann", "/stop")
    assert await house.state_of(message) == "cancelled"
    assert await house.daemon.mailbox.questions.list() == []


@pytest.mark.parametrize(
    "args", [{}, {"text": ""}, {"text": "x" * 4001}, {"text": "a", "options": [1]}]
)
async def test_what_is_no_question_is_told(household: Open, args: dict[str, Any]) -> None:
    house = await household(agent("ann"))
    program = play(house, ("ask_person", args))
    async with asyncio.timeout(60):
        await house.ask("ann", "go")
    assert [each.ok for each in program.results] == [False]
    assert await house.daemon.mailbox.questions.list() == []
