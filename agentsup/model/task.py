"""Tasks and runs: background work with an owner, and the single messages that carry it out.

A task's state follows the message of its current run; the store sees to it in the message's own
transaction (``0017_tasks.sql``), so that no way of ending a message can forget its task.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from agentsup.model.ids import AgentId
from agentsup.model.message import NOWHERE, DeliverTo, Priority
from agentsup.model.principal import Principal

MAX_RUN_DEPTH = 3
"""How deep runs may start runs."""
MAX_DELEGATIONS = 10
"""Runs that one request of a person may set off, all of them together."""
MAX_SCHEDULES = 100
"""Schedules that go on, of tasks that the turns of one agent have made."""
MAX_PROMPT_CHARS = 200_000
MAX_NAME_CHARS = 120


class TaskState(StrEnum):
    TODO = "todo"
    """Written down, not started."""
    QUEUED = "queued"
    RUNNING = "running"
    WAITING = "waiting"
    """A question of it is open."""
    DONE = "done"
    FAILED = "failed"
    CANCELLED = "cancelled"


ENDED = frozenset({TaskState.DONE, TaskState.FAILED, TaskState.CANCELLED})
WORKING = frozenset({TaskState.QUEUED, TaskState.RUNNING, TaskState.WAITING})


class DeliveryState(StrEnum):
    """What became of a task's result, apart from how its work ended."""

    NONE = "none"
    """There is no result yet, or it goes nowhere."""
    PENDING = "pending"
    DELIVERED = "delivered"
    UNKNOWN = "unknown"
    """It was sent, and nobody knows whether it arrived."""
    DROPPED = "dropped"
    """Whoever asked was stopped since."""


class RunKind(StrEnum):
    """Why a run was started."""

    TASK = "task"
    RESUME = "resume"
    SLOT = "slot"
    """A time of the task's schedule."""
    DELEGATE = "delegate"
    SPAWN = "spawn"
    ROUTE = "route"
    DISPATCH = "dispatch"
    MIXTURE = "mixture"
    BROADCAST = "broadcast"


class Misfire(StrEnum):
    """What happens to times that passed while nobody could keep them."""

    ONCE = "once"
    """One run for all of them."""
    SKIP = "skip"
    """None; each is recorded as skipped."""
    ALL = "all"
    """A run for each, one after the other."""


class Overlap(StrEnum):
    """What happens at a time when the task's last run has not ended."""

    SKIP = "skip"
    QUEUE = "queue"


@dataclass(frozen=True, slots=True)
class NewSchedule:
    """When a task runs. Exactly one of ``at`` (ISO 8601), ``every_s`` and ``cron`` (five fields)
    is given; times without an offset and cron are in ``zone`` (IANA; empty: the owner's, else the
    machine's)."""

    at: str = ""
    every_s: float | None = None
    cron: str = ""
    zone: str = ""
    misfire: Misfire = Misfire.ONCE
    overlap: Overlap = Overlap.SKIP


@dataclass(frozen=True, slots=True)
class Schedule:
    """A stored schedule. Times are wall ms; ``next_at`` None: it has ended or is paused."""

    task_id: str
    kind: str
    """at | every | cron."""
    spec: str
    zone: str
    misfire: Misfire
    overlap: Overlap
    anchor_at: int
    next_at: int | None
    last_at: int | None
    is_paused: bool = False


@dataclass(frozen=True, slots=True)
class NewTask:
    """What a task is created from. ``agent`` and ``role`` name who is to do it; without both, the
    agent that owns it does.

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


@dataclass(frozen=True, slots=True)
class Task:
    """A stored task, read whole. Times are wall ms."""

    task_id: str
    name: str
    owner: Principal
    asked_by: str
    """The person whose message led to it, by their subject; empty where no person's did."""
    agent_id: AgentId
    """Whose mailbox its runs are in."""
    target: str
    """In whose place it is done: empty (the agent itself), ``agent:<agent_id>``, ``role:<name>``."""
    state: TaskState
    prompt: str
    session_id: str
    current_run: str
    """The message id of its latest run, or empty."""
    runs: int
    result: str
    error_code: str
    error_text: str
    progress: str
    percent: int | None
    progress_at: int | None
    priority: Priority
    timeout_s: float | None
    max_usd: float | None
    parent_task_id: str
    parent_message_id: str
    created_at: int
    started_at: int | None
    finished_at: int | None
    deliver_to: DeliverTo = NOWHERE
    parent_session_id: str = ""
    """Where the turn was at work that created it: its runs may use no more than that one."""


@dataclass(frozen=True, slots=True)
class Run:
    """One run: a message with its own session, or a time that was let pass (``why`` says so).

    ``run_id`` is its message's id. ``state`` is the message's (``skipped`` for a time let pass),
    ``outcome`` ok | failed once it is done.
    """

    run_id: str
    task_id: str
    run_no: int
    kind: RunKind
    agent_id: AgentId
    target: str
    label: str
    parent_message_id: str
    root_id: str
    depth: int
    slot_at: int | None
    state: str
    outcome: str
    why: str
    created_at: int
    session_id: str = ""
    result: str = ""
    error_code: str = ""
    error_text: str = ""
    started_at: int | None = None
    finished_at: int | None = None
