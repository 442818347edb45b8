"""What becomes of a task over its life, on a real store and mailbox."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from agentsup.model.errors import BadRequest, Conflict, Forbidden, NotFound
from agentsup.model.message import DeliverTo, MessageKind, text_of
from agentsup.model.principal import OPERATOR, PersonRole, Principal, PrincipalKind
from agentsup.model.task import DeliveryState, NewSchedule, TaskState
from tests.support.mailbox_fixture import BOB
from tests.support.task_fixture import ANN, BEN, TaskFixture

EVE = Principal(PrincipalKind.PERSON, "eve", "Eve")
CHAT = DeliverTo("chat", agent_id="ann", channel="console", conversation="c1")


async def test_a_task_is_where_its_run_is(rig: TaskFixture) -> None:
    task = await rig.create(name="sheep")
    assert (task.state, task.runs, task.agent_id) == (TaskState.QUEUED, 1, "ann")
    lease = await rig.mail.one()
    assert lease.message.kind is MessageKind.TASK
    assert (await rig.again(task)).state is TaskState.RUNNING
    await rig.mail.finish(lease, "twelve")
    task = await rig.again(task)
    assert (task.state, task.result) == (TaskState.DONE, "twelve")
    assert task.finished_at is not None
    await rig.mail.check()


async def test_a_failed_run_fails_its_task(rig: TaskFixture) -> None:
    task = await rig.create()
    await rig.mail.fail(await rig.mail.one(), "no sheep")
    task = await rig.again(task)
    assert (task.state, task.error_text) == (TaskState.FAILED, "no sheep")


async def test_a_key_gives_the_same_task(rig: TaskFixture) -> None:
    one = await rig.create(idempotency_key="k")
    two = await rig.create(idempotency_key="k")
    assert one.task_id == two.task_id
    with pytest.raises(Conflict):
        await rig.create("count the goats", idempotency_key="k")
    other = await rig.create(caller=BOB, idempotency_key="k")
    assert other.task_id != one.task_id


async def test_many_creates_under_one_key_at_once_are_one(rig: TaskFixture) -> None:
    made = await asyncio.gather(*(rig.create(idempotency_key="k") for _ in range(20)))
    assert len({task.task_id for task in made}) == 1
    assert len(await rig.mail.claim()) == 1


async def test_results_come_back_as_one_turn_of_the_caller(rig: TaskFixture) -> None:
    turn, task = await rig.given()
    await rig.mail.finish(turn, "it is counted")
    run = await rig.mail.one()
    assert run.message.message_id == task.current_run
    await rig.mail.finish(run, "twelve")
    task = await rig.again(task)
    assert (await rig.hub.card(task.task_id, caller=OPERATOR)).delivery is DeliveryState.PENDING
    reply = await rig.mail.one()
    assert reply.message.kind is MessageKind.REPLY
    assert reply.message.session_id == turn.message.session_id
    assert (reply.message.text, reply.message.deliver_to.kind) == ("twelve", "chat")
    await rig.mail.finish(reply, "twelve sheep")
    assert (
        await rig.hub.card(task.task_id, caller=OPERATOR)
    ).delivery is DeliveryState.PENDING  # not shown to the person yet


async def test_a_cancel_during_delivery_changes_no_result(rig: TaskFixture) -> None:
    task = await rig.create(deliver_to=CHAT)
    await rig.mail.finish(await rig.mail.one(), "twelve")
    with pytest.raises(Conflict, match="already done"):
        await rig.hub.cancel(task.task_id, caller=OPERATOR)
    task = await rig.again(task)
    assert (task.state, task.result) == (TaskState.DONE, "twelve")
    assert (await rig.hub.card(task.task_id, caller=OPERATOR)).delivery is DeliveryState.PENDING


async def test_an_ended_task_goes_on_in_its_session(rig: TaskFixture) -> None:
    task = await rig.create()
    first = await rig.mail.one()
    await rig.mail.finish(first, "twelve")
    again = await rig.hub.resume(task.task_id, "and the goats?", caller=OPERATOR)
    assert (again.state, again.runs) == (TaskState.QUEUED, 2)
    second = await rig.mail.one()
    assert second.message.session_id == first.message.session_id
    assert second.message.message_id != first.message.message_id
    await rig.mail.finish(second, "three")
    runs = (await rig.hub.card(task.task_id, caller=OPERATOR)).runs
    assert [(run.run_no, run.result) for run in runs] == [(2, "three"), (1, "twelve")]


async def test_a_failed_resume_keeps_the_session(rig: TaskFixture) -> None:
    task = await rig.create()
    first = await rig.mail.one()
    await rig.mail.finish(first, "twelve")
    await rig.hub.resume(task.task_id, "again", caller=OPERATOR)
    await rig.mail.fail(await rig.mail.one())
    await rig.hub.resume(task.task_id, "once more", caller=OPERATOR)
    assert (await rig.mail.one()).message.session_id == first.message.session_id


async def test_what_works_is_not_resumed_and_not_deleted(rig: TaskFixture) -> None:
    async def is_refused() -> None:
        with pytest.raises(Conflict):
            await rig.hub.resume(task.task_id, "x", caller=OPERATOR)
        with pytest.raises(Conflict):
            await rig.hub.delete(task.task_id, caller=OPERATOR)

    task = await rig.create()
    await is_refused()
    lease = await rig.mail.one()
    await is_refused()
    await rig.mail.finish(lease)
    await rig.hub.delete(task.task_id, caller=OPERATOR)


async def test_a_repeated_resume_is_one_run(rig: TaskFixture) -> None:
    task = await rig.create()
    await rig.mail.finish(await rig.mail.one())
    for _ in range(2):
        found = await rig.hub.resume(task.task_id, "again", caller=OPERATOR, idempotency_key="r")
        assert found.runs == 2
    await rig.mail.finish(await rig.mail.one())
    found = await rig.hub.resume(task.task_id, "again", caller=OPERATOR, idempotency_key="r")
    assert (found.runs, found.state) == (2, TaskState.DONE)


async def test_a_question_put_from_outside_survives_and_is_told(rig: TaskFixture) -> None:
    task = await rig.create(deliver_to=CHAT)
    await rig.mail.one()
    asked = await rig.hub.ask_parent(task.task_id, "goats too?", caller=ANN)
    assert (await rig.hub.ask_parent(task.task_id, "goats too?", caller=ANN)) == asked
    with pytest.raises(Conflict):
        await rig.hub.ask_parent(task.task_id, "and cows?", caller=ANN)
    assert (await rig.again(task)).state is TaskState.WAITING
    await rig.reboot()
    assert await rig.mail.claim() == []  # it waits for the answer
    assert (await rig.again(task)).state is TaskState.WAITING
    answered = await rig.hub.answer(task.task_id, "yes", caller=OPERATOR)
    assert answered.answer == "yes"
    lease = await rig.mail.one()
    assert lease.message.message_id == task.current_run
    with pytest.raises(NotFound):
        await rig.hub.answer(task.task_id, "no", caller=OPERATOR)


@pytest.mark.parametrize(
    "text, options",
    [
        (" ", ()),
        ("x" * 20_001, ()),
        ("which?", ("", "b")),
        ("which?", ("a", "x" * 201)),
        ("which?", ("Yes", "yes ")),
        ("which?", tuple(map(str, range(21)))),
    ],
)
async def test_what_nobody_could_be_shown_is_not_asked(
    rig: TaskFixture, text: str, options: tuple[str, ...]
) -> None:
    task = await rig.create(deliver_to=CHAT)
    await rig.mail.one()
    with pytest.raises(BadRequest):
        await rig.hub.ask_parent(task.task_id, text, caller=ANN, options=options)
    assert (await rig.again(task)).state is TaskState.RUNNING


async def test_the_parent_agent_is_asked_and_its_answer_is_the_answer(rig: TaskFixture) -> None:
    turn, task = await rig.given()
    await rig.mail.finish(turn, "begun")
    run = await rig.mail.one()
    question = await rig.mail.park(run, kind="ask_parent", text="goats too?", options=())
    assert (await rig.again(task)).state is TaskState.WAITING
    asked = await rig.mail.one()
    assert asked.message.kind is MessageKind.DIRECTIVE
    assert asked.message.session_id == turn.message.session_id
    assert text_of(asked.message.parts) == "goats too?"
    assert question.put_as == asked.message.message_id
    await rig.mail.finish(asked, "goats too")
    again = await rig.mail.one()
    assert again.message.message_id == task.current_run
    (told,) = (await rig.hub.card(task.task_id, caller=ANN)).questions
    assert (told.answer, told.answered_by) == ("goats too", "ann")
    assert not await rig.mail.outbox("kind = 'question'")


async def test_an_operators_answer_takes_the_question_back(rig: TaskFixture) -> None:
    turn, task = await rig.given()
    await rig.mail.finish(turn, "begun")
    await rig.mail.park(await rig.mail.one(), kind="ask_parent", text="goats too?", options=())
    await rig.hub.answer(task.task_id, "no", caller=OPERATOR)
    (lease,) = await rig.mail.claim()
    assert lease.message.message_id == task.current_run


async def test_a_person_is_asked_where_the_caller_waits(rig: TaskFixture) -> None:
    turn, task = await rig.given()
    run = await rig.mail.one()
    waiting = asyncio.create_task(rig.runs.wait(task.current_run, 60, asker=rig.asker(turn)))
    while not await rig.mail.sql("SELECT 1 FROM waits"):
        await asyncio.sleep(0)
    await rig.mail.park(run, kind="question", text="goats too?", options=("yes", "no"))
    assert await rig.mail.outbox("kind = 'question'") == [
        ("question", "console", "c1", "goats too?")
    ]
    await rig.hub.answer(task.task_id, "yes", caller=OPERATOR)
    await rig.mail.finish(await rig.mail.one(), "twelve")
    report = await waiting
    assert (report.status, report.run.result) == ("done", "twelve")
    assert await rig.mail.claim() == []  # the result is told once


async def test_a_wait_that_would_never_end_reports_what_is_asked(rig: TaskFixture) -> None:
    turn, task = await rig.given()
    await rig.mail.park(await rig.mail.one(), kind="ask_parent", text="goats too?", options=())
    report = await rig.runs.wait(task.current_run, 60, asker=rig.asker(turn))
    assert (report.status, report.condition) == ("waiting", "blocked_waiting_message")
    assert report.question == "goats too?"


async def test_a_result_that_was_waited_for_is_told_once(rig: TaskFixture) -> None:
    turn, task = await rig.given()
    await rig.mail.finish(await rig.mail.one(), "twelve")
    report = await rig.runs.wait(task.current_run, 60, asker=rig.asker(turn))
    assert report.run.result == "twelve"
    await rig.mail.finish(turn, "twelve sheep")
    assert await rig.mail.claim() == []
    assert (await rig.hub.card(task.task_id, caller=OPERATOR)).delivery is DeliveryState.DELIVERED
    await rig.mail.check()


async def test_a_wait_out_of_patience_leaves_the_result_for_later(rig: TaskFixture) -> None:
    turn, task = await rig.given()
    run = await rig.mail.one()
    report = await rig.runs.wait(task.current_run, 0.01, asker=rig.asker(turn))
    assert (report.status, report.is_ended) == ("running", False)
    await rig.mail.finish(turn, "it takes its time")
    await rig.mail.finish(run, "twelve")
    assert (await rig.mail.one()).message.text == "twelve"


async def test_cancel_ends_the_run_and_its_turn(rig: TaskFixture) -> None:
    task = await rig.create()
    lease = await rig.mail.one()
    task = await rig.hub.cancel(task.task_id, caller=OPERATOR)
    assert task.state is TaskState.CANCELLED
    assert rig.aborted == [lease.message.message_id]
    with pytest.raises(Conflict, match="already cancelled"):
        await rig.hub.cancel(task.task_id, caller=OPERATOR)
    await rig.hub.delete(task.task_id, caller=OPERATOR)


async def test_a_waiting_task_can_be_cancelled_and_deleted(rig: TaskFixture) -> None:
    task = await rig.create(deliver_to=CHAT)
    await rig.mail.park(await rig.mail.one())
    await rig.reboot()
    await rig.hub.cancel(task.task_id, caller=OPERATOR)
    await rig.hub.delete(task.task_id, caller=OPERATOR)
    assert await rig.mail.mailbox.questions.list() == []
    with pytest.raises(NotFound):
        await rig.hub.get(task.task_id, caller=OPERATOR)


async def test_a_folder_is_made_kept_and_put_away(rig: TaskFixture) -> None:
    task = await rig.create(name="sheep")
    folder = rig.hub.folder_of(task.task_id)
    assert list(folder.iterdir()) == [], "there from the start, for whoever has work for it"
    await rig.hub.update(task.task_id, caller=ANN, note="- the fold is empty")
    assert (folder / "TASKMEMORY.md").read_text() == "# sheep\n\n- the fold is empty\n"
    (folder / "mine.txt").write_text("keep")
    await rig.hub.cancel(task.task_id, caller=OPERATOR)
    await rig.hub.delete(task.task_id, caller=OPERATOR)
    kept = folder.parent / ".deleted" / task.task_id
    assert (kept / "mine.txt").read_text() == "keep"
    assert "the fold is empty" in (kept / "TASKMEMORY.md").read_text()


async def test_an_update_that_is_refused_leaves_no_note(rig: TaskFixture) -> None:
    task = await rig.create()
    with pytest.raises(Conflict):
        await rig.hub.update(task.task_id, caller=OPERATOR, note="half", state=TaskState.DONE)
    assert list(rig.hub.folder_of(task.task_id).iterdir()) == []


async def test_a_link_in_place_of_the_notes_is_not_followed(rig: TaskFixture) -> None:
    task = await rig.create()
    target = rig.home / "precious"
    target.write_text("mine")
    notes = rig.hub.folder_of(task.task_id) / "TASKMEMORY.md"
    notes.symlink_to(target)
    with pytest.raises(Conflict):
        await rig.hub.update(task.task_id, caller=ANN, note="gone?")
    assert target.read_text() == "mine"


async def test_others_see_and_touch_nothing(rig: TaskFixture) -> None:
    task = await rig.create(caller=BOB)
    viewer = Principal(PrincipalKind.PERSON, "bob", "Bob", PersonRole.VIEWER)
    for who in (EVE, BEN):
        with pytest.raises(Forbidden):
            await rig.hub.get(task.task_id, caller=who)
        assert await rig.hub.list(caller=who) == []
    for who in (EVE, BEN, ANN, viewer):
        with pytest.raises(Forbidden):
            await rig.hub.cancel(task.task_id, caller=who)
        with pytest.raises(Forbidden):
            await rig.hub.resume(task.task_id, "x", caller=who)
        with pytest.raises(Forbidden):
            await rig.hub.delete(task.task_id, caller=who)
    assert [t.task_id for t in await rig.hub.list(caller=ANN)] == [task.task_id]  # it works on it
    assert [t.task_id for t in await rig.hub.list(caller=BOB)] == [task.task_id]


async def test_progress_is_told(rig: TaskFixture) -> None:
    task = await rig.create()
    await rig.hub.update(task.task_id, caller=ANN, progress="half of it", percent=50)
    task = await rig.again(task)
    assert (task.progress, task.percent) == ("half of it", 50)
    log = await rig.hub.log(task.task_id, caller=OPERATOR)
    assert [event.type for event in log] == ["task.created", "task.progress"]
    with pytest.raises(BadRequest):
        await rig.hub.update(task.task_id, caller=ANN, percent=101)


async def test_a_todo_is_set_by_hand_and_a_run_is_not(rig: TaskFixture) -> None:
    todo = await rig.create(start=False)
    assert todo.state is TaskState.TODO
    assert await rig.mail.claim() == []
    todo = await rig.hub.update(todo.task_id, caller=OPERATOR, state=TaskState.DONE)
    assert todo.state is TaskState.DONE
    started = await rig.create()
    with pytest.raises(Conflict):
        await rig.hub.update(started.task_id, caller=OPERATOR, state=TaskState.DONE)


async def test_a_todo_is_started_with_its_own_prompt(rig: TaskFixture) -> None:
    todo = await rig.create(start=False)
    await rig.hub.resume(todo.task_id, caller=OPERATOR)
    assert (await rig.mail.one()).message.text == "count the sheep"


async def test_an_id_is_found_by_its_end(rig: TaskFixture) -> None:
    task = await rig.create()
    assert (await rig.hub.get(task.task_id[-6:], caller=OPERATOR)).task_id == task.task_id
    with pytest.raises(NotFound):
        await rig.hub.get("zzzz", caller=OPERATOR)


async def test_a_scheduled_task_waits_for_its_time(rig: TaskFixture) -> None:
    task = await rig.create(schedule=NewSchedule(every_s=60))
    assert task.state is TaskState.TODO
    schedule = await rig.schedule(task)
    assert schedule.next_at is not None
    await rig.hub.pause(task.task_id, caller=OPERATOR, is_paused=True)
    await rig.hub.cancel(task.task_id, caller=OPERATOR)
    schedule = await rig.schedule(task)
    assert schedule.next_at is None


async def test_bad_input_stores_nothing(rig: TaskFixture) -> None:
    wrong: tuple[dict[str, Any], ...] = (
        {"prompt": "  "},
        {"timeout_s": 0},
        {"max_usd": -1},
        {"max_usd": 0},
        {"schedule": NewSchedule()},
        {"agent": "anna"},
        {"parent_task_id": "task_gone"},
    )
    for changes in wrong:
        with pytest.raises((BadRequest, NotFound)):
            await rig.create(**{"prompt": "x", **changes})
    assert await rig.hub.list(caller=OPERATOR) == []
    assert await rig.mail.claim() == []


async def test_an_agents_task_may_be_done_in_anothers_place(rig: TaskFixture) -> None:
    task = await rig.create(caller=ANN, agent="ben")
    assert (task.agent_id, task.target) == ("ann", "agent:ben")
    lease = await rig.mail.one("ann")
    assert await rig.mail.sql("SELECT session_id, agent_id FROM session_personas") == [
        (lease.message.session_id, "ben")
    ]


async def test_what_an_agent_begins_for_a_person_is_theirs_too(rig: TaskFixture) -> None:
    _, task = await rig.given()
    assert (task.owner.subject, task.asked_by) == ("ann", "bob")
    assert [t.task_id for t in await rig.hub.list(caller=BOB)] == [task.task_id]
    assert await rig.hub.list(caller=EVE) == []
    assert (await rig.hub.cancel(task.task_id, caller=BOB)).state is TaskState.CANCELLED


async def test_a_removed_agents_task_is_not_started_again(rig: TaskFixture) -> None:
    task = await rig.create()
    await rig.mail.finish(await rig.mail.one())
    rig.directory.remove("ann")
    with pytest.raises(NotFound, match="was removed"):
        await rig.hub.resume(task.task_id, "again", caller=OPERATOR)
    assert (await rig.again(task)).state is TaskState.DONE


async def test_a_question_for_people_goes_to_people_whoever_handed_it_on(rig: TaskFixture) -> None:
    turn = await rig.turn()
    await rig.create(caller=ANN, asker=rig.asker(turn))
    await rig.mail.finish(turn, "begun")
    await rig.mail.park(await rig.mail.one(), kind="question", text="goats too?", options=())
    assert await rig.mail.claim() == []
    assert await rig.mail.outbox("kind = 'question'") == [
        ("question", "console", "c1", "goats too?")
    ]


async def test_an_agent_in_whose_name_a_program_asked_is_not_made_to_answer(
    rig: TaskFixture,
) -> None:
    task = await rig.create(caller=ANN)
    await rig.mail.one()
    await rig.hub.ask_parent(task.task_id, "goats too?", caller=OPERATOR)
    await rig.reboot()
    assert await rig.mail.claim() == []
    assert (await rig.again(task)).state is TaskState.WAITING


async def test_what_was_asked_and_answered_is_told_when_asked_again(rig: TaskFixture) -> None:
    task = await rig.create(deliver_to=CHAT)
    await rig.mail.one()
    asked = await rig.hub.ask_parent(task.task_id, "goats too?", caller=ANN)
    await rig.hub.answer(task.task_id, "yes", caller=OPERATOR)
    again = await rig.hub.ask_parent(task.task_id, "goats too?", caller=ANN)
    assert (again.question_id, again.answer) == (asked.question_id, "yes")


async def test_who_may_only_look_gives_no_task(rig: TaskFixture) -> None:
    viewer = Principal(PrincipalKind.PERSON, "vic", "Vic", PersonRole.VIEWER)
    with pytest.raises(Forbidden):
        await rig.create(caller=viewer)


async def test_a_result_in_a_chat_says_what_it_belongs_to(rig: TaskFixture) -> None:
    task = await rig.create(caller=BOB, name="sheep", deliver_to=CHAT)
    await rig.mail.finish(await rig.mail.one(), "twelve")
    text = f"Result of task {task.task_id[-8:]} “sheep”:\ntwelve"
    assert await rig.mail.outbox() == [("answer", "console", "c1", text)]


async def test_tasks_that_ran_at_the_same_times_can_all_be_deleted(rig: TaskFixture) -> None:
    tasks = [await rig.create(schedule=NewSchedule(cron="* * * * *")) for _ in range(3)]
    for _ in range(2):
        rig.mail.later(60)
        for task in tasks:
            await rig.settle(task)
    for lease in await rig.mail.claim():
        await rig.mail.finish(lease)
    for task in tasks:
        await rig.hub.delete(task.task_id, caller=OPERATOR)
    assert await rig.hub.list(caller=OPERATOR) == []


async def test_a_list_is_narrowed_to_an_agent_for_whoever_asks(rig: TaskFixture) -> None:
    at_ann = await rig.create(caller=BOB, agent="ann")
    at_ben = await rig.create(caller=BOB, agent="ben")
    own = await rig.create(caller=ANN)  # in ann's own mailbox
    given = await rig.create(caller=EVE, agent="ann")

    async def listed(caller: Principal, agent_id: str = "") -> list[str]:
        found = await rig.hub.list(caller=caller, agent_id=agent_id)
        return [task.task_id for task in reversed(found)]

    assert await listed(BOB) == [at_ann.task_id, at_ben.task_id]
    assert await listed(BOB, "ann") == [at_ann.task_id]
    assert await listed(BOB, "ben") == [at_ben.task_id]
    assert await listed(BOB, "main") == []
    assert await listed(ANN) == [at_ann.task_id, own.task_id, given.task_id]
    assert await listed(ANN, "ann") == [at_ann.task_id, own.task_id, given.task_id]
    assert await listed(ANN, "ben") == [], "and nothing of others"
    assert await listed(OPERATOR, "ben") == [at_ben.task_id]


async def test_the_parts_of_a_task_are_found_behind_many_others(rig: TaskFixture) -> None:
    whole = await rig.create(start=False)
    part = await rig.create(start=False, parent_task_id=whole.task_id)
    for _ in range(3):
        await rig.create(start=False)
    found = await rig.hub.list(caller=ANN, parent_task_id=whole.task_id, limit=1)
    assert [each.task_id for each in found] == [part.task_id]
