"""The tables of tasks and runs: rows as values, inserts, queries, and changes with their events."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

from agentsup.mailbox.messages import (
    OPEN_SQL,
    current_rights,
    deliver_to_of,
    encode_value,
    key_owner,
    principal_of,
)
from agentsup.mailbox.queue import idempotency
from agentsup.model.errors import BadRequest, Conflict, NotFound
from agentsup.model.event import EventType
from agentsup.model.ids import AgentId
from agentsup.model.message import Message, Priority
from agentsup.model.principal import Principal
from agentsup.model.task import (
    ENDED,
    WORKING,
    OccurrenceSkipReason,
    Run,
    RunKind,
    SkippedOccurrence,
    Task,
    TaskAction,
    TaskState,
)
from agentsup.store import Reader, Retention, Tx, append, from_row, values_of
from agentsup.tasks.composing import one_line

LEAST_ID_CHARS = 4
"""The shortest ending of an id that names a task."""
_RUNS = """
SELECT r.*, coalesce(m.state, iif(r.skip_reason IS NULL, 'done', 'skipped')) AS state,
  coalesce(m.outcome, '') AS outcome, coalesce(m.result_text, '') AS result,
  coalesce(m.error_code, '') AS error_code, coalesce(m.error_text, '') AS error_text,
  m.started_at, m.finished_at
FROM runs r LEFT JOIN messages m ON m.message_id = r.run_id
"""
"""A run whose message is past retention has ended; its task records how."""


def task_of(row: Any) -> Task:
    """A row of ``tasks`` as a value."""
    return from_row(
        Task,
        row,
        owner=principal_of(row["owner"]),
        agent_id=AgentId(row["agent_id"]),
        state=TaskState(row["state"]),
        priority=Priority(row["priority"]),
        deliver_to=deliver_to_of(row["deliver_to"]),
        does=TaskAction(row["does"]),
    )


def run_of(row: Any) -> Run:
    """A row of ``_RUNS`` as a value."""
    kind, agent_id = RunKind(row["kind"]), AgentId(row["agent_id"])
    return from_row(Run, row, kind=kind, agent_id=agent_id, skipped=_skipped_of(row))


def _skipped_of(row: Any) -> SkippedOccurrence | None:
    if row["skip_reason"] is None:
        return None
    facts = json.loads(row["skip_facts"])
    return SkippedOccurrence(
        OccurrenceSkipReason(row["skip_reason"]), facts, until=row["skip_until"]
    )


# -- tasks -----------------------------------------------------------------------------------------


def add_task_tx(tx: Tx, task: Task) -> None:
    """Insert a new task."""
    tx.execute(
        "INSERT INTO tasks (task_id, name, owner, owner_kind, owner_id, asked_by, agent_id, target,"
        " state, prompt, deliver_to, priority, timeout_s, max_usd, parent_task_id,"
        " parent_message_id, created_at, session_id, current_run, runs, parent_session_id, does)"
        " VALUES (:task_id, :name, :owner, :owner_kind, :owner_id, :asked_by, :agent_id, :target,"
        " :state, :prompt, :deliver_to, :priority, :timeout_s, :max_usd, :parent_task_id,"
        " :parent_message_id, :created_at, :session_id, :current_run, :runs, :parent_session_id,"
        " :does)",
        {
            **values_of(task),
            "owner": encode_value(task.owner),
            "owner_kind": task.owner.kind.value,
            "owner_id": task.owner.subject,
            "deliver_to": encode_value(task.deliver_to),
        },
    )


def begun(task: Task, run: Run) -> Task:
    """The task as it is after ``begin_tx``."""
    return replace(
        task,
        state=TaskState.QUEUED,
        current_run=run.run_id,
        session_id=run.session_id,
        runs=run.run_no,
    )


def begin_tx(tx: Tx, task_id: str, run: Run) -> None:
    """Record that a run of the task was queued; from now on the run's state is the task's."""
    tx.execute(
        "UPDATE tasks SET state = 'queued', current_run = ?, session_id = ?, runs = ?,"
        " error_code = '', error_text = '', progress = '', percent = NULL, progress_at = NULL,"
        " finished_at = NULL WHERE task_id = ?",
        (run.run_id, run.session_id, run.run_no, task_id),
    )


def find_task(reader: Reader, task_id: str) -> Task | None:
    """The task of that id, or None."""
    return reader.value(task_of, "SELECT * FROM tasks WHERE task_id = ?", (task_id,))


def task_of_run(reader: Reader, run_id: str) -> Task | None:
    """The task of that run; None for a run that turns have delegated."""
    return reader.value(
        task_of,
        "SELECT t.* FROM runs r JOIN tasks t ON t.task_id = r.task_id WHERE r.run_id = ?",
        (run_id,),
    )


def need_task(reader: Reader, task_id: str) -> Task:
    """The task of that id. Raises ``NotFound``."""
    task = find_task(reader, task_id)
    if task is None:
        raise NotFound(f"there is no task {task_id}", task_id=task_id)
    return task


def asked_for(reader: Reader, task: Task, parent: Message) -> Task:
    """The task with ``asked_by``: the person whose message led to the turn on ``parent``.

    If that is unknown, its owner's ``asker`` is None.
    """
    asker = current_rights.asker_of(reader, parent.principal, parent.message_id, parent.root_id)
    if asker is None:
        return replace(task, owner=replace(task.owner, asker=None))
    return replace(task, asked_by=asker)


def named_task(reader: Reader, name: str) -> Task:
    """The task of that id, or the only one whose id ends so.

    Raises ``NotFound``, and ``Conflict`` if several ids end so.
    """
    if name.startswith("task_") or len(name) < LEAST_ID_CHARS:
        return need_task(reader, name)
    rows = reader.all(
        "SELECT task_id FROM tasks WHERE substr(task_id, -length(?1)) = ?1"
        " ORDER BY task_id DESC LIMIT 8",
        (name.casefold(),),
    )
    found = [row["task_id"] for row in rows]
    if len(found) > 1:
        raise Conflict(f"several tasks end with {name}: {', '.join(found)}", task_ids=found)
    return need_task(reader, found[0] if found else name)


# -- runs ------------------------------------------------------------------------------------------


def add_run_tx(tx: Tx, run: Run) -> None:
    """Insert a run whose message was accepted in this transaction, or a passed-over time."""
    skipped = run.skipped
    tx.execute(
        "INSERT INTO runs (run_id, task_id, run_no, kind, agent_id, session_id, target, label,"
        " parent_message_id, root_id, depth, slot_at, created_at, skip_reason, skip_facts, skip_until)"
        " VALUES (:run_id, :task_id, :run_no, :kind, :agent_id, :session_id, :target, :label,"
        " :parent_message_id, :root_id, :depth, :slot_at, :created_at, :reason, :facts, :until)",
        {
            **values_of(run),
            "reason": skipped and skipped.reason,
            "facts": json.dumps(dict(skipped.facts), ensure_ascii=False) if skipped else "{}",
            "until": skipped.until if skipped else "",
        },
    )


def orphan_tx(tx: Tx, task_id: str) -> None:
    """Detach the runs from their task, and clear their times: another's may be the same."""
    tx.execute("UPDATE runs SET task_id = '', slot_at = NULL WHERE task_id = ?", (task_id,))


