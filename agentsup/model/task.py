"""Tasks and runs: background work with an owner, and the single messages that carry it out.

A task's state follows the message of its current run. A trigger does this in the message's own
transaction (``0017_tasks.sql``), so that no way of ending a message can miss its task.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from agentsup.model.ids import AgentId
from agentsup.model.message import NOWHERE, DeliverTo, Priority
from agentsup.model.principal import Principal

MAX_RUN_DEPTH = 3
"""The greatest depth to which runs may start runs."""
MAX_DELEGATIONS = 10
"""The most runs that one request of a person may cause, all levels together."""
MAX_SCHEDULES = 100
"""The most active schedules of tasks that the turns of one agent have created."""
MAX_TODOS = 500
"""The most tasks of one agent that are written down and not begun."""
MAX_TODOS_OF_TURN = 50
"""The most of them that one turn may leave."""
MAX_REMINDERS = 200
"""The most reminders that one person may have ahead."""
MAX_REMINDER_CHARS = 2_000
MAX_PROMPT_CHARS = 200_000
MAX_NAME_CHARS = 120


class TaskState(StrEnum):
    TODO = "todo"
    """Created, not started."""
    QUEUED = "queued"
    RUNNING = "running"
    WAITING = "waiting"
    """One of its questions is open."""
    DONE = "done"
    FAILED = "failed"
    CANCELLED = "cancelled"


ENDED = frozenset({TaskState.DONE, TaskState.FAILED, TaskState.CANCELLED})
WORKING = frozenset({TaskState.QUEUED, TaskState.RUNNING, TaskState.WAITING})


class DeliveryState(StrEnum):
    """The delivery of a task's result, independent of how its work ended."""

    NONE = "none"
    """There is no result yet, or it is delivered nowhere."""
    PENDING = "pending"
    DELIVERED = "delivered"
    UNKNOWN = "unknown"
    """It was sent, and its arrival is unknown."""
    DROPPED = "dropped"
    """The asker was stopped since."""


class RunKind(StrEnum):
    """Why a run was started."""

    TASK = "task"
    RESUME = "resume"
    SCHEDULED = "slot"
    """A time of the task's schedule."""
    DELEGATE = "delegate"
    SPAWN = "spawn"
    ROUTE = "route"
    DISPATCH = "dispatch"
    MIXTURE = "mixture"
    BROADCAST = "broadcast"


class TaskAction(StrEnum):
    """The action when the time of a task has come."""

    TURN = "turn"
    """A run: a turn of its agent."""
    TELL = "tell"
    """Its text goes to its chat, without a model: a reminder."""


class Misfire(StrEnum):
    """How schedule times are handled that passed while the daemon did not run."""

    ONCE = "once"
    """One run for all of them."""
    SKIP = "skip"
    """No run; each time is recorded as skipped."""
    ALL = "all"
    """One run for each, one after the other."""


class Overlap(StrEnum):
    """How a schedule time is handled while the task's last run has not ended."""

    SKIP = "skip"
    QUEUE = "queue"


class OccurrenceSkipReason(StrEnum):
    """Why a time of a schedule was passed over; ``SkippedOccurrence.facts`` has what is in brackets."""

    MANY = "many"
    """Missed, with too many others to be listed."""
    LATER = "later"
    """Missed, and a later time had come as well."""
    LATE = "late"
    """Missed by more than the grace (``seconds``)."""
    OVERLAP = "overlap"
    """The run before it had not ended."""
    BEHIND = "behind"
    """As many runs as may be open had not ended (``count``)."""
    PAUSED = "paused"
    DELETED = "deleted"
    CANCELLED = "cancelled"
    """The task was cancelled (``who``)."""
    SET = "set"
    """The task was set to another state (``state``, ``who``)."""
    CHANGED = "changed"
    """The schedule was changed (``who``)."""
    RIGHTS = "rights"
    """The person who asked may not any more (``rights``: the reason of ``RightsLost``, ``who``)."""
    SETUP = "setup"
    """The last ``count`` runs failed, and so would the next (``text``: why the last one did)."""
    REFUSED = "refused"
    """The run was refused for another reason (``text``)."""


