"""Bodies and query strings of ``/tasks``. ``timeout`` and ``every`` are seconds."""

from __future__ import annotations

from typing import Annotated

from pydantic import AfterValidator, Field

from agentsup.api.documents.bodies import (
    MAX_PAGE,
    Body,
    ChatRef,
    From,
    Key,
    OptionalName,
    Positive,
    PriorityName,
    Query,
    Text,
    WaitSeconds,
)
from agentsup.model.task import MAX_NAME_CHARS, MAX_PROMPT_CHARS, Misfire, Overlap, TaskState

MAX_TIMEOUT_S = 30 * 86_400.0


def _states(value: str) -> str:
    known = [state.value for state in TaskState]
    for one in value.split(","):
        if one.strip() not in known:
            raise ValueError(f"must be one or more of {', '.join(known)}, with commas between")
    return value


TaskId = Annotated[str, Field(min_length=4, max_length=200, description="or its unique ending")]
Prompt = Annotated[Text, Field(max_length=MAX_PROMPT_CHARS)]


class ScheduleBody(Body):
    """When a task runs: exactly one of `at`, `every` and `cron`."""

    at: Annotated[str | None, Field(max_length=100, description="ISO 8601")] = None
    every: Positive | None = Field(None, description="seconds")
    cron: Annotated[str | None, Field(max_length=200, description="five fields")] = None
    timezone: Annotated[str | None, Field(max_length=100, description="IANA name")] = None
    misfire: Annotated[
        Misfire, Field(description="times that passed while nobody could keep them")
    ] = Misfire.ONCE
    overlap: Overlap = Field(Overlap.SKIP, description="times at which the last run has not ended")


class CreateTaskBody(Body):
    """A new task. Who owns it is told by the token."""

    prompt: Annotated[Prompt, Field(description="what is to be done")]
    from_: From = None
    name: Annotated[str | None, Field(max_length=MAX_NAME_CHARS)] = None
    provider: OptionalName = Field(None, description="only the one that the agent has anyway")
    model: OptionalName = Field(None, description="only the one that the agent has anyway")
    thinking: OptionalName = Field(None, description="refused: the agent's entry says it")
    chat_id: ChatRef = None
    topic_id: ChatRef = None
    agent: OptionalName = Field(None, description="who does it")
    role: OptionalName = Field(None, description="the role in which it is done")
    start: Annotated[bool, Field(description="false: only written down")] = True
    schedule: ScheduleBody | None = None
    priority: PriorityName = "normal"
    timeout: Positive | None = Field(
        None, le=MAX_TIMEOUT_S, description="seconds that a run may wait in its queue"
    )
    max_usd: Positive | None = Field(None, description="for all runs together")
    parent_task_id: TaskId | None = None
    idempotency_key: Key = None


class TaskBody(Body):
    """Which task."""

    task_id: TaskId
    from_: From = None


class ResumeTaskBody(TaskBody):
    """Go on with a task, in the session it was in."""

    prompt: Annotated[Prompt, Field(description="what is to be done now")]
    idempotency_key: Key = None


class AskParentBody(TaskBody):
    """A question of a task to whoever gave it."""

    question: Annotated[Text, Field(max_length=20_000)]
    options: Annotated[list[str] | None, Field(max_length=20)] = None


class AnswerTaskBody(TaskBody):
    """The answer to a task's open question."""

    answer: Annotated[Text, Field(max_length=MAX_PROMPT_CHARS)]
    question_id: OptionalName = Field(None, description="which one, where several are open")


class UpdateTaskBody(TaskBody):
    """What is to be told of a task, or changed."""

    progress: Annotated[str | None, Field(max_length=2000)] = None
    percent: Annotated[int | None, Field(ge=0, le=100)] = None
    note: str | None = Field(None, max_length=20_000, description="appended to its TASKMEMORY.md")
    state: TaskState | None = Field(
        None, description="todo, done or cancelled, of a task that never ran"
    )
    name: Annotated[str | None, Field(min_length=1, max_length=MAX_NAME_CHARS)] = None
    paused: Annotated[bool | None, Field(description="whether its schedule is paused")] = None
    schedule: ScheduleBody | None = Field(
        None, description="other times, for a task that has a schedule"
    )


class TasksQuery(Query):
    """Which tasks to list."""

    from_: From = None
    agent: OptionalName = Field(None, description="who does them")
    state: Annotated[
        str | None,
        AfterValidator(_states),
        Field(max_length=200, description="one or more, with commas between"),
    ] = None
    limit: Annotated[int, Field(ge=1, le=MAX_PAGE)] = 100
    cursor: OptionalName = Field(None, description="`next_cursor` of the page before")


class TaskQuery(Query):
    """How long to wait for the end of its run, and for whom to look."""

    from_: From = None
    wait: WaitSeconds = 0.0


class TaskLogQuery(Query):
    """How much of a task's events to show."""

    from_: From = None
    tail: Annotated[int, Field(ge=1, le=MAX_PAGE)] = 20
