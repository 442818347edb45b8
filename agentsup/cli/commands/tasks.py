"""``agentsup tasks …``: create, show, answer and control background work."""

from __future__ import annotations

import re
import sys
from typing import Annotated, Any

import typer

from agentsup.cli.connect.client import segment
from agentsup.cli.connect.failure import CommandFailed
from agentsup.cli.output.declared import Request, asks, listing, read, record, submit
from agentsup.cli.output.options import (
    AsJson,
    Limit,
    client_of,
    complete_agent,
    complete_task,
    group,
)
from agentsup.cli.output.reads import PAGE
from agentsup.cli.output.show import Columns, CommandOutput, at, duration, labelled, shortened, when
from agentsup.kit.terminal import clean

tasks = group("Background work: create, list, show, resume, answer, cancel, delete.")

_UNITS = {"": 1, "s": 1, "m": 60, "min": 60, "h": 3600, "d": 86_400, "w": 604_800}
_SPAN = re.compile(r"(\d+(?:\.\d+)?)\s*([a-z]*)")
MARGIN_S = 10.0
WAIT_S = 600.0
"""Seconds that one request may wait; a longer wait takes several."""

TaskId = Annotated[
    str,
    typer.Argument(
        metavar="ID",
        help="The task's id, or an ending of it that no other has.",
        autocompletion=complete_task,
    ),
]
OfAgent = Annotated[
    str | None,
    typer.Option("--agent", metavar="AGENT", help="Its name.", autocompletion=complete_agent),
]
Key = Annotated[
    str | None, typer.Option("--key", help="Repeated with the same key, it counts once.")
]
Wait = Annotated[
    bool, typer.Option("--wait", help="Wait until it has ended or asks; print what came of it.")
]


def seconds_of(text: str) -> float:
    """``90``, ``30s``, ``10m``, ``2h``, ``1d`` or ``1w`` as seconds. Raises ``BadParameter``."""
    found = _SPAN.fullmatch(text.strip().casefold())
    if found is None or found[2] not in _UNITS:
        raise typer.BadParameter(f"{text!r} is no length of time; write 30s, 10m, 2h or 1d")
    return float(found[1]) * _UNITS[found[2]]


def _state(one: dict[str, Any]) -> str:
    is_paused = one["schedule"] is not None and one["schedule"]["paused"]
    return f"{one['state']}, schedule paused" if is_paused else str(one["state"])


def _gist(one: dict[str, Any]) -> str:
    said = one["error"] if one["state"] == "failed" else one["progress"] or one["result_preview"]
    return shortened(clean(f"{one['name']}: {said}" if said else one["name"]), 200)


def _bar(percent: int | None) -> str:
    if percent is None:
        return ""
    full = round(percent / 10)
    return "█" * full + "░" * (10 - full) + f" {percent} %"


def _schedule(one: dict[str, Any] | None) -> str:
    if one is None:
        return ""
    spec = one["spec"]
    if one["kind"] == "every":
        spec = duration(float(spec)) if float(spec) >= 1 else f"{spec} s"
    zone = f" ({one['timezone']})" if one["timezone"] and one["kind"] != "every" else ""
    if one["paused"]:
        then = "paused"
    else:
        then = f"next {when(one['next_at'])}" if one["next_at"] else "no further time"
    return f"{one['kind']} {spec}{zone}, {then}"


def _limits(one: dict[str, Any]) -> str:
    parts = []
    if one["timeout"] is not None:
        parts.append(f"begins within {duration(one['timeout'])}")
    if one["max_usd"] is not None:
        parts.append(f"at most {one['max_usd']:g} USD")
    return ", ".join(parts)


def _run(run: dict[str, Any]) -> tuple[str, str]:
    if run["state"] == "skipped":  # a time of the schedule that had no run
        return "skipped", f"{when(run['slot_at'])}: {shortened(run['why'], 120)}"
    state = run["state"] + (f" ({run['outcome']})" if run["outcome"] == "failed" else "")
    line = f"{run['kind']}, {state}, {when(run['finished_at'] or run['created_at'])}, {run['id']}"
    why = shortened(run["error"], 120)
    return f"run {run['run_no']}", f"{line}: {why}" if why else line


def _asked(question: dict[str, Any]) -> tuple[str, str]:
    options = f" [{' | '.join(question['options'])}]" if question["options"] else ""
    said = f" → {question['answer']}" if question["answer"] else ""
    name = "asks" if question["state"] == "open" else "asked"
    return name, f"{question['text']}{options}{said} ({question['id']})"


