"""``/tasks/*``: background work, for agents, runs and the operator; the token tells the owner."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from dataclasses import replace
from functools import partial

from agentsup.api.documents import task_bodies as bodies
from agentsup.api.documents import tasks
from agentsup.api.documents.document import page_of
from agentsup.api.documents.messages import EventDocument, ResultDocument
from agentsup.api.http.access import Access
from agentsup.api.http.dependencies import ApiDependencies
from agentsup.api.http.route import Call, get, post
from agentsup.api.routes.interagent import caller_of, check_name, named_chat, outcome, turn_of
from agentsup.mailbox.mail import to_asker
from agentsup.mailbox.messages import keys, sessions
from agentsup.model.agent import MAIN
from agentsup.model.errors import BadRequest, NotFound, NotReady
from agentsup.model.message import DeliverTo, Priority
from agentsup.model.principal import OPERATOR, Principal, PrincipalKind
from agentsup.model.question import QuestionState
from agentsup.model.task import NewSchedule, NewTask, Task, TaskState
from agentsup.tasks import PUT, TaskHub

_MESSAGE = "msg_"
_BUSY = (TaskState.QUEUED, TaskState.RUNNING)


def _hub(deps: ApiDependencies) -> TaskHub:
    if deps.tasks is None:
        raise NotReady(
            "tasks are not enabled in this daemon (tasks.enabled is false in config.toml); use "
            "/interagent/send_async to have work done in the background",
            retry_after_s=3600,
            feature="tasks",
        )
    return deps.tasks


_get = partial(get, access=Access.WORK, offered=_hub)
_post = partial(post, access=Access.WORK, offered=_hub)


async def _acting(call: Call, given: str | None) -> Principal:
    """The principal that acts: the token's agent, or the operator.

    The operator may act for any agent, and then has access to all tasks of that agent, for
    whichever person they are done.
    """
    caller = await caller_of(call)
    if caller.kind is PrincipalKind.AGENT:
        check_name(caller, given, "act for")
        return caller
    if not given or given.casefold() == OPERATOR.name:
        return caller
    entry = call.deps.directory.lookup(given)
    return Principal(PrincipalKind.AGENT, entry.agent_id, entry.name)


async def _changed(call: Call, task: Task) -> tasks.TaskDone:
    schedules = await _hub(call.deps).schedules([task])
    return tasks.TaskDone.of(task, schedules.get(task.task_id))


# -- giving work -----------------------------------------------------------------------------------


@_post("/tasks/create", takes_work=True, refusals=(404, 410, 409, 429))
async def create(call: Call, body: bodies.CreateTaskBody) -> tasks.TaskDone:
    """Write a task down and begin it.

    It is not begun if ``start`` is false.
    """
    caller = await _acting(call, body.from_)
    own = caller.name if caller.kind is PrincipalKind.AGENT else MAIN
    if call.by.is_operator and caller.kind is PrincipalKind.AGENT:
        # The operator is the person for whom a task that an operator begins is done.
        caller = replace(caller, behalf=call.by.person, asker=call.by.asker_name)
    await _check_engine(call, body, body.agent or own)
    await _check_role(call, body.role)
    new = NewTask(
        prompt=body.prompt,
        name=body.name or "",
        agent=body.agent or "",
        role=body.role or "",
        start=body.start,
        schedule=_new_schedule(body.schedule),
        priority=Priority.parse(body.priority),
        timeout_s=body.timeout,
        max_usd=body.max_usd,
        parent_task_id=body.parent_task_id or "",
        idempotency_key=body.idempotency_key or "",
        deliver_to=await _deliver_to(call, body, caller),
    )
    task = await _hub(call.deps).create(
        new, caller=caller, asker=call.deps.delegating_turn_of(call.who)
    )
    return await _changed(call, task)


@_post("/tasks/resume", takes_work=True, refusals=(404, 410, 409, 429))
async def resume(call: Call, body: bodies.ResumeTaskBody) -> tasks.TaskDone:
    """Go on with a task.

    It goes on in its session; a task that was only created begins.
    """
    caller = await _acting(call, body.from_)
    task = await _hub(call.deps).resume(
        body.task_id,
        body.prompt,
        caller=caller,
        asker=call.deps.delegating_turn_of(call.who),
        idempotency_key=body.idempotency_key or "",
    )
    return await _changed(call, task)


# -- asking ----------------------------------------------------------------------------------------


@_post("/tasks/ask_parent", refusals=(404, 410, 409, 429))
async def ask_parent(call: Call, body: bodies.AskParentBody) -> tasks.TaskAsked:
    """Put a question to whoever gave the task."""
    caller = await _acting(call, body.from_)
    hub = _hub(call.deps)
    asked = await hub.ask_parent(
        body.task_id, body.question, caller=caller, options=tuple(body.options or ())
    )
    task = await hub.get(body.task_id, caller=caller)
    answer = PUT if asked.state is QuestionState.OPEN else asked.answer
    return tasks.TaskAsked.of(task, asked, answer)


@_post("/tasks/answer", refusals=(404, 410, 409))
async def answer(call: Call, body: bodies.AnswerTaskBody) -> tasks.TaskAnswered:
    """Answer a task's open question, once."""
    caller = await _acting(call, body.from_)
    hub = _hub(call.deps)
    answered = await hub.answer(
        body.task_id, body.answer, caller=caller, question_id=body.question_id or ""
    )
    task = await hub.get(body.task_id, caller=caller)
    return tasks.TaskAnswered.of(task, answered, answered.answer)


