"""A task whose times wait behind one another: cancelled and deleted, nothing of it goes on."""

from __future__ import annotations

from functools import partial

import pytest

from agentsup.model.errors import Conflict
from agentsup.model.principal import OPERATOR
from agentsup.model.task import NewSchedule, Overlap, Task, TaskState
from agentsup.tasks.scheduler import settle_tx
from tests.support.task_fixture import TaskFixture


async def _three_runs(rig: TaskFixture) -> Task:
    """One at work, two behind it."""
    task = await rig.create(schedule=NewSchedule(every_s=60, overlap=Overlap.QUEUE))
    for number in range(3):
        rig.mail.later(60)
        settle = partial(
            settle_tx, starter=rig.hub.starter, task_id=task.task_id, now=rig.mail.clock.now_ms()
        )
        await rig.mail.db.write(settle)
        if not number:
            assert len(await rig.mail.claim()) == 1
    states = await rig.mail.sql("SELECT state FROM messages ORDER BY seq")
    assert states == [("leased",), ("queued",), ("queued",)]
    return await rig.again(task)


async def test_a_cancel_ends_all_of_its_runs(rig: TaskFixture) -> None:
    task = await _three_runs(rig)
    runs = (await rig.hub.card(task.task_id, caller=OPERATOR)).runs
    cancelled = await rig.hub.cancel(task.task_id, caller=OPERATOR)
    assert cancelled.state is TaskState.CANCELLED
    assert await rig.mail.sql("SELECT DISTINCT state FROM messages") == [("cancelled",)]
    assert rig.aborted == [runs[-1].run_id]  # the one whose turn ran
    assert await rig.mail.claim() == []
    await rig.mail.check()


async def test_while_any_run_works_it_is_neither_deleted_nor_resumed(rig: TaskFixture) -> None:
    task = await _three_runs(rig)
    await rig.mail.mailbox.control.cancel(task.current_run, OPERATOR)
    assert (await rig.again(task)).state is TaskState.CANCELLED
    with pytest.raises(Conflict):
        await rig.hub.delete(task.task_id, caller=OPERATOR)
    with pytest.raises(Conflict):
        await rig.hub.resume(task.task_id, "go on", caller=OPERATOR)
    await rig.hub.cancel(task.task_id, caller=OPERATOR)
    assert await rig.mail.sql("SELECT DISTINCT state FROM messages") == [("cancelled",)]
    await rig.hub.delete(task.task_id, caller=OPERATOR)
