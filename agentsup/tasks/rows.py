"""How tasks and runs lie in their tables: the only place that knows it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from agentsup.mailbox.naming import key_owner
from agentsup.mailbox.rows import FOLLOWING_SQL, OPEN_SQL, deliver_to_of, encode_value, principal_of
from agentsup.model.errors import Conflict, NotFound
from agentsup.model.ids import AgentId
from agentsup.model.message import DeliverTo, Message, Priority
from agentsup.model.principal import Principal
from agentsup.model.task import WORKING, DeliveryState, Run, RunKind, Task, TaskState
from agentsup.store.database import Reader, Tx

__all__ = [
    "add_run_tx",
    "add_task_tx",
    "begin_tx",
    "begun",
    "check_rests",
    "delivery_of",
    "find_run",
    "need_task",
    "open_runs",
    "runs_of",
    "runs_started_for",
    "task_of",
]

_RUNS = """
SELECT r.*, coalesce(m.state, iif(r.why = '', 'done', 'skipped')) AS state,
  coalesce(m.outcome, '') AS outcome, coalesce(m.result_text, '') AS result,
  coalesce(m.error_code, '') AS error_code, coalesce(m.error_text, '') AS error_text,
  m.started_at, m.finished_at
FROM runs r LEFT JOIN messages m ON m.message_id = r.run_id
"""
"""A run whose message is past retention has ended; how is what its task tells."""


def task_of(row: Mapping[str, Any]) -> Task:
    """A row of ``tasks`` as a value."""
    return Task(
        task_id=row["task_id"],
        name=row["name"],
        owner=principal_of(row["owner"]),
        asked_by=row["asked_by"],
        agent_id=AgentId(row["agent_id"]),
        target=row["target"],
        state=TaskState(row["state"]),
        prompt=row["prompt"],
        session_id=row["session_id"],
        current_run=row["current_run"],
        runs=row["runs"],
        result=row["result"],
        error_code=row["error_code"],
        error_text=row["error_text"],
        progress=row["progress"],
        percent=row["percent"],
        progress_at=row["progress_at"],
        priority=Priority(row["priority"]),
        timeout_s=row["timeout_s"],
        max_usd=row["max_usd"],
        parent_task_id=row["parent_task_id"],
        parent_message_id=row["parent_message_id"],
        created_at=row["created_at"],
        started_at=row["started_at"],
        finished_at=row["finished_at"],
        deliver_to=deliver_to_of(row["deliver_to"]),
        parent_session_id=row["parent_session_id"],
    )


def run_of(row: Mapping[str, Any]) -> Run:
    """A row of ``_RUNS`` as a value."""
    return Run(
        run_id=row["run_id"],
        task_id=row["task_id"],
        run_no=row["run_no"],
        kind=RunKind(row["kind"]),
        agent_id=AgentId(row["agent_id"]),
        target=row["target"],
        label=row["label"],
        parent_message_id=row["parent_message_id"],
        root_id=row["root_id"],
        depth=row["depth"],
        slot_at=row["slot_at"],
        state=row["state"],
        outcome=row["outcome"],
        why=row["why"],
        created_at=row["created_at"],
        session_id=row["session_id"],
        result=row["result"],
        error_code=row["error_code"],
        error_text=row["error_text"],
        started_at=row["started_at"],
        finished_at=row["finished_at"],
    )


# -- tasks -----------------------------------------------------------------------------------------


def add_task_tx(tx: Tx, task: Task) -> None:
    """Write a new task, as it is."""
    tx.execute(
        "INSERT INTO tasks (task_id, name, owner, owner_kind, owner_id, asked_by, agent_id, target,"
        " state, prompt, deliver_to, priority, timeout_s, max_usd, parent_task_id,"
        " parent_message_id, created_at, session_id, current_run, runs, parent_session_id)"
        " VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
        (
            task.task_id,
            task.name,
            encode_value(task.owner),
            task.owner.kind.value,
            task.owner.subject,
            task.asked_by,
            task.agent_id,
            task.target,
            task.state.value,
            task.prompt,
            encode_value(task.deliver_to),
            int(task.priority),
            task.timeout_s,
            task.max_usd,
            task.parent_task_id,
            task.parent_message_id,
            task.created_at,
            task.session_id,
            task.current_run,
            task.runs,
            task.parent_session_id,
        ),
    )


def begun(task: Task, run: Run) -> Task:
    """The task as ``begin_tx`` leaves it."""
    return replace(
        task,
        state=TaskState.QUEUED,
        current_run=run.run_id,
        session_id=run.session_id,
        runs=run.run_no,
    )


def begin_tx(tx: Tx, task_id: str, run: Run) -> None:
    """A run of the task was put into the queue; from here on its state is the task's."""
    tx.execute(
        "UPDATE tasks SET state = 'queued', current_run = ?, session_id = ?, runs = ?,"
        " error_code = '', error_text = '', progress = '', percent = NULL, progress_at = NULL,"
        " finished_at = NULL WHERE task_id = ?",
        (run.run_id, run.session_id, run.run_no, task_id),
    )