def find_run(reader: Reader, run_id: str) -> Run | None:
    """The run of that id, or None."""
    return reader.value(run_of, f"{_RUNS} WHERE r.run_id = ?", (run_id,))


def runs_of(reader: Reader, task_id: str, *, limit: int = 50) -> list[Run]:
    """The runs of a task, the latest first."""
    return reader.values(
        run_of,
        f"{_RUNS} WHERE r.task_id = ? AND r.task_id <> ''"
        " ORDER BY r.run_no DESC, r.created_at DESC LIMIT ?",
        (task_id, limit),
    )


def open_runs(reader: Reader, task_id: str) -> list[tuple[str, str]]:
    """Id and state of the runs of a task that have not ended, in order; several may be queued."""
    # By the session that they share, because there may be very many past runs.
    rows = reader.all(
        "SELECT m.message_id, m.state FROM tasks t CROSS JOIN messages m CROSS JOIN runs r"  # noqa: S608 - a constant
        f" WHERE t.task_id = ? AND m.agent_id = t.agent_id AND m.session_id = t.session_id AND m.{OPEN_SQL}"
        " AND r.run_id = m.message_id AND r.task_id = t.task_id ORDER BY r.run_no",
        (task_id,),
    )
    return [(row["message_id"], row["state"]) for row in rows]


def check_rests(reader: Reader, task: Task, advice: str) -> None:
    """Raise ``Conflict``, with ``advice``, while any run of the task has not ended."""
    runs = open_runs(reader, task.task_id)
    if runs:
        state = task.state if task.state in WORKING else TaskState.RUNNING
        raise Conflict(
            f"task {task.task_id} is {state.value}; {advice}",
            task_id=task.task_id,
            state=state.value,
        )


