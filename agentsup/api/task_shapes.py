"""What `/tasks` takes and answers. Names of the predecessor (`task_id`, `status`, `parent_agent`,
`elapsed_seconds`, …) stand beside our own, so that programs written for it read on.

Times ending in `_at` are wall time in whole milliseconds; `timeout`, `every` and `elapsed_seconds`
are seconds.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import AfterValidator, Field, RootModel

from agentsup.api.bodies import MAX_PAGE, MAX_WAIT_S, Body, ChatRef, PriorityName, Query, Text
from agentsup.api.question_shapes import QuestionDocument
from agentsup.api.shapes import Document, EventDocument, Result
from agentsup.model.task import (
    MAX_NAME_CHARS,
    MAX_PROMPT_CHARS,
    DeliveryState,
    Misfire,
    Overlap,
    RunKind,
    TaskState,
)

MAX_TIMEOUT_S = 30 * 86_400.0


def _states(value: str) -> str:
    known = [state.value for state in TaskState]
    for one in value.split(","):
        if one.strip() not in known:
            raise ValueError(f"must be one or more of {', '.join(known)}, with commas between")
    return value


TaskId = Annotated[str, Field(min_length=4, max_length=200, description="or its unique ending")]
From = Annotated[
    str | None,
    Field(alias="from", max_length=200, description="must match the token; operator: anyone"),
]
Key = Annotated[str | None, Field(min_length=1, max_length=200)]
Prompt = Annotated[Text, Field(max_length=MAX_PROMPT_CHARS)]


class ScheduleBody(Body):
    """When a task runs: exactly one of `at`, `every` and `cron`."""

    at: Annotated[str | None, Field(max_length=100, description="ISO 8601")] = None
    every: Annotated[float | None, Field(gt=0, allow_inf_nan=False, description="seconds")] = None
    cron: Annotated[str | None, Field(max_length=200, description="five fields")] = None
    timezone: Annotated[str | None, Field(max_length=100, description="IANA name")] = None
    misfire: Annotated[
        Misfire, Field(description="times that passed while nobody could keep them")
    ] = Misfire.ONCE
    overlap: Annotated[Overlap, Field(description="times at which the last run has not ended")] = (
        Overlap.SKIP
    )


class CreateTaskBody(Body):
    """A new task. Who owns it is told by the token."""

    prompt: Annotated[Prompt, Field(description="what is to be done")]
    from_: From = None
    name: Annotated[str | None, Field(max_length=MAX_NAME_CHARS)] = None
    provider: Annotated[
        str | None, Field(max_length=200, description="only the one that the agent has anyway")
    ] = None
    model: Annotated[
        str | None, Field(max_length=200, description="only the one that the agent has anyway")
    ] = None
    thinking: Annotated[
        str | None, Field(max_length=200, description="refused: the agent's entry says it")
    ] = None
    chat_id: ChatRef = None
    topic_id: ChatRef = None
    agent: Annotated[str | None, Field(max_length=200, description="who does it")] = None
    role: Annotated[
        str | None, Field(max_length=200, description="the role in which it is done")
    ] = None
    start: Annotated[bool, Field(description="false: only written down")] = True
    schedule: ScheduleBody | None = None
    priority: PriorityName = "normal"
    timeout: Annotated[
        float | None,
        Field(
            gt=0,
            le=MAX_TIMEOUT_S,
            allow_inf_nan=False,
            description="seconds that a run may wait in its queue",
        ),
    ] = None
    max_usd: Annotated[
        float | None, Field(gt=0, allow_inf_nan=False, description="for all runs together")
    ] = None
    parent_task_id: TaskId | None = None
    idempotency_key: Key = None


class ResumeTaskBody(Body):
    """Go on with a task, in the session it was in."""

    task_id: TaskId
    prompt: Annotated[Prompt, Field(description="what is to be done now")]
    from_: From = None
    idempotency_key: Key = None


class AskParentBody(Body):
    """A question of a task to whoever gave it."""

    task_id: TaskId
    question: Annotated[Text, Field(max_length=20_000)]
    options: Annotated[list[str] | None, Field(max_length=20)] = None
    from_: From = None


class AnswerTaskBody(Body):
    """The answer to a task's open question."""

    task_id: TaskId
    answer: Annotated[Text, Field(max_length=MAX_PROMPT_CHARS)]
    question_id: Annotated[
        str | None, Field(max_length=200, description="which one, where several are open")
    ] = None
    from_: From = None


class TaskBody(Body):
    """Which task."""

    task_id: TaskId
    from_: From = None


