"""The ``task_*`` tools: an agent manages its tasks, and the runs that it has started."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Annotated, Any, ClassVar

from pydantic import Field

from agentsup.agents.delegation import texts
from agentsup.agents.delegation.service import DelegatingTurn, DelegationService
from agentsup.agents.tools.declaring import (
    Arguments,
    Flag,
    Needed,
    Number,
    Text,
    Texts,
    Whole,
    choice,
    missing,
    offered,
    tool,
    tools_of,
    whole,
)
from agentsup.model.errors import BadRequest, NotReady
from agentsup.model.event import Event
from agentsup.model.message import Priority
from agentsup.model.question import QuestionState
from agentsup.model.task import Misfire, NewSchedule, NewTask, Overlap, Task, TaskState
from agentsup.model.tool import Effect, Safety, Tool, ToolContext
from agentsup.store import of_message
from agentsup.tasks import PUT, TaskHub, describe, lineage

NO_ANSWER = "Nobody has answered; decide by yourself, or say so."
RUN = "msg_"
"""The prefix of run ids."""
MAX_TAIL, TAIL, LINE_CHARS, MAX_LISTED = 100, 20, 300, 100
_SAME_STATES = {"in_progress": "running", "blocked": "waiting", "completed": "done"}
"""Names of states that programs know from other systems."""

_ID = "The id of a task, or of a run you have started."


class Times(Arguments):
    """When a task runs by itself."""

    at: Text = Field("", description="When, in ISO 8601.")
    every_s: Number | None = Field(None, description="Or every so many seconds.")
    cron: Text = Field("", description="Or by five cron fields.")
    zone: Text = Field("", description="The time zone of these, such as Europe/Zurich.")
    misfire: Annotated[str, choice(*Misfire)] = next(iter(Misfire)).value
    overlap: Annotated[str, choice(*Overlap)] = next(iter(Overlap)).value

    def schedule(self) -> NewSchedule | None:
        """The schedule; None if no time is given."""
        if self.model_fields_set.isdisjoint(("at", "every_s", "cron")):
            return None
        return NewSchedule(
            at=self.at,
            every_s=self.every_s,
            cron=self.cron,
            zone=self.zone,
            misfire=Misfire(self.misfire),
            overlap=Overlap(self.overlap),
        )


class CreateTask(Times):
    """The arguments of ``task_create``."""

    also: ClassVar = {"prompt": ("description", "title")}

    prompt: Text = Field("", description="What is to be done, in full.")
    title: Text = Field("", description="A short name.")
    name: Text = Field("", description="The same as title.")
    description: Text = Field("", description="The same as prompt.")
    agent: Text = Field("", description="In whose place it is done.")
    role: Text = Field("", description="Or in which role.")
    start: Flag = Field(True, description="false: a todo, written down only.")
    priority: Annotated[str, offered(*(each.name.lower() for each in Priority))] = "normal"
    timeout_s: Number | None = Field(None, description="Seconds that a run may wait for its turn.")
    max_cost_usd: Number | None = Field(None, description="Most that all of its runs may cost.")
    parent_id: Text = Field("", description="The task it is a part of.")


class OneTask(Arguments):
    """The arguments of tools that take one task."""

    task_id: Needed = Field(description=_ID)


class StatusOf(Arguments):
    """The arguments of ``task_status``."""

    task_id: Text = Field("", description=_ID)


class LogOf(OneTask):
    """The arguments of ``task_logs``."""

    tail: Annotated[int, whole(1, MAX_TAIL)] = Field(TAIL, description=f"1 to {MAX_TAIL}.")


class ListTasks(Arguments):
    """The arguments of ``task_list``."""

    status: Text = ""
    parent_id: Text = Field("", description="Only the parts of that task.")
    limit: Annotated[int, whole(1, MAX_LISTED)] = 20


class UpdateTask(OneTask, Times):
    """The arguments of ``task_update``."""

    progress: Text | None = Field(None, description="How far it is, in a sentence.")
    percent: Whole | None = None
    note: Text = Field("", description="Goes into the task's TASKMEMORY.md.")
    status: Text = Field("", description="Of a todo: todo, done or cancelled.")
    name: Text | None = None
    paused: Flag | None = Field(None, description="Whether its schedule is paused.")


class AskParent(Arguments):
    """The arguments of ``ask_parent``."""

    question: Needed = Field(description="Complete in itself.")
    options: Texts = Field((), description="Answers to choose from.")


class AnswerTask(OneTask):
    """The arguments of ``task_answer``."""

    text: Needed
    question_id: Text = ""


def task_tools(ctx: DelegationService, hub: Callable[[], TaskHub | None]) -> tuple[Tool, ...]:
    """The tools; those that an agent needs to manage its own tasks are on by default.

    Without them an agent that creates a schedule could neither list, change nor end it. ``hub``
    gives None while tasks are turned off.
    """
    return tools_of(_Tasks(ctx, hub))


@dataclass(frozen=True, slots=True)
class _Tasks:
    service: DelegationService
    find_hub: Callable[[], TaskHub | None]

    @property
    def _hub(self) -> TaskHub:
        hub = self.find_hub()
        if hub is None:
            raise NotReady("tasks are turned off here ([tasks] enabled in config.toml)")
        return hub

    @tool("task_create", Effect.KEYED, Safety.MODERATE)
    async def create(self, context: ToolContext, args: CreateTask) -> str:
        """Begin a task that goes on in the background, now or by a schedule; its result comes as a
        message."""
        if not args.prompt.strip():
            raise missing("prompt")
        prompt, wanted = self.service.s.redact(args.prompt), args.priority
        if wanted.upper() not in Priority.__members__:
            raise BadRequest(f"there is no priority {wanted!r}", field="priority")
        caller = await self.service.caller(context)
        agent = args.agent
        if agent and self.service.is_itself(caller, agent):
            agent = ""
        target = await self.service.target(caller, agent=agent, role=args.role)
        _, role = lineage.subject_of(target)
        new = NewTask(
            prompt,
            name=args.title or args.name,
            agent=agent,
            role=role,
            start=args.start,
            schedule=args.schedule(),
            priority=Priority.parse(wanted),
            timeout_s=args.timeout_s,
            max_usd=args.max_cost_usd,
            parent_task_id=args.parent_id,
            idempotency_key=caller.call_id,
        )
        facts = await self.service.admit(caller, prompt, target)
        task = await self._hub.create(new, caller=caller.principal, asker=caller.asker)
        if task.current_run:
            self.service.ends.attend(replace(facts, run_id=task.current_run))
        return texts.as_json({"task_id": task.task_id, "status": task.state.value})

    @tool("task_status", Effect.READ, Safety.SAFE, is_poll=True)
    async def status(self, context: ToolContext, args: StatusOf) -> str:
        """Show the state of a task or run; without an id, of your latest tasks."""
        if not args.task_id:
            return await self.listed(context, ListTasks())
        caller, wanted = await self._of(context, args)
        if wanted.startswith(RUN):
            report = await self.service.known(caller, wanted)
            found = {"task_id": wanted, "status": report.status, "kind": report.run.kind.value}
            if report.condition:
                found |= {"runtime_condition": report.condition, "question": report.question}
            return texts.as_json(found)
        card = await self._hub.card(wanted, caller=caller.principal, runs=0)
        document = _document(card.task)
        document["questions"] = [
            {"question_id": each.question_id, "text": each.text}
            for each in card.questions
            if each.state == "open"
        ]
        return texts.cut(texts.as_json(document), texts.LOG_CHARS)

    @tool("task_result", Effect.READ, Safety.SAFE, is_optional=True, is_poll=True)
    async def result(self, context: ToolContext, args: OneTask) -> str:
        """Return the result of a task or run."""
        caller, wanted = await self._of(context, args)
        if wanted.startswith(RUN):
            await self.service.known(caller, wanted)
            report = await self.service.s.runs.wait(wanted, 0.0, asker=caller.asker)
            if not report.is_ended:
                return f"It is {texts.running_note(report)}."
            if report.status == "done":
                return report.run.result
            return f"{report.status}: {texts.failure_of(report)}"
        task = await self._hub.get(wanted, caller=caller.principal)
        if task.state is TaskState.DONE:
            return task.result
        if task.error_text:
            return f"{task.state.value}: {task.error_text}"
        return f"It is {task.state.value}" + (f": {task.progress}" if task.progress else "")

    @tool("task_cancel", Effect.IDEMPOTENT, Safety.MODERATE)
    async def cancel(self, context: ToolContext, args: OneTask) -> str:
        """End a task or run, and its schedule."""
        caller, wanted = await self._of(context, args)
        if wanted.startswith(RUN):
            await self.service.known(caller, wanted)
            stopped = await self.service.s.runs.stop(wanted, caller.principal, asker=caller.asker)
            return texts.as_json({"task_id": wanted, "status": stopped.status})
        task = await self._hub.cancel(wanted, caller=caller.principal)
        return texts.as_json({"task_id": task.task_id, "status": task.state.value})

    @tool("task_logs", Effect.READ, Safety.SAFE, is_optional=True, is_poll=True)
    async def logs(self, context: ToolContext, args: LogOf) -> str:
        """List the latest events of a task or run."""
        caller, wanted = await self._of(context, args)
        if wanted.startswith(RUN):
            await self.service.known(caller, wanted)
            events: Sequence[Event] = await self.service.s.database.read(
                lambda reader: of_message(reader, wanted, limit=args.tail), name="tasks.log"
            )
        else:
            events = await self._hub.log(wanted, caller=caller.principal, tail=args.tail)
        return texts.cut("\n".join(map(_line, events)) or "Nothing yet.", texts.RESULT_CHARS)

    @tool("task_list", Effect.READ, Safety.SAFE)
    async def listed(self, context: ToolContext, args: ListTasks) -> str:
        """Your tasks and schedules, the newest first."""
        caller = await self.service.caller(context)
        state, parent = _state(args.status), args.parent_id.strip()
        if parent:
            parent = (await self._hub.get(parent, caller=caller.principal)).task_id
        tasks = await self._hub.list(
            caller=caller.principal,
            states=() if state is None else (state,),
            parent_task_id=parent,
            limit=args.limit,
        )
        rows, schedules = [], await self._hub.schedules(tasks)
        for task in tasks:
            row = {"task_id": task.task_id, "name": task.name, "status": task.state.value}
            times = schedules.get(task.task_id)
            rows.append(row if times is None else row | {"schedule": describe(times)})
        return texts.as_json({"tasks": rows, "count": len(rows)})

    @tool("task_update", Effect.IDEMPOTENT, Safety.SAFE)
    async def update(self, context: ToolContext, args: UpdateTask) -> str:
        """Tell how far a task is, rename it, or change, pause and continue its schedule."""
        caller, wanted = await self._of(context, args)
        schedule, state = args.schedule(), _state(args.status)
        if schedule is not None:
            await self._hub.reschedule(
                wanted, schedule, caller=caller.principal, asker=caller.asker
            )
        if args.paused is not None:
            await self._hub.pause(wanted, caller=caller.principal, is_paused=args.paused)
        task = await self._hub.update(
            wanted,
            caller=caller.principal,
            progress=args.progress,
            percent=args.percent,
            note=args.note,
            state=state,
            name=args.name,
        )
        return texts.as_json(_document(task))

    @tool(
        "ask_parent",
        Effect.READ,  # a repeated call returns the answer; the question is asked only once
        Safety.SAFE,
        is_essential=True,
        is_for_runs=True,
        is_for_people=True,
    )
    async def ask_parent(self, context: ToolContext, args: AskParent) -> str:
        """Ask whoever gave you this work. End your turn after it; you go on with the answer."""
        text = self.service.s.redact(args.question)
        await self.service.caller(context)
        asked = await self.service.s.runs.ask_parent(context.message_id, text, args.options)
        return PUT if asked.state is QuestionState.OPEN else asked.answer or NO_ANSWER

    @tool("task_answer", Effect.KEYED, Safety.MODERATE, is_optional=True)
    async def answer(self, context: ToolContext, args: AnswerTask) -> str:
        """Answer the question of a task."""
        caller, wanted = await self._of(context, args)
        question = await self._hub.answer(
            wanted,
            args.text,
            caller=caller.principal,
            question_id=args.question_id,
        )
        return texts.as_json({"task_id": wanted, "question_id": question.question_id})

    async def _of(
        self, context: ToolContext, args: OneTask | StatusOf
    ) -> tuple[DelegatingTurn, str]:
        return await self.service.caller(context), args.task_id.strip()


def _state(wanted: str) -> TaskState | None:
    if not wanted:
        return None
    try:
        return TaskState(_SAME_STATES.get(wanted, wanted))
    except ValueError:
        known = ", ".join(TaskState)
        raise BadRequest(
            f"there is no status {wanted!r}; there are {known}", field="status"
        ) from None


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
    facts = " ".join(f"{key}={value}" for key, value in event.data.items() if key != "task_id")
    line = f"{event.at} {event.type} {' '.join(facts.split())}"
    return line if len(line) <= LINE_CHARS else line[: LINE_CHARS - 1] + "…"
