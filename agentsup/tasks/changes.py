"""What a task tells of itself, and the states that people set: each change with its event."""

from __future__ import annotations

from agentsup.model.errors import BadRequest, Conflict
from agentsup.model.event import EventType
from agentsup.model.task import ENDED, Task, TaskState
from agentsup.store.database import Tx
from agentsup.store.events import append
from agentsup.tasks.making import one_line

__all__ = ["check_settable", "progress_tx", "rename_tx", "set_tx", "tell_tx"]

_SETTABLE = (TaskState.TODO, TaskState.DONE, TaskState.CANCELLED)


def tell_tx(tx: Tx, event: EventType, task: Task, at: int, **facts: object) -> None:
    """Append an event about a task, with its state and ``facts``; ``at`` is wall ms."""
    append(
        tx,
        event,
        at=at,
        agent_id=task.agent_id,
        message_id=task.task_id,
        data={"task_id": task.task_id, "state": task.state.value, **facts},
    )


def progress_tx(tx: Tx, task: Task, said: str | None, percent: int | None, at: int) -> None:
    """Note how far a task is; None keeps what was said before."""
    told = task.progress if said is None else one_line(said)
    share = task.percent if percent is None else percent
    tx.execute(
        "UPDATE tasks SET progress = ?, percent = ?, progress_at = ? WHERE task_id = ?",
        (told, share, at, task.task_id),
    )
    tell_tx(tx, EventType.TASK_PROGRESS, task, at, progress=told, percent=share)


def rename_tx(tx: Tx, task: Task, name: str) -> None:
    """Give a task another name. Raises ``BadRequest`` for an empty one."""
    line = one_line(name)
    if not line:
        raise BadRequest("the name is empty", field="name")
    tx.execute("UPDATE tasks SET name = ? WHERE task_id = ?", (line, task.task_id))


def check_settable(task: Task, state: TaskState) -> None:
    """Raise ``Conflict`` for a state that a task can't be set to: with runs it is as its run is."""
    known = "todo, done or cancelled"
    if task.runs:
        why = f"task {task.task_id} is {task.state.value}, as its run is; only a task without runs"
        raise Conflict(f"{why} can be set to {known}", task_id=task.task_id)
    if state not in _SETTABLE:
        raise Conflict(
            f"task {task.task_id} has no run that could be {state.value}: set it to {known}, tell "
            "how far it is, or start it",
            task_id=task.task_id,
        )


def set_tx(tx: Tx, task: Task, state: TaskState, at: int) -> None:
    """Set the state of a task without runs."""
    finished_at = at if state in ENDED else None
    tx.execute(
        "UPDATE tasks SET state = ?, finished_at = ? WHERE task_id = ?",
        (state.value, finished_at, task.task_id),
    )
    tell_tx(tx, EventType.TASK_CHANGED, task, at, state=state.value, runs=task.runs)