COLUMNS: Columns = (
    *("id", "agent"),
    ("state", _state),
    ("%", lambda one: "" if one["percent"] is None else one["percent"]),
    ("created", at("created_at")),
    ("what", _gist),
)
FIELDS: Columns = (
    *("id", "name", "state"),
    ("progress", lambda one: " ".join(filter(None, (_bar(one["percent"]), one["progress"])))),
    ("agent", lambda one: one["agent"] + (f", as {one['target']}" if one["target"] else "")),
    "owner",
    ("schedule", lambda one: _schedule(one["schedule"])),
    ("created", at("created_at")),
    ("started", at("started_at", "")),
    ("finished", at("finished_at", "")),
    ("took", lambda one: duration(one["elapsed_seconds"]) if one["elapsed_seconds"] else ""),
    "error",
    ("delivery", lambda one: one["delivery"] if one["delivery"] != "none" else ""),
    ("part of", "parent_task_id"),
    ("limits", _limits),
    ("session", "session_id"),
    "folder",
)
MESSAGE = record((("message", "id"), "agent", "state", "error", "text"))


@asks(listing("tasks", COLUMNS, "There are no such tasks."), tasks, "list")
def list_(
    agent: OfAgent = None,
    state: Annotated[
        str | None,
        typer.Option(
            help="todo, queued, running, waiting, done, failed or cancelled; several with commas."
        ),
    ] = None,
    owner: Annotated[
        str | None, typer.Option("--from", metavar="AGENT", help="Of this agent's own only.")
    ] = None,
    limit: Limit = PAGE,
    cursor: Annotated[str | None, typer.Option(help="next_cursor of the page before.")] = None,
) -> Request:
    """Tasks, newest first."""
    page = {"from": owner, "limit": limit, "cursor": cursor}
    return read("/tasks/list", agent=agent, state=state, **page)


def _shown(screen: CommandOutput, one: dict[str, Any]) -> None:
    """A task with its runs and questions, or a message if the id was a message's."""
    if "run_list" not in one:
        MESSAGE(screen, one)
        return
    screen.facts(
        [
            *labelled(one, FIELDS),
            *map(_run, reversed(one["run_list"])),
            *map(_asked, reversed(one["questions"])),
            ("to do", one["prompt"]),
            ("result", one["result"]),
        ]
    )


@asks(_shown, tasks)
def show(
    task_id: TaskId,
    wait: Annotated[
        float, typer.Option("--wait", min=0, max=600, help="Wait so many seconds for its end.")
    ] = 0.0,
) -> Request:
    """One task: state, question, result, runs and times to come."""
    query = {"wait": wait or None}
    return Request(f"/tasks/{segment(task_id)}", query, timeout_s=wait + MARGIN_S + 20)


@tasks.command()
def create(
    ctx: typer.Context,
    prompt: Annotated[str, typer.Argument(metavar="TEXT", help="What to do; - reads it.")],
    name: Annotated[str | None, typer.Option(help="What to call it.")] = None,
    agent: OfAgent = None,
    role: Annotated[str | None, typer.Option(help="The role in which it is done.")] = None,
    owner: Annotated[
        str | None, typer.Option("--from", metavar="AGENT", help="The agent that owns it.")
    ] = None,
    todo: Annotated[bool, typer.Option("--todo", help="Write it down, begin nothing.")] = False,
    at: Annotated[
        str | None, typer.Option(help="Once, at a time such as 2026-12-24T18:00.")
    ] = None,
    every: Annotated[str | None, typer.Option(help="Again and again: 30s, 10m, 2h, 1d.")] = None,
    cron: Annotated[
        str | None, typer.Option(help="Five fields, such as '30 8 * * MON-FRI'.")
    ] = None,
    timezone: Annotated[str | None, typer.Option(help="Of those times: Europe/Berlin.")] = None,
    misfire: Annotated[
        str | None, typer.Option(help="Times that nobody could keep: once, skip or all.")
    ] = None,
    overlap: Annotated[
        str | None, typer.Option(help="Times while the last run goes on: skip or queue.")
    ] = None,
    priority: Annotated[str | None, typer.Option(help="critical, high, normal or low.")] = None,
    timeout: Annotated[
        str | None, typer.Option(help="How long a run may wait for its turn.")
    ] = None,
    max_usd: Annotated[float | None, typer.Option(help="For all its runs together.")] = None,
    parent: Annotated[str | None, typer.Option(help="The task it is a part of.")] = None,
    key: Key = None,
    wait: Wait = False,
    as_json: AsJson = False,
) -> None:
    """Have something done in the background."""
    times: dict[str, Any] = {
        "at": at,
        "every": seconds_of(every) if every is not None else None,
        "cron": cron,
        "timezone": timezone,
        "misfire": misfire,
        "overlap": overlap,
    }
    schedule = {name: value for name, value in times.items() if value is not None}
    body = {
        "prompt": sys.stdin.read() if prompt == "-" else prompt,
        "name": name,
        "agent": agent,
        "role": role,
        "from": owner,
        "start": False if todo else None,
        "schedule": schedule or None,
        "priority": priority,
        "timeout": seconds_of(timeout) if timeout is not None else None,
        "max_usd": max_usd,
        "parent_task_id": parent,
        "idempotency_key": key,
    }
    _begun(ctx, "/tasks/create", body, wait=wait, as_json=as_json)


