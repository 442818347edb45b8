"""A call that a program makes over MCP waits for a person, and its turn is let go meanwhile."""

from __future__ import annotations

import pytest

from agentsup.model.principal import OPERATOR
from tests.component.agents.test_served import (
    append_tool,  # noqa: F401  # the fixture
    log_of,
    play,
)
from tests.component.conftest import Open
from tests.support.virtual_daemon import agent

pytestmark = pytest.mark.virtual


async def test_a_call_that_waits_is_made_once_though_its_turn_was_let_go(household: Open) -> None:
    house = await household(agent("ann"))
    play(house, ("append", {"text": "one"}))
    message = await house.said("ann", "go")

    async def is_in(state: str) -> bool:
        asked = await house.daemon.mailbox.questions()
        return bool(asked) and await house.state_of(message) == state

    await house.until(lambda: is_in("leased"))
    stack = house.unit("ann").stack
    assert stack is not None
    (work,) = stack._pump.in_flight
    assert work.slot.suspend()
    await house.until(lambda: is_in("parked"))
    (question,) = await house.daemon.mailbox.questions()
    await house.daemon.mailbox.answer(question.question_id, "once", OPERATOR)
    await house.daemon.mailbox.wait_done(message, 60)
    assert log_of(house) == ["one"]