@dataclass(frozen=True, slots=True)
class SkippedOccurrence:
    """Why a time of a schedule has no run. ``facts`` are JSON values.

    With ``until`` (ISO 8601 in the schedule's zone) it stands for all times before that as well.
    """

    reason: OccurrenceSkipReason
    facts: Mapping[str, Any] = field(default_factory=dict)
    until: str = ""


@dataclass(frozen=True, slots=True)
class NewSchedule:
    """When a task runs. Exactly one of ``at`` (ISO 8601), ``every_s`` and ``cron`` (five fields) is
    given. Times without an offset and cron are in ``zone`` (IANA; empty: the owner's, else the
    machine's)."""

    at: str = ""
    every_s: float | None = None
    cron: str = ""
    zone: str = ""
    misfire: Misfire = Misfire.ONCE
    overlap: Overlap = Overlap.SKIP


@dataclass(frozen=True, slots=True)
class Schedule:
    """A stored schedule. Times are wall ms; ``next_at`` is None if it has ended or is paused."""

    task_id: str
    kind: str
    """at | every | cron."""
    spec: str
    """The instant with its offset, seconds, or five fields."""
    zone: str
    misfire: Misfire
    overlap: Overlap
    anchor_at: int
    next_at: int | None
    last_at: int | None
    is_paused: bool = False


@dataclass(frozen=True, slots=True)
class NewTask:
    """The fields of a new task. ``agent`` and ``role`` name who does it; default: its owner.

    ``deliver_to`` is where results and questions go; None: back to the session or chat it came
    from. ``timeout_s`` bounds each run's wait in the queue, ``max_usd`` all of its runs together.
    """

    prompt: str
    name: str = ""
    agent: str = ""
    role: str = ""
    start: bool = True
    schedule: NewSchedule | None = None
    priority: Priority = Priority.NORMAL
    timeout_s: float | None = None
    max_usd: float | None = None
    parent_task_id: str = ""
    idempotency_key: str = ""
    deliver_to: DeliverTo | None = None
    does: TaskAction = TaskAction.TURN


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    """A stored task with all its fields. Times are wall ms."""

    task_id: str
    name: str
    owner: Principal
    asked_by: str = ""
    """The subject of the person whose message led to it; empty if no person's did."""
    agent_id: AgentId
    """The agent in whose mailbox its runs are."""
    target: str
    """The persona in which it is done: empty (the agent itself), ``agent:<agent_id>``,
    ``role:<name>``."""
    state: TaskState
    prompt: str
    session_id: str = ""
    current_run: str = ""
    """The message id of its latest run, or empty."""
    runs: int = 0
    result: str = ""
    error_code: str = ""
    error_text: str = ""
    progress: str = ""
    percent: int | None = None
    progress_at: int | None = None
    priority: Priority
    timeout_s: float | None
    max_usd: float | None
    parent_task_id: str
    parent_message_id: str
    created_at: int
    started_at: int | None = None
    finished_at: int | None = None
    deliver_to: DeliverTo = NOWHERE
    parent_session_id: str = ""
    """The session of the turn that created it: its runs may use no more than that session."""
    does: TaskAction = TaskAction.TURN


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """One run: a message with its own session, or a skipped time of a schedule (``skipped``).

    ``run_id`` is its message's id. ``state`` is the message's (``skipped`` for a skipped time),
    ``outcome`` ok | failed once it is done.
    """

    run_id: str
    task_id: str
    run_no: int
    kind: RunKind
    agent_id: AgentId
    target: str
    label: str
    parent_message_id: str = ""
    root_id: str = ""
    depth: int
    slot_at: int | None
    state: str
    outcome: str = ""
    created_at: int
    skipped: SkippedOccurrence | None = None
    session_id: str = ""
    result: str = ""
    error_code: str = ""
    error_text: str = ""
    started_at: int | None = None
    finished_at: int | None = None
