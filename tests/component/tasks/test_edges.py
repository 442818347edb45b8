"""Tasks where two things meet: a repetition after its time, an end beside a schedule, a full disk."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime

import pytest

from agentsup.mailbox.mail import to_asker
from agentsup.model.errors import (
    BadRequest,
    Conflict,
    DepthExceeded,
    Forbidden,
    LeaseLost,
    NotFound,
    Overloaded,
)
from agentsup.model.ids import AgentId
from agentsup.model.message import Lease, MessageKind
from agentsup.model.principal import OPERATOR, Principal
from agentsup.model.task import (
    MAX_RUN_DEPTH,
    MAX_SCHEDULES,
    MAX_TODOS_OF_TURN,
    NewSchedule,
    OccurrenceSkipReason,
    Overlap,
    Run,
    RunKind,
    SkippedOccurrence,
    TaskState,
)
from agentsup.store import Tx, prune
from agentsup.tasks import Briefing, Folders, NewRun, RunReport, Runs, skip_text, starting
from agentsup.tasks.rows import retention_rules
from agentsup.tasks.scheduler import BEHIND_MAX
from tests.support.mailbox_fixture import BOB
from tests.support.task_fixture import ANN, BEN, TaskFixture


async def test_a_key_stands_for_its_task_also_when_its_time_is_past(rig: TaskFixture) -> None:
    at = datetime.fromtimestamp(rig.mail.clock.now_ms() / 1000 + 60, UTC).isoformat()
    one = await rig.create(schedule=NewSchedule(at=at), idempotency_key="k")
    rig.mail.later(120)
    two = await rig.create(schedule=NewSchedule(at=at), idempotency_key="k")
    assert two.task_id == one.task_id
    assert len(await rig.hub.list(caller=OPERATOR)) == 1


async def test_a_task_known_by_its_key_has_a_folder_though_its_first_writer_died(
    rig: TaskFixture,
) -> None:
    """Killed between the commit and the folder, nobody was told of it; whoever asks again is."""
    task = await rig.create(start=False, idempotency_key="k")
    rig.hub.folder_of(task.task_id).rmdir()
    again = await rig.create(start=False, idempotency_key="k")
    assert again.task_id == task.task_id
    assert rig.hub.folder_of(task.task_id).is_dir()


async def test_a_todo_is_begun_once_under_a_key(rig: TaskFixture) -> None:
    task = await rig.create(start=False)
    for _ in range(2):
        begun = await rig.hub.resume(task.task_id, caller=OPERATOR, idempotency_key="k")
        assert begun.runs == 1
    await rig.mail.finish(await rig.mail.one())
    over = await rig.hub.resume(task.task_id, caller=OPERATOR, idempotency_key="k")
    assert (over.runs, over.state) == (1, TaskState.DONE)
    with pytest.raises(Conflict, match="another request"):
        await rig.hub.resume(task.task_id, "goats", caller=OPERATOR, idempotency_key="k")


async def test_a_waiting_task_is_resumed_with_the_answer(rig: TaskFixture) -> None:
    """Whoever gave the work has only the text; which question it answers is plain."""
    task = await rig.create()
    await rig.mail.park(await rig.mail.one(), kind="ask_parent", text="goats too?", options=())
    assert (await rig.again(task)).state is TaskState.WAITING
    with pytest.raises(Conflict, match="waiting"):
        await rig.hub.resume(task.task_id, " ", caller=OPERATOR)
    for _ in range(2):  # repeated under its key, it is one answer
        await rig.hub.resume(task.task_id, "yes", caller=OPERATOR, idempotency_key="k")
    (told,) = (await rig.hub.card(task.task_id, caller=OPERATOR)).questions
    assert (told.answer, told.answered_by) == ("yes", "operator")
    lease = await rig.mail.one()
    assert lease.message.message_id == task.current_run, "the same run goes on"
    await rig.mail.finish(lease)
    assert (await rig.again(task)).runs == 1
    await rig.hub.resume(task.task_id, "yes", caller=OPERATOR, idempotency_key="k")
    assert (await rig.again(task)).runs == 1, "nor does a late repetition begin anything"


async def test_a_schedule_is_given_other_times(rig: TaskFixture) -> None:
    task = await rig.create(schedule=NewSchedule(every_s=60.0))
    plain = await rig.create()
    rig.mail.later(60)  # a time has come that nobody has looked at yet
    changed = await rig.hub.reschedule(
        task.task_id, NewSchedule(cron="0 9 * * *", zone="Europe/Zurich"), caller=OPERATOR
    )
    times = await rig.schedule(changed)
    assert (times.kind, times.spec, times.zone) == ("cron", "0 9 * * *", "Europe/Zurich")
    (run,) = (await rig.hub.card(task.task_id, caller=OPERATOR)).runs
    assert run.skipped == SkippedOccurrence(OccurrenceSkipReason.CHANGED, {"who": "operator"})
    with pytest.raises(BadRequest):
        await rig.hub.reschedule(task.task_id, NewSchedule(cron="never"), caller=OPERATOR)
    with pytest.raises(NotFound, match="no schedule"):
        await rig.hub.reschedule(plain.task_id, NewSchedule(every_s=60.0), caller=OPERATOR)
    with pytest.raises(Forbidden):
        await rig.hub.reschedule(task.task_id, NewSchedule(every_s=60.0), caller=BEN)
    kept = await rig.schedule(task)
    assert kept.spec == "0 9 * * *", "a refusal changes nothing"


async def test_a_schedule_that_has_ended_goes_on_with_other_times(rig: TaskFixture) -> None:
    task = await rig.create(schedule=NewSchedule(every_s=60.0))
    await rig.hub.cancel(task.task_id, caller=OPERATOR)
    await rig.hub.reschedule(task.task_id, NewSchedule(every_s=30.0), caller=OPERATOR)
    rig.mail.later(30)
    await rig.settle(task)
    assert len(await rig.mail.claim()) == 1


@pytest.mark.parametrize("state", [TaskState.DONE, TaskState.CANCELLED])
async def test_a_task_that_was_set_to_an_end_has_no_further_times(
    rig: TaskFixture, state: TaskState
) -> None:
    task = await rig.create(schedule=NewSchedule(every_s=60.0))
    await rig.hub.update(task.task_id, caller=OPERATOR, state=state)
    rig.mail.later(60)
    await rig.settle(task)
    assert await rig.mail.claim() == []
    assert (await rig.again(task)).state is state


async def test_the_run_at_work_asks_while_a_later_time_waits_behind_it(rig: TaskFixture) -> None:
    schedule = NewSchedule(every_s=60.0, overlap=Overlap.QUEUE)
    task = await rig.create(schedule=schedule)
    rig.mail.later(60)
    await rig.settle(task)
    lease = await rig.mail.one()
    rig.mail.later(60)
    await rig.settle(task)
    asked = await rig.hub.ask_parent(task.task_id, "goats too?", caller=OPERATOR)
    assert asked.message_id == lease.message.message_id


async def test_what_is_written_down_is_accepted_whatever_the_disk_says(rig: TaskFixture) -> None:
    (rig.home / "tasks").write_text("no folder")
    task = await rig.create(idempotency_key="k")
    lease = await rig.mail.one()
    folders = Folders(rig.home / "tasks", rig.hub.folder_of)
    brief = await Briefing(rig.mail.db, folders, timeout_s=lambda: 60.0).of(lease.message)
    assert "It has no folder now" in brief.text
    assert (brief.folders, brief.hard_s) == ((), 60.0)
    await rig.mail.finish(lease, "twelve")
    assert (await rig.again(task)).state is TaskState.DONE


async def test_a_task_is_deleted_also_where_its_folder_can_not_be_moved(rig: TaskFixture) -> None:
    task = await rig.create(start=False)
    (rig.home / "tasks" / ".deleted").write_text("no folder")
    await rig.hub.delete(task.task_id, caller=OPERATOR)
    assert await rig.hub.list(caller=OPERATOR) == []
    assert rig.hub.folder_of(task.task_id).is_dir()


# -- what hangs on a run ---------------------------------------------------------------------------


async def _handed_on(rig: TaskFixture) -> tuple[Lease, Run]:
    """A turn of ann's, and a run in the background that it has started."""
    turn = await rig.turn()
    back = to_asker(turn.message, waited=False)
    new = NewRun(RunKind.SPAWN, AgentId("ann"), "count", ANN, back, parent=turn.message)
    return turn, await rig.start_run(new)