def find_task(reader: Reader, task_id: str) -> Task | None:
    """The task of that id, or None."""
    row = reader.one("SELECT * FROM tasks WHERE task_id = ?", (task_id,))
    return None if row is None else task_of(row)  # type: ignore[arg-type]  # Row is a mapping in all but name


def need_task(reader: Reader, task_id: str) -> Task:
    """The task of that id. Raises ``NotFound``."""
    task = find_task(reader, task_id)
    if task is None:
        raise NotFound(f"there is no task {task_id}", task_id=task_id)
    return task


def asked_by(reader: Reader, parent: Message | None) -> str:
    """The person whose message the turn on ``parent`` goes back to, by their subject, or empty."""
    if parent is None:
        return ""
    found = reader.scalar(
        "SELECT principal ->> '$.subject' FROM messages WHERE message_id = ?"
        " AND principal ->> '$.kind' = 'person'",
        (parent.root_id,),
    )
    return str(found or "")


def persona_in(reader: Reader, session_id: str) -> str:
    """The id of the agent in whose place a session's turns are done; empty: their own."""
    return str(
        reader.scalar("SELECT agent_id FROM session_personas WHERE session_id = ?", (session_id,))
        or ""
    )


def ending_with(reader: Reader, end: str, *, limit: int = 8) -> list[str]:
    """Ids of tasks that end with ``end``, the newest first."""
    rows = reader.all(
        "SELECT task_id FROM tasks WHERE substr(task_id, -length(?1)) = ?1"
        " ORDER BY task_id DESC LIMIT ?2",
        (end, limit),
    )
    return [row["task_id"] for row in rows]


# -- runs ------------------------------------------------------------------------------------------


def add_run_tx(tx: Tx, run: Run) -> None:
    """Write a run whose message was accepted in this transaction, or a time that was let pass."""
    tx.execute(
        "INSERT INTO runs (run_id, task_id, run_no, kind, agent_id, session_id, target, label,"
        " parent_message_id, root_id, depth, slot_at, why, created_at)"
        " VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
        (
            run.run_id,
            run.task_id,
            run.run_no,
            run.kind.value,
            run.agent_id,
            run.session_id,
            run.target,
            run.label,
            run.parent_message_id,
            run.root_id,
            run.depth,
            run.slot_at,
            run.why,
            run.created_at,
        ),
    )


def orphan_tx(tx: Tx, task_id: str) -> None:
    """Let the runs be without their task, and without its times: another's may be the same."""
    tx.execute("UPDATE runs SET task_id = '', slot_at = NULL WHERE task_id = ?", (task_id,))


def find_run(reader: Reader, run_id: str) -> Run | None:
    """The run of that id, or None."""
    row = reader.one(f"{_RUNS} WHERE r.run_id = ?", (run_id,))
    return None if row is None else run_of(row)  # type: ignore[arg-type]  # as above


def runs_of(reader: Reader, task_id: str, *, limit: int = 50) -> list[Run]:
    """The runs of a task, the latest first."""
    rows = reader.all(
        f"{_RUNS} WHERE r.task_id = ? AND r.task_id <> ''"
        " ORDER BY r.run_no DESC, r.created_at DESC LIMIT ?",
        (task_id, limit),
    )
    return [run_of(row) for row in rows]  # type: ignore[arg-type]  # as above


def open_runs(reader: Reader, task_id: str) -> list[tuple[str, str]]:
    """Id and state of the runs of a task that have not ended, the first to be done first: times
    of a schedule may wait behind one another."""
    # They share the task's session; of past runs there may be very many.
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


def runs_started_for(reader: Reader, message_id: str) -> list[Run]:
    """The runs that a turn has started, in order."""
    rows = reader.all(
        f"{_RUNS} WHERE r.parent_message_id = ? AND r.parent_message_id <> ''"
        " ORDER BY r.created_at, r.run_id",
        (message_id,),
    )
    return [run_of(row) for row in rows]  # type: ignore[arg-type]  # as above