@tasks.command()
def resume(
    ctx: typer.Context,
    task_id: TaskId,
    prompt: Annotated[
        str | None, typer.Argument(metavar="[TEXT]", help="What to do now; else the same again.")
    ] = None,
    key: Key = None,
    wait: Wait = False,
    as_json: AsJson = False,
) -> None:
    """Go on with a task in its session; a todo begins."""
    if prompt is None:
        prompt = client_of(ctx).get(f"/tasks/{segment(task_id)}")["prompt"]
    body = {
        "task_id": task_id,
        "prompt": sys.stdin.read() if prompt == "-" else prompt,
        "idempotency_key": key,
    }
    _begun(ctx, "/tasks/resume", body, wait=wait, as_json=as_json)


def _begun(
    ctx: typer.Context, path: str, body: dict[str, Any], *, wait: bool, as_json: bool
) -> None:
    client, screen = client_of(ctx), CommandOutput()
    given = {name: value for name, value in body.items() if value is not None}
    one = client.post(path, given)
    if not wait:
        screen.done(one, _state_text(one), as_json=as_json)
        return
    while one["state"] in ("queued", "running"):
        one = client.get(
            f"/tasks/{segment(one['task_id'])}", {"wait": WAIT_S}, timeout_s=WAIT_S + MARGIN_S
        )
    if as_json:
        screen.json(one)
    elif one["state"] == "done":
        screen.say(clean(one["result"]))
    elif one["state"] in ("failed", "cancelled"):
        raise CommandFailed(f"{one['task_id']} is {one['state']}: {clean(one.get('error') or '-')}")
    elif one["state"] == "waiting" and one["questions"]:
        screen.say(f"{one['task_id']} asks: {clean(_asked(one['questions'][0])[1])}")
    else:
        screen.say(_state_text(one))
    if as_json and one["state"] in ("failed", "cancelled"):
        raise CommandFailed


def _state_text(one: dict[str, Any]) -> str:
    """A sentence with the state of a task and its next run."""
    next_at = one.get("next_at")
    then = f"; next run {when(next_at)}" if next_at else ""
    return f"{one['task_id']} is {one['state']}{then}: {clean(one['name'])}"


@asks("answered: {answer}", tasks)
def answer(
    task_id: TaskId,
    text: Annotated[str, typer.Argument(metavar="TEXT", help="One of the options, if any.")],
    question: Annotated[
        str | None, typer.Option("--question", metavar="ID", help="Which, if several are open.")
    ] = None,
) -> Request:
    """Answer what a task asks."""
    which = {} if question is None else {"question_id": question}
    return submit("/tasks/answer", task_id=task_id, answer=text, **which)


def _add_change(verb: str, text: str, about: str, request: str = "", **more: bool) -> None:
    """Add a command that changes one task. ``request`` is its name in the API if that is not
    ``verb``; ``text`` says what came of it."""

    @asks(text, tasks, verb, help=about)
    def change(task_id: TaskId) -> Request:
        return submit(f"/tasks/{request or verb}", task_id=task_id, **more)


_add_change(
    "cancel", "{task_id} is {state}", "End a task before it is done; its schedule ends too."
)
_add_change(
    "delete",
    "{task_id} is deleted",
    "Forget a task that does not work; its folder is kept in tasks/.deleted.",
)
_PAUSED = "the schedule of {task_id} is paused"
_GOES_ON = "the schedule of {task_id} goes on"
_add_change("pause", _PAUSED, "Pause a schedule.", "update", paused=True)
_add_change("unpause", _GOES_ON, "Let a paused schedule go on.", "update", paused=False)


def _facts_text(event: dict[str, Any]) -> str:
    facts = ((k, v) for k, v in event["data"].items() if k != "task_id" and v not in ("", None))
    return shortened(clean(" ".join(f"{name}={value}" for name, value in facts)), 300)


EVENTS: Columns = (("when", at("at")), ("what", "type"), ("facts", _facts_text))


@asks(listing("events", EVENTS, "Nothing is on record any more."), tasks)
def log(
    task_id: TaskId,
    lines: Annotated[
        int, typer.Option("-n", "--lines", min=1, max=500, help="How many at most.")
    ] = PAGE,
) -> Request:
    """Show the events of a task, oldest first."""
    return read(f"/tasks/{segment(task_id)}/log", tail=lines)
