"""Texts for states, counts and tasks in a chat, in the language of the person. Pure: plain text for a
phone."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, tzinfo
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from agentsup.catalogue import LocalizedTexts
from agentsup.mailbox.delivery import preview
from agentsup.mailbox.messages import answer_options
from agentsup.model.control import AgentView, StopReport
from agentsup.model.message import Message
from agentsup.model.question import Question
from agentsup.model.task import ENDED, Run, Schedule, Task, TaskState
from agentsup.observe.traces import SpanNode
from agentsup.tasks import skip_text

_MARK = {
    "running": "●",
    "degraded": "◐",
    "starting": "○",
    "backoff": "◌",
    "failed": "✗",
    "stopping": "○",
    "stopped": "–",
}
_SCHEDULES_SHOWN = 5


def duration(seconds: float | None) -> str:
    """A length of time in at most two units, such as ``3 h 5 min``."""
    if seconds is None:
        return "–"
    whole = int(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60} s" if whole < 600 else f"{whole // 60} min"
    if whole < 86_400:
        return f"{whole // 3600} h {whole % 3600 // 60} min"
    return f"{whole // 86_400} d {whole % 86_400 // 3600} h"


def state(status: str, say: LocalizedTexts) -> str:
    """The name of an agent's state."""
    return say(f"state.{status}") if status in _MARK else status


def agent(view: AgentView, now_ms: int, say: LocalizedTexts) -> str:
    """One agent, in a few lines."""
    head = f"{_MARK.get(view.status, '?')} {view.name} - {state(view.status, say)}"
    notes = tuple(map(say.translated, view.warnings))
    if view.status == "degraded" and notes:
        head, notes = f"{head}: {notes[0]}", notes[1:]
    if view.desired == "down":
        key = "agent.by_operator" if view.status == "stopped" else "agent.stopping"
        head = say(key, head=head)
    if view.uptime_s is not None and view.status in ("running", "degraded"):
        head = say("agent.up", head=head, time=duration(view.uptime_s))
    engine = view.thinks_with
    lines = [say("agent.role", engine=engine, role=view.role) if view.role else engine]
    load = {"queued": view.queued, "running": view.running, "parked": view.parked}
    lines.append(say("agent.load", **load))
    if view.restarts or view.last_reason:
        count = say.count("agent.restarts", view.restarts) if view.restarts else ""
        lines.append(": ".join(each for each in (count, view.last_reason) if each))
    if view.next_retry_at is not None:
        wait_s = max(0, view.next_retry_at - now_ms) / 1000
        lines.append(say("agent.next_try", time=duration(wait_s)))
    if view.status == "failed":
        lines.append(say("agent.revive", name=view.name))
    if view.pending:
        lines.append(view.pending)
    lines.extend(say("agent.works_on", work=work) for work in view.work[:3])
    lines.extend(say("agent.note", warning=warning) for warning in notes[:3])
    return "\n   ".join([head, *lines])


def agent_label(view: AgentView) -> str:
    """One agent on a button."""
    return f"{_MARK.get(view.status, '?')} {view.name}"


def stop(report: StopReport, say: LocalizedTexts, now_ms: int = 0, *, also: str = "") -> str:
    """The report of a stop, with exact counts, and the schedules that run again by themselves."""
    total = report.running + report.queued + report.parked
    if total == 0 and report.processes == 0:
        text = say("stopped.nothing")
    else:
        counts = {
            "stopped.turns": report.running,
            "stopped.queued": report.queued,
            "stopped.parked": report.parked,
            "stopped.processes": report.processes,
        }
        text = ", ".join(say.count(key, count) for key, count in counts.items() if count)
        if report.agents > 1:
            text = say("stopped.over", what=text, agents=say.count("stopped.agents", report.agents))
        text = say("stopped.what", what=text, ms=f"{report.elapsed_ms:.0f}")
    parts = [text]
    if not report.durable:
        parts.append(say("stopped.not_durable"))
    text = " ".join([*parts, say("stopped.agents_stay"), *([also] if also else [])])
    return f"{text}\n{_remaining_schedules(report, say, now_ms)}" if report.schedules else text


def _remaining_schedules(report: StopReport, say: LocalizedTexts, now_ms: int) -> str:
    """The schedules that remain after a stop, each with its next time."""
    shown = report.schedules[:_SCHEDULES_SHOWN]
    parts = [say.count("stopped.remaining", len(report.schedules))]
    parts += [
        "   " + say("stopped.schedule", name=preview(each.name, 60), when=when)
        for each in shown
        for when in (moment(each.next_at, each.zone, now_ms, say),)
    ]
    if len(report.schedules) > len(shown):
        parts.append("   " + say("list.more", n=len(report.schedules) - len(shown)))
    return "\n".join(parts)