@pytest.mark.parametrize("is_begun", [True, False])
async def test_a_note_to_a_run_begins_no_turn_once_that_is_stopped(
    rig: TaskFixture, is_begun: bool
) -> None:
    _, run = await _handed_on(rig)
    if is_begun:
        await rig.mail.one()
    await rig.runs.steer(run.run_id, "hurry", ANN)
    await rig.runs.stop(run.run_id, ANN)
    assert await rig.mail.claim() == []
    await rig.mail.check()


@pytest.mark.parametrize("is_begun", [True, False])
async def test_a_note_to_a_run_begins_no_turn_once_whoever_wants_it_is_stopped(
    rig: TaskFixture, is_begun: bool
) -> None:
    turn, run = await _handed_on(rig)
    if is_begun:
        await rig.mail.one()
    await rig.runs.steer(run.run_id, "hurry", ANN)
    await rig.mail.mailbox.control.stop(f"agent:{turn.message.agent_id}", OPERATOR)
    assert await rig.mail.state_of(run.run_id) == "cancelled"
    assert await rig.mail.claim() == []
    await rig.mail.check()


async def test_a_note_to_a_cancelled_task_begins_no_turn(rig: TaskFixture) -> None:
    task = await rig.create()
    await rig.mail.one()
    await rig.runs.steer(task.current_run, "hurry", OPERATOR)
    await rig.hub.cancel(task.task_id, caller=OPERATOR)
    assert await rig.mail.claim() == []


