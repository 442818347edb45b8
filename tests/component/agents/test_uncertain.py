"""A call that was interrupted, and nobody knows whether it happened: who is asked, and for how long
others wait for the answer."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from agentsup.mailbox.mail import BusRequest
from agentsup.mailbox.messages import sessions
from agentsup.model.message import DeliverTo, MessageState
from agentsup.model.principal import OPERATOR
from agentsup.model.question import UNCERTAIN_WITHIN_S
from agentsup.model.task import NewSchedule, NewTask, Overlap
from agentsup.tasks.scheduler import settle_tx
from tests.component.agents.shared import give_append, hub_of, log_of, open_question
from tests.component.conftest import Open
from tests.support.virtual_daemon import VirtualDaemon, agent

pytestmark = pytest.mark.virtual


@pytest.fixture(autouse=True)
def append_tool(monkeypatch: pytest.MonkeyPatch) -> None:
    give_append(monkeypatch, pause_s=5.0)


def ann() -> dict[str, Any]:
    append = {"tool": {"name": "append", "args": {"text": "x"}}}
    return agent(
        "ann",
        {"match": "go", "steps": [append, {"say": "$result"}]},
        {"match": "plain", "steps": [{"say": "well"}]},
        permission_mode="bypassPermissions",
    )


async def sent(house: VirtualDaemon, text: str) -> str:
    accepted = await house.daemon.bus.send_async(BusRequest("ann", text), caller=OPERATOR)
    return str(accepted.message_id)


async def interrupted(house: VirtualDaemon, message_id: str) -> None:
    """The daemon dies while the message's call runs; afterwards somebody is asked."""
    await house.until(lambda: bool(log_of(house)))
    await house.restart(kill=True)
    await house.clock.sleep(1.0)
    assert await house.state_of(message_id) == MessageState.PARKED


def the_chat(house: VirtualDaemon) -> DeliverTo:
    """Where people talk to ann."""
    ann_id = house.roster.entry("ann").agent_id
    return DeliverTo("chat", agent_id=ann_id, channel="console", conversation="local")


async def nobody_answers(house: VirtualDaemon) -> None:
    await house.clock.sleep(UNCERTAIN_WITHIN_S)
    await house.daemon.mailbox.deadlines.expire()
    await house.clock.sleep(1.0)


async def next_slot(house: VirtualDaemon, task_id: str) -> None:
    """An hour passes, and the scheduler looks."""
    await house.clock.sleep(3600.0)
    starter, now = hub_of(house).starter, house.clock.now_ms()
    await house.db.write(lambda tx: settle_tx(tx, starter, task_id, now=now), name="settle")


async def test_a_programs_other_work_goes_on_and_its_own_ends_in_time(household: Open) -> None:
    house = await household(ann())
    first = await sent(house, "go")
    await interrupted(house, first)
    question = await open_question(house)
    assert question.deadline_at is not None
    news = BusRequest("ann", "plain")
    accepted = await house.daemon.bus.send_async(news, caller=OPERATOR)
    assert accepted.waits_for is None, "what is set aside holds nothing up"
    later = [accepted.message_id, *[await sent(house, "plain") for _ in range(2)]]
    await house.clock.sleep(1.0)
    assert [await house.state_of(one) for one in later] == [MessageState.DONE] * 3
    sessions = await house.sql("SELECT DISTINCT session_id FROM messages")
    assert len(sessions) == 1, "all of a caller's requests share one session"
    await house.clock.sleep(UNCERTAIN_WITHIN_S)
    await house.daemon.mailbox.deadlines.expire()
    await house.clock.sleep(1.0)
    ((state, outcome, code, text),) = await house.sql(
        "SELECT state, outcome, error_code, error_text FROM messages WHERE message_id = ?", first
    )
    assert (state, outcome, code) == ("done", "failed", "uncertain_call")
    assert "nobody said within 15 minutes" in text
    assert log_of(house) == ["x"], "never made again unasked"
    assert await house.sql("SELECT count(*) FROM messages WHERE state NOT IN ('done')") == [(0,)]