def depth_in(reader: Reader, message_id: str, session_id: str) -> int:
    """How deep the turn on a message in a session is: 0 for one that no run has led to."""
    found = reader.scalar(
        "SELECT coalesce((SELECT depth FROM runs WHERE run_id = ?1),"
        " (SELECT depth FROM runs WHERE session_id = ?2 AND session_id <> ''"
        " ORDER BY created_at DESC LIMIT 1), 0)",
        (message_id, session_id),
    )
    return int(found)


def count_of_root(reader: Reader, root_id: str) -> int:
    """How many runs one request has set off."""
    found = reader.scalar(
        "SELECT count(*) FROM runs WHERE root_id = ? AND root_id <> '' AND kind <> 'slot'",
        (root_id,),
    )
    return int(found or 0)


# -- delivery --------------------------------------------------------------------------------------


def delivery_of(reader: Reader, run_id: str, deliver_to: DeliverTo) -> DeliveryState:
    """What became of the result of a run that has ended."""
    if deliver_to.kind in ("none", "store", "http") or not run_id:
        return DeliveryState.NONE
    if deliver_to.kind == "mailbox":
        reply = reader.one(
            f"SELECT message_id, state FROM messages WHERE in_reply_to = ? AND {FOLLOWING_SQL}"  # noqa: S608 - a constant
            " AND kind = 'reply' ORDER BY seq DESC LIMIT 1",
            (run_id,),
        )
        if reply is not None:
            return _of_reply(reader, reply["message_id"], reply["state"])
    sent = _of_parts(reader, run_id)
    if sent is not None:
        return sent
    refused = reader.scalar(
        "SELECT deliver_to ->> '$.waited' IS NULL FROM messages WHERE message_id = ?", (run_id,)
    )
    return DeliveryState.DROPPED if refused else DeliveryState.DELIVERED


def _of_reply(reader: Reader, message_id: str, state: str) -> DeliveryState:
    if state in ("queued", "leased", "parked"):
        return DeliveryState.PENDING
    if state != "done":
        return DeliveryState.DROPPED
    return _of_parts(reader, message_id) or DeliveryState.DELIVERED


def _of_parts(reader: Reader, message_id: str) -> DeliveryState | None:
    rows = reader.all(
        "SELECT DISTINCT state FROM outbox WHERE message_id = ?"
        " AND kind IN ('answer', 'file', 'notice')",
        (message_id,),
    )
    states = {row["state"] for row in rows}
    for word, found in (
        ("pending", DeliveryState.PENDING),
        ("unknown", DeliveryState.UNKNOWN),
        ("dropped", DeliveryState.DROPPED),
        ("delivered", DeliveryState.DELIVERED),
    ):
        if word in states:
            return found
    return None


# -- keys ------------------------------------------------------------------------------------------


def enter_tx(tx: Tx, owner: Principal, key: str, task_id: str, body: str, at: int) -> str | None:
    """Note that ``key`` of this owner stands for the new task; or the task it stood for before.

    Raises ``Conflict`` where it was used for another request (``body`` differs).
    """
    source = key_owner("task", owner)
    entered = tx.execute(
        "INSERT INTO ledger (source, external_id, message_id, body_hash, at)"
        " VALUES (?, ?, ?, ?, ?) ON CONFLICT DO NOTHING",
        (source, key, task_id, body, at),
    )
    if entered.rowcount:
        return None
    row = tx.one(
        "SELECT message_id, body_hash FROM ledger WHERE source = ? AND external_id = ?",
        (source, key),
    )
    assert row is not None, "the ledger has just refused this key"
    if row["body_hash"] != body:
        raise Conflict(
            f"the idempotency key {key!r} was used for another task ({row['message_id']}); use a "
            "fresh key, or repeat that request unchanged",
            key=key,
            task_id=row["message_id"],
        )
    return str(row["message_id"])


def is_entered(reader: Reader, owner: Principal, key: str, *, kind: str = "key") -> bool:
    """Whether a run was started under that key for this owner; with ``kind`` task: whether
    ``enter_tx`` has noted it."""
    source = key_owner(kind, owner)
    return bool(
        reader.scalar("SELECT 1 FROM ledger WHERE source = ? AND external_id = ?", (source, key))
    )
