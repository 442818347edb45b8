"""An agent that was to be asked is not asked any more once the question is closed, however that
came."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import pytest

from agentsup.model.message import Lease, MessageKind, MessageState
from agentsup.model.principal import OPERATOR
from agentsup.model.question import Question
from agentsup.model.task import Task, TaskState
from tests.support.task_fixture import ANN, TaskFixture

Closing = Callable[[TaskFixture, Task, Question], Awaitable[object]]


async def _expires(rig: TaskFixture, task: Task, asked: Question) -> None:
    rig.mail.later(61)
    await rig.mail.mailbox.deadlines.expire()


WAYS: dict[str, Closing] = {
    "the task is answered": lambda rig, task, asked: rig.hub.answer(
        task.task_id, "no", caller=OPERATOR
    ),
    "a person answers it": lambda rig, task, asked: rig.mail.mailbox.questions.answer(
        asked.question_id, "no", OPERATOR
    ),
    "its time is over": _expires,
    "the task is cancelled": lambda rig, task, asked: rig.hub.cancel(task.task_id, caller=OPERATOR),
    "the message is cancelled": lambda rig, task, asked: rig.mail.mailbox.control.cancel(
        task.current_run, OPERATOR
    ),
    "the run is stopped": lambda rig, task, asked: rig.runs.stop(task.current_run, OPERATOR),
    "its session is stopped": lambda rig, task, asked: rig.mail.mailbox.control.stop(
        f"session:{asked.session_id}", OPERATOR
    ),
}


async def _asked(rig: TaskFixture) -> tuple[Task, Question]:
    """A task that a turn has given, and the question that its run has for that agent."""
    turn, task = await rig.given()
    await rig.mail.finish(turn, "begun")
    asked = await rig.mail.park(
        await rig.mail.one(), kind="ask_parent", text="goats too?", options=(), timeout_s=60.0
    )
    return task, asked


@pytest.mark.parametrize("way", WAYS)
async def test_nobody_is_asked_what_is_closed(rig: TaskFixture, way: str) -> None:
    task, asked = await _asked(rig)
    assert await rig.mail.state_of(asked.put_as) == "queued"
    await WAYS[way](rig, task, asked)
    assert await rig.mail.state_of(asked.put_as) == "cancelled"
    claimed = [lease.message for lease in await rig.mail.claim()]
    assert MessageKind.DIRECTIVE not in [message.kind for message in claimed]
    await rig.mail.check()


async def test_a_question_that_is_not_to_be_answered_is_answered_so(rig: TaskFixture) -> None:
    turn, task = await rig.given()
    await rig.mail.finish(turn, "begun")
    asked = await rig.mail.park(
        await rig.mail.one(), kind="ask_parent", text="goats too?", options=()
    )
    await rig.mail.mailbox.control.cancel(asked.put_as, OPERATOR)
    run = await rig.mail.one()
    assert (run.message.message_id, run.message.state) == (task.current_run, MessageState.LEASED)
    (told,) = (await rig.hub.card(task.task_id, caller=OPERATOR)).questions
    assert "There is no answer" in str(told.answer)
    events = "SELECT count(*) FROM events WHERE type = 'message.cancelled' AND message_id = ?"
    assert await rig.mail.sql(events, asked.put_as) == [(1,)]


@pytest.mark.parametrize("way", ["cancel", "stop"])
async def test_work_that_asks_twice_waits_for_both(rig: TaskFixture, way: str) -> None:
    """Else a question stays open for ever once its message is cancelled in the queue."""
    task = await rig.create()
    asked = await rig.mail.park(await rig.mail.one())
    aside = await rig.hub.ask_parent(task.task_id, "goats too?", caller=ANN)
    await rig.mail.mailbox.questions.answer(asked.question_id, "yes", OPERATOR)
    assert await rig.mail.claim() == []
    assert (await rig.again(task)).state is TaskState.WAITING
    if way == "cancel":
        await rig.hub.cancel(task.task_id, caller=OPERATOR)
    else:
        await rig.mail.mailbox.control.stop("all", OPERATOR)
    assert await rig.mail.mailbox.questions.list() == []
    assert (await rig.mail.mailbox.questions.get(aside.question_id)).state == "cancelled"


async def test_work_that_asked_twice_goes_on_after_both(rig: TaskFixture) -> None:
    task = await rig.create()
    asked = await rig.mail.park(await rig.mail.one())
    aside = await rig.hub.ask_parent(task.task_id, "goats too?", caller=ANN)
    await rig.mail.mailbox.questions.answer(aside.question_id, "no", OPERATOR)
    assert await rig.mail.claim() == []
    await rig.mail.mailbox.questions.answer(asked.question_id, "yes", OPERATOR)
    assert (await rig.mail.one()).message.message_id == task.current_run


# -- while the agent is at it ----------------------------------------------------------------------


async def _at_work(rig: TaskFixture) -> tuple[Task, Question, Lease]:
    """A task whose question the agent that gave it is at."""
    task, asked = await _asked(rig)
    at_it = await rig.mail.one()
    assert at_it.message.message_id == asked.put_as
    return task, asked, at_it


async def _is_killed(rig: TaskFixture, at_it: Lease) -> None:
    await rig.reboot()
    await rig.mail.claim()


CUTS: dict[str, Callable[[TaskFixture, Lease], Awaitable[object]]] = {
    "it fails for now": lambda rig, at_it: rig.mail.mailbox.leases.retry(
        at_it, code="x", text="busy"
    ),
    "it is given back": lambda rig, at_it: rig.mail.mailbox.leases.release(at_it),
    "its agent crashes": lambda rig, at_it: rig.mail.mailbox.leases.release_all(
        "i1", culprits=None, text="crashed"
    ),
    "the daemon is killed": _is_killed,
    "it asks people": lambda rig, at_it: rig.mail.park(at_it),
}


@pytest.mark.parametrize("cut", CUTS)
@pytest.mark.parametrize("way", WAYS)
async def test_a_turn_that_is_cut_off_does_not_begin_anew_once_its_question_is_closed(
    rig: TaskFixture, way: str, cut: str
) -> None:
    task, asked, at_it = await _at_work(rig)
    await WAYS[way](rig, task, asked)
    assert await rig.mail.state_of(asked.put_as) == "leased", "who is at it is let finish"
    await CUTS[cut](rig, at_it)
    assert (await rig.mail.mailbox.messages.get(asked.put_as)).error_code == "taken_back"
    assert await rig.mail.mailbox.questions.list() == [], "and nobody else is asked for it"
    assert not await rig.mail.outbox("state = 'pending' AND kind = 'question'")
    rig.mail.later(300)
    claimed = [lease.message.kind for lease in await rig.mail.claim()]
    assert MessageKind.DIRECTIVE not in claimed
    events = "SELECT count(*) FROM events WHERE type = 'message.cancelled' AND message_id = ?"
    assert await rig.mail.sql(events, asked.put_as) == [(1,)]
    assert await rig.mail.sql("SELECT * FROM waits") == []
    await rig.mail.check()


@pytest.mark.parametrize("way", [*WAYS, "everything is stopped"])
async def test_a_person_who_was_asked_for_it_need_not_answer_any_more(
    rig: TaskFixture, way: str
) -> None:
    task, asked, at_it = await _at_work(rig)
    onward = await rig.mail.park(at_it)
    if way in WAYS:
        await WAYS[way](rig, task, asked)
    else:
        await rig.mail.mailbox.control.stop("all", OPERATOR)
    assert await rig.mail.state_of(asked.put_as) == "cancelled"
    assert (await rig.mail.mailbox.questions.get(onward.question_id)).state == "cancelled"
    events = "SELECT message_id FROM events WHERE type = 'message.cancelled' GROUP BY 1"
    assert not await rig.mail.sql(f"{events} HAVING count(*) > 1")
    await rig.mail.check()


async def test_a_turn_that_ends_after_its_question_is_closed_ends_as_it_does(
    rig: TaskFixture,
) -> None:
    _, asked, at_it = await _at_work(rig)
    await rig.mail.mailbox.questions.answer(asked.question_id, "no", OPERATOR)
    await rig.mail.finish(at_it, "yes")
    assert await rig.mail.state_of(asked.put_as) == "done"
    assert (await rig.mail.mailbox.questions.get(asked.question_id)).answer == "no"


async def test_a_turn_whose_question_is_open_is_tried_again(rig: TaskFixture) -> None:
    _, asked, at_it = await _at_work(rig)
    await rig.mail.mailbox.leases.retry(at_it, code="x", text="busy")
    rig.mail.later(10)
    await rig.mail.park(await rig.mail.one(), timeout_s=30.0)
    rig.mail.later(31)
    await rig.mail.mailbox.deadlines.expire()
    await rig.reboot()
    again = await rig.mail.one()
    assert again.message.message_id == asked.put_as
    await rig.mail.finish(again, "yes")
    assert (await rig.mail.mailbox.questions.get(asked.question_id)).answer == "yes"