# -- changing --------------------------------------------------------------------------------------


@_post("/tasks/cancel", refusals=(404, 410, 409))
async def cancel(call: Call, body: bodies.TaskBody) -> tasks.TaskDone:
    """End a task before it is done."""
    caller = await _acting(call, body.from_)
    return await _changed(call, await _hub(call.deps).cancel(body.task_id, caller=caller))


@_post("/tasks/delete", refusals=(404, 410, 409))
async def delete(call: Call, body: bodies.TaskBody) -> tasks.TaskDeleted:
    """Forget a task that does not work."""
    caller = await _acting(call, body.from_)
    hub = _hub(call.deps)
    task = await hub.get(body.task_id, caller=caller)
    await hub.delete(task.task_id, caller=caller)
    return tasks.TaskDeleted.from_value(task, success=True, error="")


@_post("/tasks/update", refusals=(404, 410, 409))
async def update(call: Call, body: bodies.UpdateTaskBody) -> tasks.TaskDone:
    """Report how far a task is, or change it."""
    caller = await _acting(call, body.from_)
    hub = _hub(call.deps)
    given = (body.progress, body.percent, body.note, body.state, body.name)
    schedule = _new_schedule(body.schedule)
    if all(one is None for one in (*given, body.paused, schedule)):
        raise BadRequest(
            "say what to change: progress, percent, note, state, name, schedule or paused",
            field="body",
        )
    task = await hub.get(body.task_id, caller=caller)
    if schedule is not None:
        task = await hub.reschedule(
            task.task_id, schedule, caller=caller, asker=call.deps.delegating_turn_of(call.who)
        )
    if body.paused is not None:
        task = await hub.pause(task.task_id, caller=caller, is_paused=body.paused)
    if any(one is not None for one in given):
        task = await hub.update(
            task.task_id,
            caller=caller,
            progress=body.progress,
            percent=body.percent,
            note=body.note or "",
            state=body.state,
            name=body.name,
        )
    return await _changed(call, task)


# -- looking ---------------------------------------------------------------------------------------


@_get("/tasks/list", refusals=(404, 410))
async def listing(call: Call, query: bodies.TasksQuery) -> tasks.TaskList:
    """Tasks, newest first."""
    directory = call.deps.directory
    states = tuple(TaskState(one.strip()) for one in (query.state or "").split(",") if one.strip())
    found = await _hub(call.deps).list(
        caller=await _acting(call, query.from_),
        states=states,
        agent_id=call.agent_id(query.agent) or "",
        before=query.cursor or "",
        limit=query.limit + 1,
    )
    page, cursor = page_of(found, query.limit, lambda last: last.task_id)
    now, times = call.deps.clock.now_ms(), await _hub(call.deps).schedules(page)
    shown = [tasks.TaskShort.of(task, times.get(task.task_id), directory, now=now) for task in page]
    return tasks.TaskList(tasks=shown, next_cursor=cursor)


@_get("/tasks/{id}", {200: tasks.TaskOrResult}, refusals=(404, 410, 429))
async def show(call: Call, query: bodies.TaskQuery) -> tasks.TaskShown | ResultDocument:
    """One task; for a message's id, what became of the message.

    With ``wait``, the answer comes once the task has ended or asks, or the wait is over.
    """
    named = call.named("id")
    if named.startswith(_MESSAGE):
        return await outcome(call, named, query.wait)
    caller = await _acting(call, query.from_)
    task = await _hub(call.deps).get(named, caller=caller)
    if query.wait > 0 and task.state in _BUSY:
        await call.wait(partial(_settled, call, task, caller, query.wait), name="task")
    return await _whole(call, task, caller)