@pytest.mark.parametrize("answer, made", [("it happened", 1), ("do it again", 2), ("skip it", 1)])
async def test_an_answer_in_time_is_obeyed(household: Open, answer: str, made: int) -> None:
    house = await household(ann())
    first = await sent(house, "go")
    await interrupted(house, first)
    running = await sent(house, "go")  # holds the session while the first comes back
    await house.clock.sleep(1.0)
    assert await house.state_of(running) == MessageState.LEASED
    question = await open_question(house)
    await house.daemon.mailbox.questions.answer(question.question_id, answer, OPERATOR)
    await house.clock.sleep(1.0)
    assert await house.state_of(first) == MessageState.QUEUED, "a session runs one turn at a time"
    await house.clock.sleep(20.0)
    assert [await house.state_of(one) for one in (first, running)] == [MessageState.DONE] * 2
    assert len(log_of(house)) == made + 1


async def test_in_a_chat_the_question_waits_and_its_order_is_kept(household: Open) -> None:
    house = await household(ann())
    first = await house.said("ann", "go")
    await interrupted(house, first)
    later = await house.said("ann", "plain")
    question = await open_question(house)
    assert question.deadline_at is None
    await house.clock.sleep(2 * UNCERTAIN_WITHIN_S)
    await house.daemon.mailbox.deadlines.expire()
    assert await house.state_of(first) == MessageState.PARKED
    assert await house.state_of(later) == MessageState.QUEUED
    await house.daemon.mailbox.questions.answer(question.question_id, "skip it", OPERATOR)
    await house.clock.sleep(2.0)
    assert await house.state_of(first) == await house.state_of(later) == MessageState.DONE


async def test_a_schedule_that_tells_a_chat_goes_on_though_nobody_answers(household: Open) -> None:
    house = await household(ann())
    await house.ask("ann", "plain")
    every = NewSchedule(every_s=3600, overlap=Overlap.SKIP)
    new = NewTask("go", agent="ann", schedule=every, deliver_to=the_chat(house))
    task_id = (await hub_of(house).create(new, caller=OPERATOR)).task_id
    await next_slot(house, task_id)
    await house.until(lambda: bool(log_of(house)))
    await house.restart(kill=True)
    await house.clock.sleep(1.0)
    assert (await open_question(house)).deadline_at is not None
    await nobody_answers(house)
    told = [text for text in house.texts() if "nobody said within 15 minutes" in text]
    assert len(told) == 1
    await next_slot(house, task_id)
    await house.clock.sleep(20.0)
    rows = await house.sql(
        "SELECT r.skip_reason, m.outcome, m.error_code FROM runs r LEFT JOIN messages m"
        " ON m.message_id = r.run_id ORDER BY r.slot_at"
    )
    assert rows == [(None, "failed", "uncertain_call"), (None, "ok", "")], "no slot is passed over"


async def test_what_comes_into_a_chat_by_itself_holds_nobody_up_there(household: Open) -> None:
    """A request of the operator's program, and a result that the agent of the chat goes on from."""
    work = agent("ben", {"match": "go", "steps": [{"say": "go"}]})
    house = await household(ann(), work)
    await house.ask("ann", "plain")
    chat = the_chat(house)
    to = replace(DeliverTo("mailbox", agent_id=chat.agent_id), then=chat)
    session = await house.daemon.mailbox.database.read(
        sessions.current, chat.agent_id, "chat:console:local"
    )
    new = NewTask("go", agent="ben", deliver_to=replace(to, session_id=session or ""))
    await hub_of(house).create(new, caller=OPERATOR)
    await house.until(lambda: bool(log_of(house)))
    await house.restart(kill=True)
    await house.clock.sleep(1.0)
    question = await open_question(house)
    ((kind,),) = await house.sql(
        "SELECT kind FROM messages WHERE message_id = ?", question.message_id
    )
    assert kind == "reply"
    assert question.deadline_at is not None
    assert (await house.ask("ann", "plain")).result_text == "well", "the chat goes on beside it"
    await nobody_answers(house)
    assert await house.state_of(question.message_id) == MessageState.DONE
