"""A call that was interrupted, and nobody knows whether it happened: who is asked, and for how long
others wait for the answer."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from agentsup.agents.tools import file_tools
from agentsup.daemon import calls
from agentsup.kit.pool import BoundedPool
from agentsup.mailbox.bus import BusRequest
from agentsup.model.message import State
from agentsup.model.principal import OPERATOR
from agentsup.model.question import UNCERTAIN_WITHIN_S
from agentsup.model.tool import Effect, Tool, ToolContext
from agentsup.testing.household import Household, agent
from tests.component.conftest import Open

pytestmark = pytest.mark.virtual


@pytest.fixture(autouse=True)
def append_tool(monkeypatch: pytest.MonkeyPatch) -> None:
    async def append(context: ToolContext, args: dict[str, Any]) -> str:
        with (Path(context.workspace) / "log").open("a") as log:
            log.write(f"{args['text']}\n")
        await asyncio.sleep(5.0)  # time to die between effect and result
        return "appended"

    def tools(files: BoundedPool) -> tuple[Tool, ...]:
        return (*file_tools(files), Tool("append", "", {"type": "object"}, append, Effect.BLIND))

    monkeypatch.setattr(calls, "file_tools", tools)


def ann() -> dict[str, Any]:
    append = {"tool": {"name": "append", "args": {"text": "x"}}}
    return agent(
        "ann",
        {"match": "go", "steps": [append, {"say": "$result"}]},
        {"match": "plain", "steps": [{"say": "well"}]},
        permission_mode="bypassPermissions",
    )


async def sent(house: Household, text: str) -> str:
    accepted = await house.daemon.bus.send_async(BusRequest("ann", text), caller=OPERATOR)
    return str(accepted.message_id)


async def interrupted(house: Household, message_id: str) -> None:
    """The daemon dies while the message's call runs; afterwards somebody is asked."""
    await house.until((house.home.workspace("ann") / "log").exists)
    await house.restart(kill=True)
    await house.clock.sleep(1.0)
    assert await house.state_of(message_id) == State.PARKED


async def test_a_programs_other_work_goes_on_and_its_own_ends_in_time(household: Open) -> None:
    house = await household(ann())
    first = await sent(house, "go")
    await interrupted(house, first)
    (question,) = await house.daemon.mailbox.questions()
    assert question.deadline_at is not None
    news = BusRequest("ann", "plain")
    accepted = await house.daemon.bus.send_async(news, caller=OPERATOR)
    assert accepted.waits_for is None, "what is set aside holds nothing up"
    later = [accepted.message_id, *[await sent(house, "plain") for _ in range(2)]]
    await house.clock.sleep(1.0)
    assert [await house.state_of(one) for one in later] == [State.DONE] * 3
    sessions = await house.sql("SELECT DISTINCT session_id FROM messages")
    assert len(sessions) == 1, "all of a caller's requests share one session"
    await house.clock.sleep(UNCERTAIN_WITHIN_S)
    await house.daemon.mailbox.expire()
    await house.clock.sleep(1.0)
    ((state, outcome, code, text),) = await house.sql(
        "SELECT state, outcome, error_code, error_text FROM messages WHERE message_id = ?", first
    )
    assert (state, outcome, code) == ("done", "failed", "uncertain_call")
    assert "nobody said within 15 minutes" in text
    assert (house.home.workspace("ann") / "log").read_text() == "x\n", "never made again unasked"
    assert await house.sql("SELECT count(*) FROM messages WHERE state NOT IN ('done')") == [(0,)]


@pytest.mark.parametrize("answer, made", [("it happened", 1), ("do it again", 2), ("skip it", 1)])
async def test_an_answer_in_time_is_obeyed(household: Open, answer: str, made: int) -> None:
    house = await household(ann())
    first = await sent(house, "go")
    await interrupted(house, first)
    running = await sent(house, "go")  # holds the session while the first comes back
    await house.clock.sleep(1.0)
    assert await house.state_of(running) == State.LEASED
    (question,) = await house.daemon.mailbox.questions()
    await house.daemon.mailbox.answer(question.question_id, answer, OPERATOR)
    await house.clock.sleep(1.0)
    assert await house.state_of(first) == State.QUEUED, "a session runs one turn at a time"
    await house.clock.sleep(20.0)
    assert [await house.state_of(one) for one in (first, running)] == [State.DONE] * 2
    log = (house.home.workspace("ann") / "log").read_text().splitlines()
    assert len(log) == made + 1


async def test_in_a_chat_the_question_waits_and_its_order_is_kept(household: Open) -> None:
    house = await household(ann())
    first = await house.said("ann", "go")
    await interrupted(house, first)
    later = await house.said("ann", "plain")
    (question,) = await house.daemon.mailbox.questions()
    assert question.deadline_at is None
    await house.clock.sleep(2 * UNCERTAIN_WITHIN_S)
    await house.daemon.mailbox.expire()
    assert await house.state_of(first) == State.PARKED
    assert await house.state_of(later) == State.QUEUED
    await house.daemon.mailbox.answer(question.question_id, "skip it", OPERATOR)
    await house.clock.sleep(2.0)
    assert await house.state_of(first) == await house.state_of(later) == State.DONE