def moment(at_ms: int, zone: str, now_ms: int, say: LocalizedTexts) -> str:
    """A time to come: how long until then, and the local time in ``zone``."""
    parts = _clock(at_ms, zone, now_ms)
    if at_ms <= now_ms:
        return say("moment.now", when=parts)
    return say("moment.in", time=duration((at_ms - now_ms) / 1000), when=parts)


def date(at_ms: int) -> str:
    """A time of the past in the daemon's zone, to the minute."""
    return f"{datetime.fromtimestamp(at_ms / 1000, UTC).astimezone():%Y-%m-%d %H:%M}"


def _clock(at_ms: int, zone: str, now_ms: int) -> str:
    known: tzinfo | None = None
    if zone:
        try:
            known = ZoneInfo(zone)
        except (ZoneInfoNotFoundError, ValueError):
            known, zone = UTC, "UTC"
    there = datetime.fromtimestamp(at_ms / 1000, known or UTC).astimezone(known)
    form = "%H:%M:%S" if at_ms - now_ms < 60_000 else "%H:%M"
    if at_ms - now_ms >= 20 * 3_600_000:
        form = f"%Y-%m-%d {form}"
    return f"{there:{form}} {zone or there.tzname() or ''}".rstrip()


def failed_message(message: Message) -> str:
    """One failed message, for /failed."""
    error = message.error_text or message.error_code
    return f"{message.message_id}\n   “{excerpt(message)}”\n   {error}"


def excerpt(message: Message, limit: int = 80) -> str:
    """The beginning of a message's text on one line."""
    return preview(message.text, limit)


def step(message: Message, agent: str, depth: int, *, since_ms: int) -> str:
    """One message of a trace: its agent, state, start (relative to ``since_ms``) and duration."""
    state = message.state.value
    if message.outcome is not None:
        state += f" ({message.outcome.value})"
    begun = message.started_at or message.accepted_at
    line = f"{'   ' * depth}{message.message_id} {agent}: {state}, +{_ms(begun - since_ms)}"
    if message.started_at is not None and message.finished_at is not None:
        line += f", took {_ms(message.finished_at - message.started_at)}"
    if message.error_code:
        line += f", {message.error_code}"
    return f"{line}\n{'   ' * depth}   “{excerpt(message, 60)}”"


def piece(span: SpanNode, say: LocalizedTexts) -> str:
    """One span of a turn: its kind and name, state and duration."""
    name = say(f"trace.{span.kind}", name=preview(span.name, 60))
    line = f"• {name}: {say(f'trace.state_{span.state}')}"
    if span.duration_us is not None:
        line += f", {_ms(span.duration_us // 1000)}"
    if span.code:
        line += f", {span.code}"
    return line


def _ms(value: int) -> str:
    return f"{value} ms" if value < 1000 else duration(value / 1000)


def question(item: Question) -> str:
    """One open question, for /status."""
    options = f" [{' | '.join(item.options)}]" if item.options else ""
    return f"{item.question_id}: {item.text}{options}"


_TASK_MARK = {
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


def task_label(task: Task) -> str:
    """One task on a button."""
    return f"{_TASK_MARK[task.state]} {preview(task.name, _LABEL)}"


def task_line(
    task: Task, schedule: Schedule | None, agent: str, now: int, say: LocalizedTexts
) -> str:
    """One task in a list, two lines."""
    text = _state(task, now, say)
    if task.percent is not None and task.state not in ENDED:
        text += f", {task.percent} %"
    if task.progress and task.state not in ENDED:
        text += f", {preview(task.progress, 60)}"
    if schedule is not None and schedule.next_at is not None and not schedule.is_paused:
        text += f"; {say('tasks.again', when=moment(schedule.next_at, schedule.zone, now, say))}"
    elif schedule is not None and schedule.is_paused:
        text += f"; {say('tasks.times_paused')}"
    return f"{task_label(task)}\n   {short_id(task.task_id)}, {agent}: {text}"


def bar(percent: int) -> str:
    """A progress bar as text."""
    full = round(percent * _BAR / 100)
    return "█" * full + "░" * (_BAR - full)


def task_card(
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
        f"{_TASK_MARK[task.state]} {preview(task.name, 120)}",
        _state(task, now, say, asked_at=question.asked_at if question is not None else None),
        say("tasks.by_in", agent=agent, target=target) if target else say("tasks.by", agent=agent),
    ]
    lines += _progress(task, now, say)
    if schedule is not None:
        lines.append(_next(schedule, now, say))
    if question is not None:
        shown = answer_options.labels(question.kind, question.options, say.language)
        options = f" [{' | '.join(shown)}]" if shown else ""
        lines.append(say("tasks.asks", text=preview(question.text, 500) + options))
    if task.error_text or task.error_code:
        lines.append(say("tasks.error", why=preview(task.error_text or task.error_code, 300)))
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
        parts.append(preview(task.progress, 200))
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
    return f"{text}: {preview(why, 80)}" if why else text


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
