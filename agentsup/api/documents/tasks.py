"""Answers of ``/tasks``. They have names of the predecessor too (``task_id``, ``status``,
``parent_agent``, ``elapsed_seconds``, …), so that programs written for that one still work.

Times ending in ``_at`` are wall time in whole milliseconds; ``timeout``, ``every`` and
``elapsed_seconds`` are seconds.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal, Self

from pydantic import Field, RootModel

from agentsup.api.documents.document import Document, DoneDocument
from agentsup.api.documents.messages import EventDocument, QuestionDocument, ResultDocument
from agentsup.mailbox.delivery import preview
from agentsup.mailbox.mail import AgentDirectory, name_in
from agentsup.model.message import DeliverTo
from agentsup.model.principal import PrincipalKind
from agentsup.model.question import Question, QuestionState
from agentsup.model.task import (
    ENDED,
    DeliveryState,
    Misfire,
    Overlap,
    Run,
    RunKind,
    Schedule,
    Task,
    TaskAction,
    TaskState,
)
from agentsup.tasks import TaskCard, skip_text


class ScheduleDocument(Document):
    kind: Literal["at", "every", "cron"]
    spec: str
    timezone: str
    misfire: Misfire
    overlap: Overlap
    next_at: int | None
    last_at: int | None
    paused: bool

    @classmethod
    def of(cls, schedule: Schedule) -> Self:
        """The document of a schedule."""
        return cls.from_value(schedule, timezone=schedule.zone, paused=schedule.is_paused)


class TaskShort(Document):
    """A task as lists show it."""

    id: str
    task_id: str
    name: str
    does: TaskAction = Field(description="`turn`: runs of its agent; `tell`: a reminder's text")
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
    schedule: ScheduleDocument | None
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

    @classmethod
    def of(
        cls,
        task: Task,
        schedule: Schedule | None,
        directory: AgentDirectory,
        *,
        now: int,
        **members: Any,
    ) -> Self:
        """A task as lists show it, with ``members`` of its own kind of document."""
        chat_id, topic_id = _chat(task.deliver_to)
        return cls.from_value(
            task,
            id=task.task_id,
            status=task.state,
            agent=name_in(directory, task.agent_id),
            target=_target(task.target, directory),
            owner=task.owner.label,
            parent_agent=_owner_agent(task, directory),
            prompt_preview=preview(task.prompt),
            result_preview=preview(task.result),
            error=task.error_text,
            priority=task.priority.name.lower(),
            timeout=task.timeout_s,
            schedule=ScheduleDocument.of(schedule) if schedule is not None else None,
            run_id=task.current_run,
            chat_id=chat_id,
            topic_id=topic_id,
            completed_at=task.finished_at,
            elapsed_seconds=_elapsed_s(task, now),
            **members,
        )


class TaskList(Document):
    tasks: list[TaskShort]
    next_cursor: str | None


class RunDocument(Document):
    id: str = Field(description="its message's id")
    run_no: int
    kind: RunKind
    state: str = Field(description="its message's state; `skipped` for a time without a run")
    outcome: str
    why: str = Field(description="why a time was skipped")
    slot_at: int | None
    session: str
    result: str
    error: str
    error_code: str
    created_at: int
    started_at: int | None
    finished_at: int | None

    @classmethod
    def of(cls, run: Run) -> Self:
        """One run of a task."""
        return cls.from_value(
            run,
            id=run.run_id,
            why=skip_text(run.skipped) if run.skipped else "",
            session=run.session_id,
            error=run.error_text,
        )


class TaskShown(TaskShort):
    """A task, whole."""

    prompt: str
    result: str
    text: str = Field(description="the result, as results of messages name it")
    success: bool | None = Field(description="null until it has ended")
    delivery: DeliveryState
    deliver_to: dict[str, Any]
    questions: list[QuestionDocument] = Field(description="open ones first, then the latest")
    question_count: int
    last_question: str
    run_list: list[RunDocument] = Field(description="newest first")
    folder: str
    tasks_dir: str

    @classmethod
    def whole(
        cls,
        card: TaskCard,
        directory: AgentDirectory,
        *,
        now: int,
        folder: Path,
        language: str,
    ) -> Self:
        """A task with its runs, its questions and when it runs next."""
        task, questions = card.task, card.questions
        latest = sorted(questions, key=lambda q: (q.state is not QuestionState.OPEN, -q.asked_at))
        asked = max(questions, key=lambda q: q.asked_at, default=None)
        return cls.of(
            task,
            card.schedule,
            directory,
            now=now,
            text=task.result,
            success=task.state is TaskState.DONE if task.state in ENDED else None,
            delivery=card.delivery,
            deliver_to=task.deliver_to.to_json(),
            questions=[QuestionDocument.of(each, directory, language) for each in latest],
            question_count=len(questions),
            last_question=preview(asked.text) if asked is not None else "",
            run_list=[RunDocument.of(run) for run in card.runs],
            folder=str(folder),
            tasks_dir=str(folder),
        )


class _TaskReply(DoneDocument):
    error: Literal[""]
    task_id: str


class TaskDone(_TaskReply):
    """The answer to a change of a task."""

    name: str
    state: TaskState
    status: TaskState
    run_id: str
    next_at: int | None = Field(description="the next time of its schedule")

    @classmethod
    def of(cls, task: Task, schedule: Schedule | None) -> Self:
        """The answer to a change of ``task``."""
        return cls.from_value(
            task,
            success=True,
            error="",
            status=task.state,
            run_id=task.current_run,
            next_at=schedule.next_at if schedule is not None else None,
        )


class TaskDeleted(_TaskReply):
    pass


class TaskAsked(_TaskReply):
    question_id: str
    answer: str = Field(description="what the run is to do now")
    state: TaskState

    @classmethod
    def of(cls, task: Task, question: Question, answer: str) -> Self:
        """A question of ``task``, and the answer that there is to it."""
        return cls.from_value(
            task, success=True, error="", question_id=question.question_id, answer=answer
        )


class TaskAnswered(TaskAsked):
    answer: str


class TaskLog(Document):
    task_id: str
    events: list[EventDocument] = Field(description="oldest first")


class TaskOrResult(RootModel[TaskShown | ResultDocument]):
    """A task; for a message's id, what became of the message."""


def _elapsed_s(task: Task, now: int) -> float | None:
    """Seconds from the start of the task until its end, or until now; None before its start."""
    if task.started_at is None:
        return None
    return max(0, (task.finished_at or now) - task.started_at) / 1000


def _target(value: str, directory: AgentDirectory) -> str:
    """The agent or role that a task is done as, with the agent's name in place of its id."""
    kind, _, subject = value.partition(":")
    return f"agent:{name_in(directory, subject)}" if kind == "agent" else value


def _owner_agent(task: Task, directory: AgentDirectory) -> str:
    if task.owner.kind is not PrincipalKind.AGENT:
        return ""
    return name_in(directory, task.owner.subject)


def _chat(to: DeliverTo) -> tuple[str, str]:
    """The chat and the topic to which a result finally goes, or empty texts."""
    at: DeliverTo | None = to
    while at is not None:
        if at.kind == "chat":
            chat, _, topic = at.conversation.partition("/")
            return chat, topic
        at = at.then
    return "", ""
