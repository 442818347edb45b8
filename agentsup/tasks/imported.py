"""Tasks with schedules that come from another product, put in while no daemon runs."""

from __future__ import annotations

from dataclasses import replace

from agentsup.model.errors import BadRequest
from agentsup.model.event import EventType
from agentsup.model.ids import AgentId
from agentsup.model.principal import OPERATOR
from agentsup.model.task import NewTask
from agentsup.store import Tx
from agentsup.tasks import occurrences, rows, schedules
from agentsup.tasks.composing import check_new_task, new_task
from agentsup.tasks.occurrences import machine_zone


def put_tx(
    tx: Tx, task_id: str, agent_id: str, new: NewTask, *, at: int, is_paused: bool = False
) -> bool:
    """Put in the task ``new`` of the operators, unless there is one of that id already.

    Returns whether it was put in. Its folder is made when it runs. Raises ``BadRequest`` for what
    can't be a task, also for times that have passed.
    """
    if rows.find_task(tx, task_id) is not None:
        return False
    check_new_task(new)
    task = new_task(new, task_id=task_id, owner=OPERATOR, agent_id=AgentId(agent_id), at=at)
    assert new.schedule is not None, "work that is moved has times"
    schedule = occurrences.parse(new.schedule, task_id, now_ms=at, zone=machine_zone())
    rows.emit_tx(tx, EventType.TASK_CREATED, task, at, name=task.name)
    rows.add_task_tx(tx, task)
    if is_paused:
        schedule = replace(schedule, next_at=None, is_paused=True)
    schedules.add_tx(tx, schedule)
    return True


def problem_of(new: NewTask, *, at: int) -> str:
    """Why that can't be a task with a schedule, as a sentence; empty if it can."""
    assert new.schedule is not None, "work that is moved has times"
    try:
        check_new_task(new)
        occurrences.parse(new.schedule, "task", now_ms=at, zone=machine_zone())
    except BadRequest as error:
        return error.message
    return ""
