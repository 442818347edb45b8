"""Texts for tasks in a chat, in the person's language. Pure: plain text for a phone."""

from __future__ import annotations

from collections.abc import Sequence

from agentsup.catalogue import LocalizedTexts
from agentsup.commands.texts import duration, moment, one_line
from agentsup.mailbox.messages import answer_options
from agentsup.model.question import Question
from agentsup.model.task import ENDED, Run, Schedule, Task, TaskState
from agentsup.tasks import skip_text

_MARK = {
    TaskState.TODO: "○",
    TaskState.QUEUED: "◌",
    TaskState.RUNNING: "●",
    TaskState.WAITING: "?",
    TaskState.DONE: "✔",
    TaskState.FAILED: "✗",
    TaskState.CANCELLED: "–",
}
_BAR = 10
RESULT_CHARS = 700
_PROMPT = 300
_RUNS = 3
_LABEL = 32
ENDING = 8
"""Last characters of an id that are shown in a list; a command accepts them for the whole id."""


def short_id(task_id: str) -> str:
    """The last characters of an id, which commands accept."""
    return task_id[-ENDING:]


def label(task: Task) -> str:
    """One task on a button."""
    return f"{_MARK[task.state]} {one_line(task.name, _LABEL)}"


def line(task: Task, schedule: Schedule | None, agent: str, now: int, say: LocalizedTexts) -> str:
    """One task in a list, two lines."""
    text = _state(task, now, say)
    if task.percent is not None and task.state not in ENDED:
        text += f", {task.percent} %"
    if task.progress and task.state not in ENDED:
        text += f", {one_line(task.progress, 60)}"
    if schedule is not None and schedule.next_at is not None and not schedule.is_paused:
        text += f"; {say('tasks.again', when=moment(schedule.next_at, schedule.zone, now, say))}"
    return f"{label(task)}\n   {short_id(task.task_id)}, {agent}: {text}"


def bar(percent: int) -> str:
    """A progress bar as text."""
    full = round(percent * _BAR / 100)
    return "█" * full + "░" * (_BAR - full)


def card(
    task: Task,
    say: LocalizedTexts,
    *,
    agent: str,
    target: str,
    now: int,
    runs: Sequence[Run],
    question: Question | None,
    schedule: Schedule | None,
) -> str:
    """The details of one task, in few lines."""
    lines = [
        f"{_MARK[task.state]} {one_line(task.name, 120)}",
        _state(task, now, say, asked_at=question.asked_at if question is not None else None),
        say("tasks.by_in", agent=agent, target=target) if target else say("tasks.by", agent=agent),
    ]
    lines += _progress(task, now, say)
    if schedule is not None:
        lines.append(_next(schedule, now, say))
    if question is not None:
        shown = answer_options.labels(question.kind, question.options, say.language)
        options = f" [{' | '.join(shown)}]" if shown else ""
        lines.append(say("tasks.asks", text=one_line(question.text, 500) + options))
    if task.error_text or task.error_code:
        lines.append(say("tasks.error", why=one_line(task.error_text or task.error_code, 300)))
    if task.result:
        lines.append(say("tasks.result", text=_beginning(task.result, RESULT_CHARS)))
    else:
        lines.append(say("tasks.prompt", text=_beginning(task.prompt, _PROMPT)))
    if task.runs > 1 or any(run.state == "skipped" for run in runs):
        lines.append(say.count("tasks.runs", task.runs))
        lines += [f"   {_run(run, now, say)}" for run in runs[:_RUNS]]
    lines.append(say("tasks.id", id=task.task_id))
    return "\n".join(lines)


def _progress(task: Task, now: int, say: LocalizedTexts) -> list[str]:
    if task.state in ENDED or (task.percent is None and not task.progress):
        return []
    parts = [] if task.percent is None else [f"{bar(task.percent)} {task.percent} %"]
    if task.progress:
        parts.append(one_line(task.progress, 200))
    if task.progress_at is not None:
        parts.append(f"({say('tasks.ago', time=_age(task.progress_at, now))})")
    return [" ".join(parts)]


def _next(schedule: Schedule, now: int, say: LocalizedTexts) -> str:
    what = schedule_text(schedule, say)
    if schedule.is_paused:
        return say("tasks.paused", what=what)
    if schedule.next_at is None:
        return say("tasks.over", what=what)
    return say("tasks.next", what=what, when=moment(schedule.next_at, schedule.zone, now, say))


def schedule_text(schedule: Schedule, say: LocalizedTexts) -> str:
    """When a schedule comes, such as "every 1 h" or "cron 0 7 * * *"."""
    if schedule.kind != "every":
        return f"{schedule.kind} {schedule.spec}"
    try:
        return say("tasks.every", time=_span(float(schedule.spec)))
    except ValueError:
        return f"every {schedule.spec}"


def _span(seconds: float) -> str:
    """A length of time without a unit of 0."""
    text = duration(seconds)
    return text if seconds < 60 else text.removesuffix(" 0 s").removesuffix(" 0 min")


def _run(run: Run, now: int, say: LocalizedTexts) -> str:
    ended = run.finished_at or run.started_at or run.slot_at or run.created_at
    state = run.outcome or run.state
    number = "–" if run.state == "skipped" else f"{run.run_no}."
    text = f"{number} {say(f'run_state.{state}')}"
    text += f", {say('tasks.ago', time=_age(ended, now))}"
    why = skip_text(run.skipped, say) if run.skipped else run.error_text
    return f"{text}: {one_line(why, 80)}" if why else text


def _state(task: Task, now: int, say: LocalizedTexts, *, asked_at: int | None = None) -> str:
    """The state of a task, and since when, if that is known."""
    text = say(f"task_state.{task.state.value}")
    match task.state:
        case TaskState.RUNNING | TaskState.QUEUED:
            at = task.started_at if task.state is TaskState.RUNNING else task.created_at
            return f"{text}, {say('tasks.since', time=_age(at or task.created_at, now))}"
        case TaskState.WAITING if asked_at is None:
            return text
        case TaskState.WAITING:
            return f"{text}, {say('tasks.since', time=_age(asked_at or now, now))}"
        case _:
            return (
                f"{text}, {say('tasks.ago', time=_age(task.finished_at or task.created_at, now))}"
            )


def _age(at_ms: int, now: int) -> str:
    return duration(max(0, now - at_ms) / 1000)


def _beginning(text: str, limit: int) -> str:
    text = text.strip()
    return text if len(text) <= limit else text[: limit - 1].rstrip() + "…"
