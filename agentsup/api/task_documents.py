"""Tasks as the JSON documents that `task_shapes` describes. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from agentsup.api import documents
from agentsup.mailbox.bus import AgentDirectory
from agentsup.model.message import DeliverTo
from agentsup.model.principal import PrincipalKind
from agentsup.model.question import Question, QuestionState
from agentsup.model.task import ENDED, DeliveryState, Run, Schedule, Task, TaskState

PREVIEW = 200


def short(task: Task, directory: AgentDirectory, *, now: int) -> dict[str, Any]:
    """A task as lists show it."""
    chat_id, topic_id = _chat(task.deliver_to)
    return {
        "id": task.task_id,
        "task_id": task.task_id,
        "name": task.name,
        "state": task.state.value,
        "status": task.state.value,
        "agent": documents.name_of(directory, task.agent_id),
        "agent_id": task.agent_id,
        "target": target(task.target, directory),
        "owner": task.owner.label,
        "parent_agent": _owner_agent(task, directory),
        "prompt_preview": preview(task.prompt),
        "result_preview": preview(task.result),
        "error": task.error_text,
        "error_code": task.error_code,
        "progress": task.progress,
        "percent": task.percent,
        "progress_at": task.progress_at,
        "priority": task.priority.name.lower(),
        "timeout": task.timeout_s,
        "max_usd": task.max_usd,
        "parent_task_id": task.parent_task_id,
        "run_id": task.current_run,
        "runs": task.runs,
        "session_id": task.session_id,
        "chat_id": chat_id,
        "topic_id": topic_id,
        "created_at": task.created_at,
        "started_at": task.started_at,
        "finished_at": task.finished_at,
        "completed_at": task.finished_at,
        "elapsed_seconds": elapsed_s(task, now),
    }


def whole(
    task: Task,
    directory: AgentDirectory,
    *,
    now: int,
    runs: Sequence[Run],
    questions: Sequence[Question],
    schedule: Schedule | None,
    delivery: DeliveryState,
    folder: Path,
    language: str,
) -> dict[str, Any]:
    """A task with its runs, its questions and when it runs next."""
    latest = sorted(questions, key=lambda q: (q.state is not QuestionState.OPEN, -q.asked_at))
    asked = max(questions, key=lambda q: q.asked_at, default=None)
    return {
        **short(task, directory, now=now),
        "prompt": task.prompt,
        "result": task.result,
        "text": task.result,
        "success": task.state is TaskState.DONE if task.state in ENDED else None,
        "delivery": delivery.value,
        "deliver_to": task.deliver_to.to_json(),
        "schedule": _schedule(schedule) if schedule is not None else None,
        "questions": [documents.question(q, directory, language) for q in latest],
        "question_count": len(questions),
        "last_question": preview(asked.text) if asked is not None else "",
        "run_list": [_run(run) for run in runs],
        "folder": str(folder),
        "tasks_dir": str(folder),
    }


def changed(task: Task, schedule: Schedule | None) -> dict[str, Any]:
    """What a change of a task answers."""
    return {
        "success": True,
        "error": "",
        "task_id": task.task_id,
        "name": task.name,
        "state": task.state.value,
        "status": task.state.value,
        "run_id": task.current_run,
        "next_at": schedule.next_at if schedule is not None else None,
    }


def preview(text: str) -> str:
    """The beginning of a text, on one line."""
    line = " ".join(text.split())
    return line if len(line) <= PREVIEW else line[: PREVIEW - 1] + "…"


def elapsed_s(task: Task, now: int) -> float | None:
    """How long it has been worked on, or was; None where nothing has begun."""
    if task.started_at is None:
        return None
    return max(0, (task.finished_at or now) - task.started_at) / 1000


def target(value: str, directory: AgentDirectory) -> str:
    """In whose place a task is done, with the agent's name for its id."""
    kind, _, subject = value.partition(":")
    return f"agent:{documents.name_of(directory, subject)}" if kind == "agent" else value


def _owner_agent(task: Task, directory: AgentDirectory) -> str:
    if task.owner.kind is not PrincipalKind.AGENT:
        return ""
    return documents.name_of(directory, task.owner.subject)


def _chat(to: DeliverTo) -> tuple[str, str]:
    """The chat and its topic at the end of the way of a result, or empty texts."""
    at: DeliverTo | None = to
    while at is not None:
        if at.kind == "chat":
            chat, _, topic = at.conversation.partition("/")
            return chat, topic
        at = at.then
    return "", ""


def _run(run: Run) -> dict[str, Any]:
    return {
        "id": run.run_id,
        "run_no": run.run_no,
        "kind": run.kind.value,
        "state": run.state,
        "outcome": run.outcome,
        "why": run.why,
        "slot_at": run.slot_at,
        "session": run.session_id,
        "result": run.result,
        "error": run.error_text,
        "error_code": run.error_code,
        "created_at": run.created_at,
        "started_at": run.started_at,
        "finished_at": run.finished_at,
    }


def _schedule(one: Schedule) -> dict[str, Any]:
    return {
        "kind": one.kind,
        "spec": one.spec,
        "timezone": one.zone,
        "misfire": one.misfire.value,
        "overlap": one.overlap.value,
        "next_at": one.next_at,
        "last_at": one.last_at,
        "paused": one.is_paused,
    }
