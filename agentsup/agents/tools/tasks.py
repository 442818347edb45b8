"""``task_*``: what an agent does about its tasks, and about the runs it has started."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from agentsup.agents.delegation import answers
from agentsup.agents.delegation.desk import Caller, DelegationDesk
from agentsup.agents.tools import arguments
from agentsup.model.errors import BadRequest, NotReady
from agentsup.model.event import Event
from agentsup.model.message import Priority
from agentsup.model.question import QuestionState
from agentsup.model.task import Misfire, NewSchedule, NewTask, Overlap, Task, TaskState
from agentsup.model.tool import Effect, Safety, Tool, ToolContext
from agentsup.store.events import of_message
from agentsup.tasks import lineage
from agentsup.tasks.asking import PUT
from agentsup.tasks.hub import TaskHub
from agentsup.tasks.slots import describe

NO_ANSWER = "Nobody has answered; decide by yourself, or say so."
RUN = "msg_"
"""How the ids of runs begin."""
MAX_TAIL, TAIL, LINE_CHARS, MAX_LISTED = 100, 20, 300, 100
_SAME_STATES = {"in_progress": "running", "blocked": "waiting", "completed": "done"}
"""As programs know them from elsewhere."""

_ID = {"type": "string", "description": "The id of a task, or of a run you have started."}
_SCHEDULE = {
    "at": {"type": "string", "description": "When, in ISO 8601."},
    "every_s": {"type": "number", "description": "Or every so many seconds."},
    "cron": {"type": "string", "description": "Or by five cron fields."},
    "zone": {"type": "string", "description": "The time zone of these, such as Europe/Zurich."},
    "misfire": {"type": "string", "enum": [each.value for each in Misfire]},
    "overlap": {"type": "string", "enum": [each.value for each in Overlap]},
}


def _object(needed: tuple[str, ...], **properties: Any) -> dict[str, Any]:
    return {
        "type": "object",
        "properties": properties,
        "required": list(needed),
        "additionalProperties": False,
    }


_TEXT = {"type": "string"}
_CREATE = _object(
    (),
    prompt={"type": "string", "description": "What is to be done, in full."},
    title={"type": "string", "description": "A short name."},
    name={"type": "string", "description": "The same as title."},
    description={"type": "string", "description": "The same as prompt."},
    agent={"type": "string", "description": "In whose place it is done."},
    role={"type": "string", "description": "Or in which role."},
    start={"type": "boolean", "description": "false: a todo, written down only."},
    priority={"type": "string", "enum": [each.name.lower() for each in Priority]},
    timeout_s={"type": "number", "description": "Seconds that a run may wait for its turn."},
    max_cost_usd={"type": "number", "description": "Most that all of its runs may cost."},
    parent_id={"type": "string", "description": "The task it is a part of."},
    **_SCHEDULE,
)
_OF_ONE = _object(("task_id",), task_id=_ID)
_STATUS = _object((), task_id=_ID)
_LOGS = _object(
    ("task_id",), task_id=_ID, tail={"type": "integer", "description": f"1 to {MAX_TAIL}."}
)
_LIST = _object(
    (),
    status={"type": "string"},
    parent_id={"type": "string", "description": "Only the parts of that task."},
    limit={"type": "integer"},
)
_UPDATE = _object(
    ("task_id",),
    task_id=_ID,
    progress={"type": "string", "description": "How far it is, in a sentence."},
    percent={"type": "integer"},
    note={"type": "string", "description": "Goes into the task's TASKMEMORY.md."},
    status={"type": "string", "description": "Of a todo: todo, done or cancelled."},
    name=_TEXT,
    paused={"type": "boolean", "description": "Whether its schedule rests."},
    **_SCHEDULE,
)
_ASK = _object(
    ("question",),
    question={"type": "string", "description": "Complete in itself."},
    options={"type": "array", "items": _TEXT, "description": "Answers to choose from."},
)
_ANSWER = _object(("task_id", "text"), task_id=_ID, text=_TEXT, question_id=_TEXT)


def task_tools(desk: DelegationDesk, hub: Callable[[], TaskHub | None]) -> tuple[Tool, ...]:
    """The tools. What an agent needs to manage what it has set going is on by default: without it
    an agent that makes a schedule could neither list, change nor end it. ``hub`` gives None while
    tasks are off."""
    run = _Tasks(desk, hub)
    read, keyed, same = Effect.READ, Effect.KEYED, Effect.IDEMPOTENT
    safe, moderate = Safety.SAFE, Safety.MODERATE

    def more(
        name: str, about: str, parameters: dict[str, Any], do: Any, effect: Effect, safety: Safety
    ) -> Tool:
        return Tool(
            name, about, parameters, do, effect, safety, is_optional=True, is_poll=effect is read
        )

    return (
        Tool(
            "task_create",
            "Begin a task that goes on in the background, now or by a schedule; its result comes as "
            "a message.",
            _CREATE,
            run.create,
            keyed,
            moderate,
        ),
        Tool(
            "task_status",
            "How a task or run is; without an id, how your latest tasks are.",
            _STATUS,
            run.status,
            read,
            safe,
            is_poll=True,
        ),
        more("task_result", "What a task or run came to.", _OF_ONE, run.result, read, safe),
        Tool(
            "task_cancel",
            "End a task or run, and its schedule.",
            _OF_ONE,
            run.cancel,
            same,
            moderate,
        ),
        more("task_logs", "What happened with a task or run of late.", _LOGS, run.logs, read, safe),
        Tool(
            "task_list",
            "Your tasks and schedules, the newest first.",
            _LIST,
            run.listed,
            read,
            safe,
        ),
        Tool(
            "task_update",
            "Tell how far a task is, rename it, or change, pause and continue its schedule.",
            _UPDATE,
            run.update,
            same,
            safe,
        ),
        Tool(
            "ask_parent",
            "Ask whoever gave you this work. End your turn after it; you go on with the answer.",
            _ASK,
            run.ask_parent,
            read,  # made again, it tells the answer; the question is put once
            safe,
            is_essential=True,
            is_for_runs=True,
            is_for_people=True,
        ),
        more("task_answer", "Answer the question of a task.", _ANSWER, run.answer, keyed, moderate),
    )


class _Tasks:
    def __init__(self, desk: DelegationDesk, hub: Callable[[], TaskHub | None]) -> None:
        self._desk = desk
        self._find_hub = hub

    @property
    def _hub(self) -> TaskHub:
        hub = self._find_hub()
        if hub is None:
            raise NotReady("tasks are turned off here ([tasks] enabled in config.toml)")
        return hub

    async def create(self, context: ToolContext, args: dict[str, Any]) -> str:
        prompt = self._desk.s.redact(arguments.needed(args, "prompt", "description", "title"))
        timeout_s = arguments.optional_number(args, "timeout_s")
        wanted = arguments.text(args, "priority", default="normal")
        if wanted.upper() not in Priority.__members__:
            raise BadRequest(f"there is no priority {wanted!r}", field="priority")
        caller = await self._desk.caller(context)
        agent = arguments.text(args, "agent", default="")
        role = arguments.text(args, "role", default="")
        if agent and self._desk.is_itself(caller, agent):
            agent = ""
        target = await self._desk.target(caller, agent=agent, role=role)
        _, role = lineage.subject_of(target)
        new = NewTask(
            prompt,
            name=arguments.text(args, "title", default="")
            or arguments.text(args, "name", default=""),
            agent=agent,
            role=role,
            start=arguments.flag(args, "start", default=True),
            schedule=_schedule(args),
            priority=Priority.parse(wanted),
            timeout_s=timeout_s,
            max_usd=arguments.optional_number(args, "max_cost_usd"),
            parent_task_id=arguments.text(args, "parent_id", default=""),
            idempotency_key=caller.call_id,
        )
        facts = await self._desk.admit(caller, prompt, target)
        task = await self._hub.create(new, caller=caller.principal, asker=caller.asker)
        if task.current_run:
            self._desk.ends.attend(replace(facts, run_id=task.current_run))
        return answers.as_json({"task_id": task.task_id, "status": task.state.value})

    async def status(self, context: ToolContext, args: dict[str, Any]) -> str:
        if args.get("task_id") in (None, ""):
            return await self.listed(context, {})
        caller, wanted = await self._of(context, args)
        if wanted.startswith(RUN):
            report = await self._desk.known(caller, wanted)
            found = {"task_id": wanted, "status": report.status, "kind": report.run.kind.value}
            if report.condition:
                found |= {"runtime_condition": report.condition, "question": report.question}
            return answers.as_json(found)
        task = await self._hub.get(wanted, caller=caller.principal)
        questions = await self._hub.questions(wanted, caller=caller.principal)
        document = _document(task)
        document["questions"] = [
            {"question_id": each.question_id, "text": each.text}
            for each in questions
            if each.state == "open"
        ]
        return answers.cut(answers.as_json(document), answers.LOG_CHARS)

    async def result(self, context: ToolContext, args: dict[str, Any]) -> str:
        caller, wanted = await self._of(context, args)
        if wanted.startswith(RUN):
            await self._desk.known(caller, wanted)
            report = await self._desk.look(caller, wanted, 0.0)
            if not report.is_ended:
                return f"It is {answers.still_on(report)}."
            if report.status == "done":
                return report.run.result
            return f"{report.status}: {answers.failure_of(report)}"
        task = await self._hub.get(wanted, caller=caller.principal)
        if task.state is TaskState.DONE:
            return task.result
        if task.error_text:
            return f"{task.state.value}: {task.error_text}"
        return f"It is {task.state.value}" + (f": {task.progress}" if task.progress else "")

    async def cancel(self, context: ToolContext, args: dict[str, Any]) -> str:
        caller, wanted = await self._of(context, args)
        if wanted.startswith(RUN):
            await self._desk.known(caller, wanted)
            stopped = await self._desk.s.runs.stop(wanted, caller.principal, asker=caller.asker)
            return answers.as_json({"task_id": wanted, "status": stopped.status})
        task = await self._hub.cancel(wanted, caller=caller.principal)
        return answers.as_json({"task_id": task.task_id, "status": task.state.value})

    async def logs(self, context: ToolContext, args: dict[str, Any]) -> str:
        caller, wanted = await self._of(context, args)
        tail = arguments.whole(args, "tail", default=TAIL, low=1, high=MAX_TAIL)
        if wanted.startswith(RUN):
            await self._desk.known(caller, wanted)
            events: Sequence[Event] = await self._desk.s.database.read(
                lambda reader: of_message(reader, wanted, limit=tail), name="tasks.log"
            )
        else:
            events = await self._hub.log(wanted, caller=caller.principal, tail=tail)
        return answers.cut("\n".join(map(_line, events)) or "Nothing yet.", answers.RESULT_CHARS)

    async def listed(self, context: ToolContext, args: dict[str, Any]) -> str:
        caller = await self._desk.caller(context)
        state = _state(args)
        limit = arguments.whole(args, "limit", default=20, low=1, high=MAX_LISTED)
        parent = arguments.text(args, "parent_id", default="").strip()
        if parent:
            parent = (await self._hub.get(parent, caller=caller.principal)).task_id
        tasks = await self._hub.list(
            caller=caller.principal,
            states=() if state is None else (state,),
            parent_task_id=parent,
            limit=limit,
        )
        rows = []
        for task in tasks:
            row = {"task_id": task.task_id, "name": task.name, "status": task.state.value}
            times = await self._hub.schedule(task.task_id, caller=caller.principal)
            rows.append(row if times is None else row | {"schedule": describe(times)})
        return answers.as_json({"tasks": rows, "count": len(rows)})

    async def update(self, context: ToolContext, args: dict[str, Any]) -> str:
        caller, wanted = await self._of(context, args)
        # Everything is read before anything is changed: a wrong argument leaves all as it was.
        percent = arguments.optional_number(args, "percent")
        schedule, is_paused, state = _schedule(args), args.get("paused"), _state(args)
        paused = arguments.flag(args, "paused", default=False)
        progress, name = _given(args, "progress"), _given(args, "name")
        note = arguments.text(args, "note", default="")
        if schedule is not None:
            await self._hub.reschedule(
                wanted, schedule, caller=caller.principal, asker=caller.asker
            )
        if is_paused is not None:
            await self._hub.pause(wanted, caller=caller.principal, is_paused=paused)
        task = await self._hub.update(
            wanted,
            caller=caller.principal,
            progress=progress,
            percent=None if percent is None else int(percent),
            note=note,
            state=state,
            name=name,
        )
        return answers.as_json(_document(task))

    async def answer(self, context: ToolContext, args: dict[str, Any]) -> str:
        caller, wanted = await self._of(context, args)
        question = await self._hub.answer(
            wanted,
            arguments.needed(args, "text"),
            caller=caller.principal,
            question_id=arguments.text(args, "question_id", default=""),
        )
        return answers.as_json({"task_id": wanted, "question_id": question.question_id})

    async def ask_parent(self, context: ToolContext, args: dict[str, Any]) -> str:
        text = self._desk.s.redact(arguments.needed(args, "question"))
        options = arguments.texts(args, "options") or ()
        await self._desk.caller(context)
        asked = await self._desk.s.runs.ask_parent(context.message_id, text, options)
        return PUT if asked.state is QuestionState.OPEN else asked.answer or NO_ANSWER

    async def _of(self, context: ToolContext, args: dict[str, Any]) -> tuple[Caller, str]:
        return await self._desk.caller(context), arguments.needed(args, "task_id").strip()


def _schedule(args: dict[str, Any]) -> NewSchedule | None:
    if not any(args.get(name) is not None for name in ("at", "every_s", "cron")):
        return None
    return NewSchedule(
        at=arguments.text(args, "at", default=""),
        every_s=arguments.optional_number(args, "every_s"),
        cron=arguments.text(args, "cron", default=""),
        zone=arguments.text(args, "zone", default=""),
        misfire=Misfire(arguments.choice(args, "misfire", tuple(Misfire))),
        overlap=Overlap(arguments.choice(args, "overlap", tuple(Overlap))),
    )


def _state(args: dict[str, Any]) -> TaskState | None:
    wanted = arguments.text(args, "status", default="")
    if not wanted:
        return None
    try:
        return TaskState(_SAME_STATES.get(wanted, wanted))
    except ValueError:
        known = ", ".join(TaskState)
        raise BadRequest(
            f"there is no status {wanted!r}; there are {known}", field="status"
        ) from None


def _given(args: dict[str, Any], name: str) -> str | None:
    return None if args.get(name) is None else arguments.text(args, name)


def _document(task: Task) -> dict[str, Any]:
    found = {
        "task_id": task.task_id,
        "name": task.name,
        "status": task.state.value,
        "runs": task.runs,
        "progress": task.progress,
        "percent": task.percent,
        "error": task.error_text,
        "parent_id": task.parent_task_id,
    }
    return {key: value for key, value in found.items() if value not in ("", None)}


def _line(event: Event) -> str:
    told = " ".join(f"{key}={value}" for key, value in event.data.items() if key != "task_id")
    line = f"{event.at} {event.type} {' '.join(told.split())}"
    return line if len(line) <= LINE_CHARS else line[: LINE_CHARS - 1] + "…"
