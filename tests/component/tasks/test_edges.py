"""Tasks where two things meet: a repetition after its time, an end beside a schedule, a full disk."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from agentsup.model.errors import Conflict
from agentsup.model.principal import OPERATOR
from agentsup.model.task import NewSchedule, Overlap, Task, TaskState
from agentsup.tasks.brief import Briefing
from agentsup.tasks.folders import Folders
from agentsup.tasks.scheduler import settle_tx
from agentsup.testing.task_rig import TaskRig


async def test_a_key_stands_for_its_task_also_when_its_time_is_past(rig: TaskRig) -> None:
    at = datetime.fromtimestamp(rig.mail.clock.now_ms() / 1000 + 60, UTC).isoformat()
    one = await rig.create(schedule=NewSchedule(at=at), idempotency_key="k")
    rig.mail.later(120)
    two = await rig.create(schedule=NewSchedule(at=at), idempotency_key="k")
    assert two.task_id == one.task_id
    assert len(await rig.hub.list(caller=OPERATOR)) == 1


async def test_a_todo_is_begun_once_under_a_key(rig: TaskRig) -> None:
    task = await rig.create(start=False)
    for _ in range(2):
        begun = await rig.hub.resume(task.task_id, caller=OPERATOR, idempotency_key="k")
        assert begun.runs == 1
    await rig.mail.finish(await rig.mail.one())
    over = await rig.hub.resume(task.task_id, caller=OPERATOR, idempotency_key="k")
    assert (over.runs, over.state) == (1, TaskState.DONE)
    with pytest.raises(Conflict, match="another request"):
        await rig.hub.resume(task.task_id, "goats", caller=OPERATOR, idempotency_key="k")


@pytest.mark.parametrize("state", [TaskState.DONE, TaskState.CANCELLED])
async def test_a_task_that_was_set_to_an_end_has_no_further_times(
    rig: TaskRig, state: TaskState
) -> None:
    task = await rig.create(schedule=NewSchedule(every_s=60.0))
    await rig.hub.update(task.task_id, caller=OPERATOR, state=state)
    rig.mail.later(60)
    await _settle(rig, task)
    assert await rig.mail.claim() == []
    assert (await rig.again(task)).state is state


async def test_the_run_at_work_asks_while_a_later_time_waits_behind_it(rig: TaskRig) -> None:
    schedule = NewSchedule(every_s=60.0, overlap=Overlap.QUEUE)
    task = await rig.create(schedule=schedule)
    rig.mail.later(60)
    await _settle(rig, task)
    lease = await rig.mail.one()
    rig.mail.later(60)
    await _settle(rig, task)
    asked = await rig.hub.ask_parent(task.task_id, "goats too?", caller=OPERATOR)
    assert asked.message_id == lease.message.message_id


async def test_what_is_written_down_is_accepted_whatever_the_disk_says(rig: TaskRig) -> None:
    (rig.home / "tasks").write_text("no folder")
    task = await rig.create(idempotency_key="k")
    lease = await rig.mail.one()
    folders = Folders(rig.home / "tasks", rig.hub.folder_of)
    brief = await Briefing(rig.mail.db, folders, timeout_s=lambda: 60.0).of(lease.message)
    assert "It has no folder now" in brief.text
    assert (brief.folders, brief.hard_s) == ((), 60.0)
    await rig.mail.finish(lease, "twelve")
    assert (await rig.again(task)).state is TaskState.DONE


async def test_a_task_is_deleted_also_where_its_folder_can_not_be_moved(rig: TaskRig) -> None:
    task = await rig.create(start=False)
    (rig.home / "tasks" / ".deleted").write_text("no folder")
    await rig.hub.delete(task.task_id, caller=OPERATOR)
    assert await rig.hub.list(caller=OPERATOR) == []
    assert rig.hub.folder_of(task.task_id).is_dir()


async def _settle(rig: TaskRig, task: Task) -> None:
    """Run or skip what has come of the task's times."""
    now = rig.mail.clock.now_ms()
    await rig.mail.db.write(lambda tx: settle_tx(tx, rig.hub.starter, task.task_id, now=now))