def open_delegated_runs(reader: Reader) -> list[Run]:
    """The runs that turns have started and that have not ended."""
    return reader.values(
        run_of, f"{_RUNS} WHERE m.{OPEN_SQL} AND m.kind = 'task' AND r.parent_message_id <> ''"
    )


def depth_in(reader: Reader, message_id: str, session_id: str) -> int:
    """The depth of the turn on a message in a session; 0 if no run has led to it."""
    found = reader.scalar(
        "SELECT coalesce((SELECT depth FROM runs WHERE run_id = ?1),"
        " (SELECT depth FROM runs WHERE session_id = ?2 AND session_id <> ''"
        " ORDER BY created_at DESC LIMIT 1), 0)",
        (message_id, session_id),
    )
    return int(found)


def count_of_root(reader: Reader, root_id: str) -> int:
    """Number of runs that one request has caused, without scheduled ones."""
    found = reader.scalar(
        "SELECT count(*) FROM runs WHERE root_id = ? AND root_id <> '' AND kind <> 'slot'",
        (root_id,),
    )
    return int(found or 0)


def count_schedules(reader: Reader, owner: Principal) -> int:
    """Number of schedules of an owner's tasks that have a next time. All that have one are read."""
    found = reader.scalar(
        "SELECT count(*) FROM schedules s CROSS JOIN tasks t ON t.task_id = s.task_id"
        " WHERE s.next_at IS NOT NULL AND s.is_paused = 0 AND t.owner_kind = ? AND t.owner_id = ?",
        (owner.kind.value, owner.subject),
    )
    return int(found or 0)


def count_todos(reader: Reader, owner: Principal, message_id: str) -> tuple[int, int]:
    """Number of tasks of an owner that wait to be begun: those of the turn on a message, and
    all."""
    found = reader.one(
        "SELECT total(parent_message_id = ?), count(*) FROM tasks"
        " WHERE owner_kind = ? AND owner_id = ? AND state = 'todo'",
        (message_id, owner.kind.value, owner.subject),
    )
    return (int(found[0]), int(found[1])) if found else (0, 0)


# -- keys ------------------------------------------------------------------------------------------


def enter_tx(tx: Tx, owner: Principal, key: str, task_id: str, body: str, at: int) -> str | None:
    """Record that ``key`` of this owner stands for the new task.

    Returns None, or the id of the task that the key stood for before. Raises ``Conflict`` if it was
    used for another request (``body`` differs).
    """
    source = key_owner("task", owner)
    if idempotency.enter_tx(tx, source, key, task_id, body, at=at):
        return None
    known = idempotency.find(tx, source, key)
    assert known is not None, "the ledger has just refused this key"
    if known.digest != body:
        raise Conflict(
            f"the idempotency key {key!r} was used for another task ({known.subject_id}); use a "
            "fresh key, or repeat that request unchanged",
            key=key,
            task_id=known.subject_id,
        )
    return known.subject_id


def is_entered(reader: Reader, owner: Principal, key: str, *, kind: str = "key") -> bool:
    """Whether a run was started under that key for this owner.

    With ``kind="task"``: whether ``enter_tx`` has recorded the key.
    """
    return idempotency.find(reader, key_owner(kind, owner), key) is not None


# -- changes from outside a run --------------------------------------------------------------------

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


# -- retention -------------------------------------------------------------------------------------

_DAY_MS = 24 * 3600 * 1000
_OLD_RUNS = (
    "created_at < :cutoff"
    " AND NOT EXISTS (SELECT 1 FROM messages m WHERE m.message_id = runs.run_id)"
)
"""Selected by creation time, so that young runs are not scanned. Old runs whose messages stay
(failed messages) are skipped; however many they are, the runs after them are removed."""
_REMINDED = "does = 'tell' AND state <> 'todo' AND finished_at < :cutoff"


def retention_rules(*, keep_days: int = 90) -> tuple[Retention, ...]:
    """Runs are removed after their messages, reminders once they are over; the latest run of a task
    is stored with the task, which stays until somebody deletes it."""
    return (
        Retention("runs", _OLD_RUNS, keep_days * _DAY_MS, key="run_id"),
        Retention("tasks", _REMINDED, keep_days * _DAY_MS, key="task_id"),
    )
