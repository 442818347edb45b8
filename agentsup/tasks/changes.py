"""Progress, names and states that are set from outside a run: each change with its event."""

from __future__ import annotations

from agentsup.model.errors import BadRequest, Conflict
from agentsup.model.event import EventType
from agentsup.model.task import ENDED, Task, TaskState
from agentsup.store import Tx, append
from agentsup.tasks.composing import one_line

_SETTABLE = (TaskState.TODO, TaskState.DONE, TaskState.CANCELLED)


def emit_tx(tx: Tx, event: EventType, task: Task, at: int, **facts: object) -> None:
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
    """Record how far a task is; None keeps the value that was set before."""
    progress = task.progress if said is None else one_line(said)
    share = task.percent if percent is None else percent
    tx.execute(
        "UPDATE tasks SET progress = ?, percent = ?, progress_at = ? WHERE task_id = ?",
        (progress, share, at, task.task_id),
    )
    emit_tx(tx, EventType.TASK_PROGRESS, task, at, progress=progress, percent=share)


def rename_tx(tx: Tx, task: Task, name: str) -> None:
    """Give a task another name. Raises ``BadRequest`` for an empty one."""
    line = one_line(name)
    if not line:
        raise BadRequest("the name is empty", field="name")
    tx.execute("UPDATE tasks SET name = ? WHERE task_id = ?", (line, task.task_id))


def check_settable(task: Task, state: TaskState) -> None:
    """Raise ``Conflict`` for a state that can't be set; with runs, the state is that of the run."""
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
    emit_tx(tx, EventType.TASK_CHANGED, task, at, state=state.value, runs=task.runs)
