"""Questions of work that was handed on: answered where they are seen, and told to the turn that
asked."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest

from agentsup.engines.scripted.engine import ScriptedSession
from agentsup.model.engine import EngineEvent, Segment
from agentsup.model.principal import OPERATOR, PersonRole, Principal, PrincipalKind
from agentsup.model.question import Question
from tests.component.agents.handing_on import call, say
from tests.component.agents.shared import hub_of
from tests.component.conftest import Open
from tests.support.virtual_daemon import VirtualDaemon, agent

pytestmark = pytest.mark.virtual

EVE = Principal(PrincipalKind.PERSON, "eve", "Eve", PersonRole.USER)
ASKS = {
    "match": "paint",
    "steps": [{"question": {"text": "Which?", "options": ["red", "blue"]}}, {"say": "$result"}],
}


async def asked(house: VirtualDaemon) -> Question:
    """The question that is open, once people see it."""

    async def is_shown() -> bool:
        return bool(
            await house.sql("SELECT 1 FROM outbox WHERE kind = 'question' AND state = 'delivered'")
        )

    await house.until(is_shown)
    (question,) = await house.daemon.mailbox.questions.list()
    return question


# -- in the chat of whoever handed the work on -----------------------------------------------------


async def a_team(household: Open) -> VirtualDaemon:
    dispatch = call("go", "dispatch_team", team="t", prompt="paint")
    return await household(
        agent("ann", dispatch, tools=["*", "dispatch_team"]), agent("ben", ASKS, team="t")
    )


@pytest.mark.parametrize("said", ["2", "BLUE", "ID 2", "ID blue"])
async def test_a_members_question_is_answered_in_the_coordinators_chat(
    household: Open, said: str
) -> None:
    house = await a_team(household)
    message = await house.said("ann", "go", who=EVE)
    question = await asked(house)
    assert question.agent_id == house.roster.entry("ben").agent_id
    assert "Which?" in (await house.command("ann", "/status", who=EVE)).text
    line = f"/answer {said.replace('ID', question.question_id)}"
    assert (await house.command("ann", line, who=EVE)).ok
    done = await house.daemon.mailbox.queue.wait_done(message, 60)
    assert '"text": "blue"' in done.result_text
    late = await house.command("ann", f"/answer {question.question_id} red", who=EVE)
    assert "answered by Eve" in late.text


async def test_elsewhere_it_is_nobodys_but_its_own_agents_operators(household: Open) -> None:
    house = await a_team(household)
    message = await house.said("ann", "go", who=EVE, conversation="here")
    question = await asked(house)
    line = f"/answer {question.question_id} red"
    for name, who in (("ann", EVE), ("ann", OPERATOR), ("ben", EVE)):
        refused = await house.command(name, line, who=who, conversation="there")
        assert not refused.ok, (name, who)
    assert (await house.command("ben", line, conversation="there")).ok
    assert '"text": "red"' in (await house.daemon.mailbox.queue.wait_done(message, 60)).result_text


async def test_an_answer_long_after_the_kill_of_who_waited_brings_the_result_all_the_same(
    household: Open,
) -> None:
    dispatch = call("go", "dispatch_team", team="t", prompt="paint")
    house = await household(
        agent("ann", dispatch, say("blue", "painted blue"), tools=["*", "dispatch_team"]),
        agent("ben", ASKS, team="t"),
    )
    message = await house.said("ann", "go", who=EVE)
    question = await asked(house)
    await house.die()
    await house.clock.sleep(3600)
    await house.start()
    await house.until(lambda: "interrupted 60 minutes ago" in "".join(house.texts()))
    assert await house.state_of(message) == "dead"
    assert (await house.command("ann", f"/answer {question.question_id} blue", who=EVE)).ok
    await house.until(lambda: "painted blue" in house.texts())
    await house.clock.sleep(3600)
    assert house.texts().count("painted blue") == 1


async def test_who_answers_an_hour_later_is_told_the_result_once(household: Open) -> None:
    dispatch = call("go", "dispatch_team", team="t", prompt="paint")
    house = await household(
        agent("ann", dispatch, say("blue", "painted blue"), tools=["*", "dispatch_team"]),
        agent("ben", ASKS, team="t"),
    )
    message = await house.said("ann", "go", who=EVE)
    question = await asked(house)
    await house.clock.sleep(3500)
    assert await house.state_of(message) == "leased", "its own time stands still while it waits"
    assert (await house.command("ann", f"/answer {question.question_id} blue", who=EVE)).ok
    done = await house.daemon.mailbox.queue.wait_done(message, 60)
    assert '"text": "blue"' in done.result_text
    await house.clock.sleep(60)
    assert not await house.sql("SELECT 1 FROM messages WHERE kind = 'reply'")


# -- put from outside the turn ---------------------------------------------------------------------


@pytest.fixture
def told(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What the turns were told beside their messages, one text for each segment."""
    seen: list[str] = []
    run = ScriptedSession.run

    def record(self: ScriptedSession, segment: Segment) -> AsyncIterator[EngineEvent]:
        seen.append(segment.system)
        return run(self, segment)

    monkeypatch.setattr(ScriptedSession, "run", record)
    return seen