class UpdateTaskBody(Body):
    """What is to be told of a task, or changed."""

    task_id: TaskId
    progress: Annotated[str | None, Field(max_length=2000)] = None
    percent: Annotated[int | None, Field(ge=0, le=100)] = None
    note: Annotated[
        str | None, Field(max_length=20_000, description="appended to its TASKMEMORY.md")
    ] = None
    state: Annotated[
        TaskState | None, Field(description="todo, done or cancelled, of a task that never ran")
    ] = None
    name: Annotated[str | None, Field(min_length=1, max_length=MAX_NAME_CHARS)] = None
    paused: Annotated[bool | None, Field(description="whether its schedule rests")] = None
    schedule: Annotated[
        ScheduleBody | None, Field(description="other times, for a task that has a schedule")
    ] = None
    from_: From = None


class TasksQuery(Query):
    """Which tasks to list."""

    from_: From = None
    agent: Annotated[str | None, Field(max_length=200, description="who does them")] = None
    state: Annotated[
        str | None,
        AfterValidator(_states),
        Field(max_length=200, description="one or more, with commas between"),
    ] = None
    limit: Annotated[int, Field(ge=1, le=MAX_PAGE)] = 100
    cursor: Annotated[
        str | None, Field(max_length=200, description="`next_cursor` of the page before")
    ] = None


class TaskQuery(Query):
    """How long to wait for the end of its run, and for whom to look."""

    from_: From = None
    wait: Annotated[float, Field(ge=0, le=MAX_WAIT_S, allow_inf_nan=False)] = 0.0


class TaskLogQuery(Query):
    """How much of a task's events to show."""

    from_: From = None
    tail: Annotated[int, Field(ge=1, le=MAX_PAGE)] = 20


# -- answers ---------------------------------------------------------------------------------------


class TaskShort(Document):
    """A task as lists show it."""

    id: str
    task_id: str
    name: str
    state: TaskState
    status: TaskState
    agent: str = Field(description="in whose mailbox its runs are")
    agent_id: str
    target: str = Field(description="in whose place: empty, `agent:NAME` or `role:NAME`")
    owner: str = Field(description="who owns it, as people name them")
    parent_agent: str = Field(description="the agent that owns it, or empty")
    prompt_preview: str
    result_preview: str
    error: str
    error_code: str
    progress: str
    percent: int | None
    progress_at: int | None
    priority: str
    timeout: float | None
    max_usd: float | None
    parent_task_id: str
    run_id: str = Field(description="the message id of its latest run, or empty")
    runs: int
    session_id: str
    chat_id: str
    topic_id: str
    created_at: int
    started_at: int | None
    finished_at: int | None
    completed_at: int | None
    elapsed_seconds: float | None


class TaskList(Document):
    tasks: list[TaskShort]
    next_cursor: str | None


class RunDocument(Document):
    id: str = Field(description="its message's id")
    run_no: int
    kind: RunKind
    state: str = Field(description="its message's state; `skipped` for a time that was let pass")
    outcome: str
    why: str = Field(description="why a time was let pass")
    slot_at: int | None
    session: str
    result: str
    error: str
    error_code: str
    created_at: int
    started_at: int | None
    finished_at: int | None


class ScheduleDocument(Document):
    kind: Literal["at", "every", "cron"]
    spec: str
    timezone: str
    misfire: Misfire
    overlap: Overlap
    next_at: int | None
    last_at: int | None
    paused: bool


class TaskShown(TaskShort):
    """A task, whole."""

    prompt: str
    result: str
    text: str = Field(description="the result, as results of messages name it")
    success: bool | None = Field(description="null until it has ended")
    delivery: DeliveryState
    deliver_to: dict[str, Any]
    schedule: ScheduleDocument | None
    questions: list[QuestionDocument] = Field(description="open ones first, then the latest")
    question_count: int
    last_question: str
    run_list: list[RunDocument] = Field(description="newest first")
    folder: str
    tasks_dir: str


class TaskDone(Document):
    """What a change of a task answers."""

    success: Literal[True]
    error: Literal[""]
    task_id: str
    name: str
    state: TaskState
    status: TaskState
    run_id: str
    next_at: int | None = Field(description="the next time of its schedule")


class TaskDeleted(Document):
    success: Literal[True]
    error: Literal[""]
    task_id: str


class TaskAsked(Document):
    success: Literal[True]
    error: Literal[""]
    task_id: str
    question_id: str
    answer: str = Field(description="what the run is to do now")
    state: TaskState


class TaskAnswered(Document):
    success: Literal[True]
    error: Literal[""]
    task_id: str
    question_id: str
    answer: str
    state: TaskState


class TaskLog(Document):
    task_id: str
    events: list[EventDocument] = Field(description="oldest first")


class TaskOrResult(RootModel[TaskShown | Result]):
    """A task; for a message's id, what became of the message."""