async def test_nobody_waits_for_a_run_whose_end_waits_for_their_own_answer(
    rig: TaskFixture,
) -> None:
    turn, run = await _handed_on(rig)
    await rig.mail.one()
    await rig.runs.ask_parent(run.run_id, "goats too?")  # its turn goes on meanwhile
    began_s = rig.mail.clock.monotonic()
    report = await rig.runs.wait(run.run_id, 300, asker=rig.asker(turn))
    assert report.question == "goats too?"
    assert rig.mail.clock.monotonic() - began_s < 1
    await rig.mail.finish(turn)
    assert (await rig.mail.one()).message.text.startswith("goats too?")


async def test_a_result_that_comes_while_a_wait_is_given_up_comes_once(
    rig: TaskFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The run ends between the end of the wait and the report that the turn gets."""
    turn, run = await _handed_on(rig)
    at_work, report_of = await rig.mail.one(), Runs.report

    async def reported_late(runs: Runs, run_id: str) -> RunReport:
        await rig.mail.finish(at_work, "42 sheep")
        return await report_of(runs, run_id)

    monkeypatch.setattr(Runs, "report", reported_late)
    report = await rig.runs.wait(run.run_id, 0.01, asker=rig.asker(turn))
    assert report.run.result == "42 sheep"
    await rig.mail.finish(turn)
    assert await rig.mail.claim() == [], "the turn has the result already"
    await rig.mail.check()


async def test_what_a_bounded_run_hands_on_counts_for_its_bound(rig: TaskFixture) -> None:
    task = await rig.create(caller=ANN, max_usd=1.0)
    lease = await rig.mail.one()
    back = to_asker(lease.message, waited=False)
    new = NewRun(
        RunKind.SPAWN, AgentId("ann"), "count", ANN, back, parent=lease.message, max_usd=0.5
    )
    run = await rig.start_run(new)
    below = (await rig.mail.one()).message
    deeper = await rig.start_run(replace(new, parent=below, max_usd=None))
    counted = await rig.mail.sql(
        "SELECT subject FROM budget_members WHERE message_id = ? ORDER BY subject", deeper.run_id
    )
    assert counted == [(run.run_id,), (task.task_id,)]


async def test_two_agents_that_ask_each_other_use_up_the_messages_of_their_work(
    rig: TaskFixture,
) -> None:
    turn, run = await _handed_on(rig)
    await rig.mail.finish(turn)
    for number in range(198):  # beside the turn and the run
        lease = await _run_at_work(rig)
        await rig.runs.ask_parent(run.run_id, f"goats {number}?")
        await rig.mail.mailbox.leases.release(lease)
        await rig.mail.finish(await rig.mail.one(), "yes")
    await _run_at_work(rig)
    with pytest.raises(DepthExceeded, match="has used its 200 messages"):
        await rig.runs.ask_parent(run.run_id, "and cows?")


# -- schedules that turns make ---------------------------------------------------------------------


async def test_work_that_sets_itself_going_by_schedules_ends(rig: TaskFixture) -> None:
    lease = await rig.turn()
    for _ in range(MAX_RUN_DEPTH):
        schedule = NewSchedule(every_s=60.0)
        task = await rig.create(caller=ANN, asker=rig.asker(lease), schedule=schedule)
        await rig.mail.finish(lease)
        rig.mail.later(60)
        await rig.settle(task)
        lease = await _run_at_work(rig)
        await rig.hub.pause(task.task_id, caller=OPERATOR, is_paused=True)
    asker = rig.asker(lease)
    with pytest.raises(DepthExceeded):
        await rig.create(caller=ANN, asker=asker, schedule=NewSchedule(every_s=60.0))
    todo = await rig.create(caller=ANN, asker=asker, start=False)
    assert (await rig.hub.resume(todo.task_id, caller=OPERATOR)).runs == 1  # a person may begin it


async def test_the_turns_of_an_agent_keep_so_many_schedules_going(rig: TaskFixture) -> None:
    asker = rig.asker(await rig.turn())
    schedule = NewSchedule(every_s=60.0)
    made = [
        await rig.create(caller=ANN, asker=asker, schedule=schedule) for _ in range(MAX_SCHEDULES)
    ]
    with pytest.raises(Overloaded, match="cancel tasks"):
        await rig.create(caller=ANN, asker=asker, schedule=schedule)
    await rig.hub.cancel(made[0].task_id, caller=ANN)
    await rig.create(caller=ANN, asker=asker, schedule=schedule)


async def test_a_turn_and_an_agent_write_down_so_many_tasks(
    rig: TaskFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    await rig.mail.put("please plan")
    asker = rig.asker(await rig.mail.one())
    made = [
        await rig.create(caller=ANN, asker=asker, start=False) for _ in range(MAX_TODOS_OF_TURN)
    ]
    with pytest.raises(Overloaded, match="this turn has written down"):
        await rig.create(caller=ANN, asker=asker, start=False)
    await rig.create(caller=OPERATOR, start=False)
    await rig.hub.cancel(made[0].task_id, caller=ANN)
    await rig.create(caller=ANN, asker=asker, start=False)
    monkeypatch.setattr(starting, "MAX_TODOS", MAX_TODOS_OF_TURN)
    with pytest.raises(Overloaded, match=f"{ANN.label} has written down"):
        await rig.create(caller=ANN, start=False)


async def test_the_times_of_a_schedule_count_for_the_bound_of_the_run_that_made_it(
    rig: TaskFixture,
) -> None:
    above = await rig.create(caller=ANN, max_usd=1.0)
    lease = await rig.mail.one()
    task = await rig.create(caller=ANN, asker=rig.asker(lease), schedule=NewSchedule(every_s=60.0))
    rig.mail.later(60)
    await rig.settle(task)
    run = (await rig.again(task)).current_run
    counted = await rig.mail.sql("SELECT subject FROM budget_members WHERE message_id = ?", run)
    assert counted == [(above.task_id,)]


async def test_a_paused_schedule_goes_on_now_after_a_clock_that_was_a_year_ahead(
    rig: TaskFixture,
) -> None:
    year_ms = 365 * 86_400_000
    task = await rig.create(schedule=NewSchedule(every_s=60.0))
    rig.mail.clock.jump_ms(year_ms)
    await rig.settle(task)
    await rig.hub.pause(task.task_id, caller=OPERATOR, is_paused=True)
    rig.mail.clock.jump_ms(-year_ms)
    await rig.hub.pause(task.task_id, caller=OPERATOR, is_paused=False)
    schedule = await rig.schedule(task)
    assert schedule.next_at is not None
    assert schedule.next_at - rig.mail.clock.now_ms() <= 60_000


async def test_a_schedule_that_has_ended_is_not_brought_back_by_a_pause(rig: TaskFixture) -> None:
    task = await rig.create(schedule=NewSchedule(every_s=60.0))
    await rig.hub.cancel(task.task_id, caller=OPERATOR)
    for is_paused in (True, False):
        with pytest.raises(Conflict, match="has ended"):
            await rig.hub.pause(task.task_id, caller=OPERATOR, is_paused=is_paused)


# -- many tasks ------------------------------------------------------------------------------------


@pytest.mark.parametrize("caller", [ANN, BOB])
async def test_pages_of_tasks_are_the_same_as_all_of_them(
    rig: TaskFixture, caller: Principal
) -> None:
    asker = rig.asker(await rig.turn())
    mine = []
    for number in range(12):
        by, where = [(ANN, asker), (BOB, None), (OPERATOR, None), (BEN, None)][number % 4]
        task = await rig.create(
            caller=by, asker=where, agent="" if by is ANN else "ben", start=False
        )
        if by is ANN or by is caller:  # what ann begins for Bob is his, too
            mine.append(task.task_id)
    whole = [task.task_id for task in await rig.hub.list(caller=caller)]
    assert whole == mine[::-1]
    paged: list[str] = []
    while page := await rig.hub.list(
        caller=caller, before=paged[-1] if paged else "", limit=2, states=(TaskState.TODO,)
    ):
        paged += [task.task_id for task in page]
    assert paged == whole
    assert await rig.hub.list(caller=caller, states=(TaskState.DONE,)) == []


async def test_times_that_wait_behind_one_another_leave_room_for_people(rig: TaskFixture) -> None:
    task = await rig.create(schedule=NewSchedule(every_s=60.0, overlap=Overlap.QUEUE))
    for _ in range(BEHIND_MAX + 3):
        rig.mail.later(60)
        await rig.settle(task)
    runs = (await rig.hub.card(task.task_id, caller=OPERATOR, runs=500)).runs
    assert len([run for run in runs if run.skipped is None]) == BEHIND_MAX
    assert {skip_text(run.skipped) for run in runs if run.skipped} == {
        f"{BEHIND_MAX} runs before it had not ended"
    }
    await rig.mail.finish(await rig.mail.one())
    rig.mail.later(60)
    await rig.settle(task)
    assert (await rig.again(task)).runs == BEHIND_MAX + 1


async def test_old_runs_go_also_where_very_many_before_them_stay_as_dead_letters(
    rig: TaskFixture,
) -> None:
    task = await rig.create()
    await rig.mail.one()

    def fill(tx: Tx) -> None:
        numbers = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 2500)"
        columns = (
            "agent_id, session_id, kind, lane, priority, parts, principal, deliver_to, root_id,"
            " accepted_at, path"
        )
        tx.execute(
            f"INSERT INTO messages (message_id, state, {columns}) {numbers}"
            f" SELECT printf('msg_%04d', i), 'dead', {columns} FROM n, messages"
            " WHERE message_id = ?",
            (task.current_run,),
        )
        tx.execute(
            f"INSERT INTO runs (run_id, kind, agent_id, created_at) {numbers}"
            " SELECT printf('msg_%04d', i), 'spawn', 'ann', i FROM n"
        )
        tx.execute(
            "INSERT INTO runs (run_id, kind, agent_id, created_at)"
            " VALUES ('msg_gone', 'spawn', 'ann', 3000)"
        )

    await rig.mail.db.write(fill)
    gone = await prune(rig.mail.db, retention_rules(), clock=rig.mail.clock)
    assert gone == {"runs": 1, "tasks": 0}
    assert await rig.mail.sql("SELECT 1 FROM runs WHERE run_id = 'msg_gone'") == []


async def test_a_turn_that_was_stopped_sets_nothing_going_by_a_schedule(rig: TaskFixture) -> None:
    turn = await rig.turn()
    await rig.mail.mailbox.control.stop(f"session:{turn.message.session_id}", OPERATOR)
    with pytest.raises(LeaseLost):
        await rig.create(caller=ANN, asker=rig.asker(turn), schedule=NewSchedule(every_s=60.0))
    assert await rig.hub.list(caller=OPERATOR) == []


@pytest.mark.parametrize("what", ["result", "question", "note"])
async def test_what_comes_back_to_a_bounded_run_counts_for_its_bound(
    rig: TaskFixture, what: str
) -> None:
    task = await rig.create(caller=ANN, max_usd=1.0)
    lease = await rig.mail.one()
    back = to_asker(lease.message, waited=False)
    new = NewRun(RunKind.SPAWN, AgentId("ann"), "count", ANN, back, parent=lease.message)
    run = await rig.start_run(new)
    below = await rig.mail.one()
    if what == "note":
        await rig.runs.steer(task.current_run, "hurry", OPERATOR)
    elif what == "question":
        await rig.runs.ask_parent(run.run_id, "goats too?")
    else:
        await rig.mail.finish(below, "twelve")
    await rig.mail.finish(lease, "begun")
    (came,) = [each.message for each in await rig.mail.claim() if each.message.text != "begun"]
    assert came.session_id == lease.message.session_id
    counted = await rig.mail.sql(
        "SELECT subject FROM budget_members WHERE message_id = ?", came.message_id
    )
    assert counted == [(task.task_id,)]


async def _run_at_work(rig: TaskFixture) -> Lease:
    (lease,) = [each for each in await rig.mail.claim() if each.message.kind is MessageKind.TASK]
    return lease