async def a_task(household: Open, **more: Any) -> tuple[VirtualDaemon, str]:
    """A task of a person's that takes ten seconds, and is at it for five."""
    house = await household(agent("ann", say("dig", "dug", after_s=10)), **more)
    reply = await house.command("ann", "/task new dig", who=EVE)
    assert reply.ok, reply.text
    await house.clock.sleep(5)
    ((task_id,),) = await house.sql("SELECT task_id FROM tasks")
    return house, str(task_id)


def ann(house: VirtualDaemon) -> Principal:
    return Principal(PrincipalKind.AGENT, house.roster.entry("ann").agent_id, "ann")


async def where(house: VirtualDaemon) -> tuple[str, str, int]:
    """The task's state, its message's, and how many segments there were."""
    ((task, message),) = await house.sql(
        "SELECT t.state, m.state FROM tasks t JOIN messages m ON m.message_id = t.current_run"
    )
    ((segments,),) = await house.sql("SELECT count(*) FROM segments")
    return task, message, segments


async def ends_once(house: VirtualDaemon, told: list[str]) -> None:
    """It goes on with the answer, and its result is told once."""
    await house.until(lambda: "dug" in "".join(house.texts()))
    await house.clock.sleep(3600)
    assert (await where(house))[:2] == ("done", "done")
    assert sum("dug" in text for text in house.texts()) == 1
    assert "You have asked: How deep?\nEve has answered: knee-deep" in told[-1]
    assert not any("How deep?" in text for text in told[:-1])


async def test_a_turn_that_ends_while_its_question_is_open_goes_on_with_the_answer(
    household: Open, told: list[str]
) -> None:
    house, task_id = await a_task(household)
    await hub_of(house).ask_parent(task_id, "How deep?", caller=ann(house))
    assert await where(house) == ("waiting", "leased", 1)
    await house.clock.sleep(60)
    assert await where(house) == ("waiting", "parked", 1)
    assert "dug" not in "".join(house.texts()), "what it said before the answer is no result"
    assert (await house.command("ann", "/answer knee-deep", who=EVE)).ok
    await ends_once(house, told)
    assert (await where(house))[2] == 2
    rows = await house.sql("SELECT role, text FROM transcript ORDER BY entry_id")
    assert [role for role, _ in rows] == ["user", "assistant"] * 2


async def test_an_answer_before_the_turns_end_is_told_all_the_same(
    household: Open, told: list[str]
) -> None:
    house, task_id = await a_task(household)
    await hub_of(house).ask_parent(task_id, "How deep?", caller=ann(house))
    await house.clock.sleep(1)
    assert (await house.command("ann", "/answer knee-deep", who=EVE)).ok
    assert await where(house) == ("running", "leased", 1)
    await ends_once(house, told)
    assert (await where(house))[2] == 2


async def test_a_question_put_from_outside_waits_over_a_kill(
    household: Open, told: list[str]
) -> None:
    house, task_id = await a_task(household)
    await hub_of(house).ask_parent(task_id, "How deep?", caller=ann(house), options=("knee-deep",))
    await house.restart(kill=True)
    await house.clock.sleep(3600)
    state, message, segments = await where(house)
    assert (state, message != "leased") == ("waiting", True), "nothing runs until it is answered"
    assert (await house.command("ann", "/answer 1", who=EVE)).ok
    await ends_once(house, told)
    assert (await where(house))[2] == segments + 1


async def test_a_stop_ends_what_waits_for_an_answer(household: Open, told: list[str]) -> None:
    house, task_id = await a_task(household)
    await hub_of(house).ask_parent(task_id, "How deep?", caller=ann(house))
    await house.clock.sleep(60)
    report = await house.daemon.control.stop("all", OPERATOR)
    assert (report.running, report.queued, report.parked) == (0, 0, 1)
    await house.restart(kill=True)
    await house.clock.sleep(3600)
    assert (await where(house))[:2] == ("cancelled", "cancelled")
    assert len(told) == 1
    assert not (await house.command("ann", "/answer knee-deep", who=EVE)).ok


async def test_an_agents_task_asks_that_agent_which_need_not_ask_anybody(
    household: Open, told: list[str]
) -> None:
    house = await household(
        agent(
            "ann",
            call("go", "task_create", prompt="dig", title="hole"),
            say("dig", "dug", after_s=10),
            say("How deep.*", "knee-deep"),
            say("dug", "it is dug"),
        )
    )
    await house.ask("ann", "go")
    await house.clock.sleep(5)
    ((task_id,),) = await house.sql("SELECT task_id FROM tasks")
    await hub_of(house).ask_parent(str(task_id), "How deep?", caller=ann(house))
    await house.until(lambda: "it is dug" in house.texts())
    assert any("ann has answered: knee-deep" in text for text in told)
    assert not await house.sql("SELECT 1 FROM outbox WHERE kind = 'question'")
    assert house.texts().count("it is dug") == 1