async def _settled(call: Call, task: Task, caller: Principal, wait_s: float) -> None:
    """Wait until the run of the task has ended or asks something, or the wait is over."""
    database, changed = call.deps.database, asyncio.Event()
    topic = f"done:{task.current_run}"
    unlisten, end = database.listen(topic, changed.set), database.expect(topic)
    try:
        with suppress(TimeoutError):
            async with asyncio.timeout(wait_s):
                while not end.done():
                    changed.clear()
                    if (await _hub(call.deps).get(task.task_id, caller=caller)).state not in _BUSY:
                        return
                    await changed.wait()
    finally:
        unlisten()
        end.cancel()


async def _whole(call: Call, task: Task, caller: Principal) -> tasks.TaskShown:
    hub = _hub(call.deps)
    return tasks.TaskShown.whole(
        await hub.card(task.task_id, caller=caller),
        call.deps.directory,
        now=call.deps.clock.now_ms(),
        folder=hub.folder_of(task.task_id),
        language=call.language,
    )


@_get("/tasks/{id}/log", refusals=(404, 410))
async def log(call: Call, query: bodies.TaskLogQuery) -> tasks.TaskLog:
    """What happened to a task."""
    caller = await _acting(call, query.from_)
    hub = _hub(call.deps)
    task = await hub.get(call.named("id"), caller=caller)
    found = await hub.log(task.task_id, caller=caller, tail=query.tail)
    events = [EventDocument.from_value(each) for each in found]
    return tasks.TaskLog(task_id=task.task_id, events=events)


# -- the fields of a new task besides its prompt ---------------------------------------------------


def _new_schedule(given: bodies.ScheduleBody | None) -> NewSchedule | None:
    """The schedule of a task, or None. Raises ``BadRequest`` unless exactly one time is given."""
    if given is None:
        return None
    if sum(one is not None for one in (given.at, given.every, given.cron)) != 1:
        raise BadRequest(
            "field 'schedule': give exactly one of at, every and cron", field="schedule"
        )
    return NewSchedule(
        at=given.at or "",
        every_s=given.every,
        cron=given.cron or "",
        zone=given.timezone or "",
        misfire=given.misfire,
        overlap=given.overlap,
    )


async def _check_engine(call: Call, body: bodies.CreateTaskBody, agent: str) -> None:
    """Raise ``BadRequest`` if the task is to use another engine or model than its agent."""
    if body.thinking:
        raise BadRequest(
            "field 'thinking': a task thinks as its agent does; set reasoning_effort in the "
            "agent's entry, or name another agent",
            field="thinking",
        )
    if not body.provider and not body.model:
        return
    view = await call.deps.control.agent(agent)
    has = {"provider": view.engine, "model": view.model}
    for field, wanted in (("provider", body.provider), ("model", body.model)):
        if wanted and wanted.casefold() != has[field].casefold():
            raise BadRequest(
                f"field '{field}': a task is done with what its agent has, and {view.name} has "
                f"{has[field] or 'its default'}; leave it out, or name another agent in 'agent'",
                field=field,
            )


async def _check_role(call: Call, role: str | None) -> None:
    """Raise ``NotFound`` for a role that can't be used: a run in it would have no tools at all."""
    if role and (problem := await call.deps.roles.problem_of(role)):
        raise NotFound(f"field 'role': {problem}", field="role")


async def _deliver_to(
    call: Call, body: bodies.CreateTaskBody, caller: Principal
) -> DeliverTo | None:
    """The chat that the body names; None: the conversation that the request came from.

    If an operator acts for an agent, the result goes to that agent first, in the session of the
    chat.
    """
    acts = caller.kind is PrincipalKind.AGENT
    agent = caller.name if acts else body.agent or MAIN
    chat = await named_chat(call, agent, body.chat_id or "", body.topic_id or "")
    if chat is None and body.chat_id:
        turn = await turn_of(call)
        return None if turn is None else to_asker(turn, waited=False)
    if chat is None or not acts:
        return chat
    key = keys.chat_key(chat.channel, chat.conversation)
    session_id = await call.deps.database.read(
        sessions.current, chat.agent_id, key, name="mailbox.current_session"
    )
    return DeliverTo("mailbox", agent_id=chat.agent_id, session_id=session_id or "", then=chat)
