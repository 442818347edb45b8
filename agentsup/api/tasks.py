"""`/tasks/*`: background work, for agents, runs and the operator. The owner comes from the token."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from functools import partial
from typing import Any

from aiohttp import web

from agentsup.api import bodies, documents, shapes, task_documents, task_orders, task_shapes
from agentsup.api.access import Access
from agentsup.api.callers import caller_of
from agentsup.api.interagent import outcome
from agentsup.api.ports import ApiDeps, Tasks
from agentsup.api.route import Call, Route, reply
from agentsup.model.agent import MAIN
from agentsup.model.errors import BadRequest, Forbidden, NotReady
from agentsup.model.message import Priority
from agentsup.model.principal import OPERATOR, Principal, PrincipalKind
from agentsup.model.question import QuestionState
from agentsup.model.task import NewTask, Task, TaskState
from agentsup.tasks.asking import PUT

_MESSAGE = "msg_"
_BUSY = (TaskState.QUEUED, TaskState.RUNNING)


def _offered(deps: ApiDeps) -> None:
    if deps.tasks is None:
        raise NotReady(
            "tasks are not enabled in this daemon (tasks.enabled is false in config.toml); use "
            "/interagent/send_async to have work done in the background",
            retry_after_s=3600,
            feature="tasks",
        )


def _hub(call: Call) -> Tasks:
    _offered(call.deps)
    assert call.deps.tasks is not None
    return call.deps.tasks


async def _acting(call: Call, given: str | None) -> Principal:
    """Who acts: the token's agent, or the operator, who may act for any agent as such: all of that
    agent's tasks are open to it, whoever's work they are."""
    caller = await caller_of(call)
    if caller.kind is PrincipalKind.AGENT:
        if given and given.casefold() != caller.name.casefold():
            raise Forbidden(
                f"this token belongs to {caller.name}; it can't act for {given}", field="from"
            )
        return caller
    if not given or given.casefold() == OPERATOR.name:
        return caller
    entry = call.deps.directory.lookup(given)
    return Principal(PrincipalKind.AGENT, entry.agent_id, entry.name)


async def _changed(call: Call, task: Task, caller: Principal) -> web.Response:
    schedule = await _hub(call).schedule(task.task_id, caller=caller)
    return reply(task_documents.changed(task, schedule))


# -- giving work -----------------------------------------------------------------------------------


async def create(call: Call) -> web.Response:
    """Write a task down and, unless told otherwise, begin it."""
    body: task_shapes.CreateTaskBody = call.body
    caller = await _acting(call, body.from_)
    own = caller.name if caller.kind is PrincipalKind.AGENT else MAIN
    if call.by.is_operator and caller.kind is PrincipalKind.AGENT:
        caller = replace(caller, behalf=call.by.person)  # what operators begin is theirs
    await task_orders.check_engine(call, body, body.agent or own)
    await task_orders.check_role(call, body.role)
    new = NewTask(
        prompt=body.prompt,
        name=body.name or "",
        agent=body.agent or "",
        role=body.role or "",
        start=body.start,
        schedule=task_orders.schedule(body.schedule),
        priority=Priority.parse(body.priority),
        timeout_s=body.timeout,
        max_usd=body.max_usd,
        parent_task_id=body.parent_task_id or "",
        idempotency_key=body.idempotency_key or "",
        deliver_to=await task_orders.deliver_to(call, body, caller),
    )
    task = await _hub(call).create(new, caller=caller, asker=call.deps.asker_of(call.who))
    return await _changed(call, task, caller)


async def resume(call: Call) -> web.Response:
    """Go on with a task in its session; one that was only written down begins."""
    body: task_shapes.ResumeTaskBody = call.body
    caller = await _acting(call, body.from_)
    task = await _hub(call).resume(
        body.task_id,
        body.prompt,
        caller=caller,
        asker=call.deps.asker_of(call.who),
        idempotency_key=body.idempotency_key or "",
    )
    return await _changed(call, task, caller)


# -- asking ----------------------------------------------------------------------------------------


async def ask_parent(call: Call) -> web.Response:
    """Put a question to whoever gave the task; its run is parked once its turn ends."""
    body: task_shapes.AskParentBody = call.body
    caller = await _acting(call, body.from_)
    hub = _hub(call)
    asked = await hub.ask_parent(
        body.task_id, body.question, caller=caller, options=tuple(body.options or ())
    )
    task = await hub.get(body.task_id, caller=caller)
    return reply(
        {
            "success": True,
            "error": "",
            "task_id": task.task_id,
            "question_id": asked.question_id,
            "answer": PUT if asked.state is QuestionState.OPEN else asked.answer,
            "state": task.state.value,
        }
    )


async def answer(call: Call) -> web.Response:
    """Answer a task's open question, once."""
    body: task_shapes.AnswerTaskBody = call.body
    caller = await _acting(call, body.from_)
    hub = _hub(call)
    answered = await hub.answer(
        body.task_id, body.answer, caller=caller, question_id=body.question_id or ""
    )
    task = await hub.get(body.task_id, caller=caller)
    return reply(
        {
            "success": True,
            "error": "",
            "task_id": task.task_id,
            "question_id": answered.question_id,
            "answer": answered.answer,
            "state": task.state.value,
        }
    )


# -- changing --------------------------------------------------------------------------------------


async def cancel(call: Call) -> web.Response:
    """End a task before it is done; its schedule ends too."""
    body: task_shapes.TaskBody = call.body
    caller = await _acting(call, body.from_)
    task = await _hub(call).cancel(body.task_id, caller=caller)
    return await _changed(call, task, caller)


async def delete(call: Call) -> web.Response:
    """Forget a task that does not work."""
    body: task_shapes.TaskBody = call.body
    caller = await _acting(call, body.from_)
    hub = _hub(call)
    task = await hub.get(body.task_id, caller=caller)
    await hub.delete(task.task_id, caller=caller)
    return reply({"success": True, "error": "", "task_id": task.task_id})


async def update(call: Call) -> web.Response:
    """Tell how far a task is, rename it, let its schedule rest or give it other times."""
    body: task_shapes.UpdateTaskBody = call.body
    caller = await _acting(call, body.from_)
    hub = _hub(call)
    told = (body.progress, body.percent, body.note, body.state, body.name)
    schedule = task_orders.schedule(body.schedule)
    if all(one is None for one in (*told, body.paused, schedule)):
        raise BadRequest(
            "say what to change: progress, percent, note, state, name, schedule or paused",
            field="body",
        )
    task = await hub.get(body.task_id, caller=caller)
    if schedule is not None:
        task = await hub.reschedule(
            task.task_id, schedule, caller=caller, asker=call.deps.asker_of(call.who)
        )
    if body.paused is not None:
        task = await hub.pause(task.task_id, caller=caller, is_paused=body.paused)
    if any(one is not None for one in told):
        task = await hub.update(
            task.task_id,
            caller=caller,
            progress=body.progress,
            percent=body.percent,
            note=body.note or "",
            state=body.state,
            name=body.name,
        )
    return await _changed(call, task, caller)


# -- looking ---------------------------------------------------------------------------------------


async def listing(call: Call) -> web.Response:
    """Tasks, newest first: an agent's own, the operator's choice of all."""
    query: task_shapes.TasksQuery = call.query
    directory = call.deps.directory
    agent_id = ""
    if query.agent:
        agent_id = (directory.by_id(query.agent) or directory.lookup(query.agent)).agent_id
    states = tuple(TaskState(one.strip()) for one in (query.state or "").split(",") if one.strip())
    found = await _hub(call).list(
        caller=await _acting(call, query.from_),
        states=states,
        agent_id=agent_id,
        before=query.cursor or "",
        limit=query.limit + 1,
    )
    page, now = found[: query.limit], call.deps.clock.now_ms()
    return reply(
        {
            "tasks": [task_documents.short(task, directory, now=now) for task in page],
            "next_cursor": page[-1].task_id if len(found) > query.limit else None,
        }
    )


async def show(call: Call) -> web.Response:
    """One task, whole; with `wait`, once it has ended or asks, or the wait is over. For the id of
    a message, what became of that message."""
    query: task_shapes.TaskQuery = call.query
    named = call.named("id")
    if named.startswith(_MESSAGE):
        return reply(await outcome(call, named, query.wait))
    caller = await _acting(call, query.from_)
    task = await _hub(call).get(named, caller=caller)
    if query.wait > 0 and task.state in _BUSY:
        task = await call.wait(partial(_settled, call, task, caller, query.wait), name="task")
    return reply(await _whole(call, task, caller))


async def _settled(call: Call, task: Task, caller: Principal, wait_s: float) -> Task:
    """The task once it has ended or asks something, or as it is when the wait is over."""
    hub, changed = _hub(call), asyncio.Event()
    unlisten = call.deps.web.database.listen(f"done:{task.current_run}", changed.set)
    try:
        async with asyncio.timeout(wait_s):
            while True:
                changed.clear()
                task = await hub.get(task.task_id, caller=caller)
                if task.state not in _BUSY:
                    return task
                await changed.wait()
    except TimeoutError:
        return await hub.get(task.task_id, caller=caller)
    finally:
        unlisten()


async def _whole(call: Call, task: Task, caller: Principal) -> dict[str, Any]:
    hub = _hub(call)
    return task_documents.whole(
        task,
        call.deps.directory,
        now=call.deps.clock.now_ms(),
        runs=await hub.runs(task.task_id, caller=caller),
        questions=await hub.questions(task.task_id, caller=caller),
        schedule=await hub.schedule(task.task_id, caller=caller),
        delivery=await hub.delivery(task),
        folder=hub.folder_of(task.task_id),
        language=call.language,
    )


async def log(call: Call) -> web.Response:
    """What happened to a task, oldest first."""
    query: task_shapes.TaskLogQuery = call.query
    caller = await _acting(call, query.from_)
    hub = _hub(call)
    task = await hub.get(call.named("id"), caller=caller)
    events = await hub.log(task.task_id, caller=caller, tail=query.tail)
    return reply({"task_id": task.task_id, "events": [documents.event(each) for each in events]})


def _route(
    method: str,
    path: str,
    endpoint: Any,
    summary: str,
    answer_shape: type[shapes.Document],
    *,
    body: type[bodies.Body] | None = None,
    query: type[bodies.Query] = bodies.NoQuery,
    takes_work: bool = False,
    refusals: tuple[int, ...] = (),
) -> Route:
    return Route(
        method,
        f"/tasks/{path}",
        endpoint,
        summary,
        {200: answer_shape},
        access=Access.ANY,
        body=body,
        query=query,
        takes_work=takes_work,
        offered=_offered,
        refusals=(404, 410, *refusals),
    )


ROUTES = (
    _route(
        "POST",
        "create",
        create,
        "Write a task down and begin it",
        task_shapes.TaskDone,
        body=task_shapes.CreateTaskBody,
        takes_work=True,
        refusals=(409, 429),
    ),
    _route(
        "POST",
        "resume",
        resume,
        "Go on with a task",
        task_shapes.TaskDone,
        body=task_shapes.ResumeTaskBody,
        takes_work=True,
        refusals=(409, 429),
    ),
    _route(
        "POST",
        "ask_parent",
        ask_parent,
        "Put a question to whoever gave the task",
        task_shapes.TaskAsked,
        body=task_shapes.AskParentBody,
        refusals=(409, 429),
    ),
    _route(
        "POST",
        "answer",
        answer,
        "Answer a task's open question, once",
        task_shapes.TaskAnswered,
        body=task_shapes.AnswerTaskBody,
        refusals=(409,),
    ),
    _route(
        "POST",
        "cancel",
        cancel,
        "End a task before it is done",
        task_shapes.TaskDone,
        body=task_shapes.TaskBody,
        refusals=(409,),
    ),
    _route(
        "POST",
        "delete",
        delete,
        "Forget a task that does not work",
        task_shapes.TaskDeleted,
        body=task_shapes.TaskBody,
        refusals=(409,),
    ),
    _route(
        "POST",
        "update",
        update,
        "Tell how far a task is, or change it",
        task_shapes.TaskDone,
        body=task_shapes.UpdateTaskBody,
        refusals=(409,),
    ),
    _route(
        "GET",
        "list",
        listing,
        "Tasks, newest first",
        task_shapes.TaskList,
        query=task_shapes.TasksQuery,
    ),
    Route(
        "GET",
        "/tasks/{id}",
        show,
        "One task; for a message's id, what became of the message",
        {200: task_shapes.TaskOrResult},
        access=Access.ANY,
        query=task_shapes.TaskQuery,
        offered=_offered,
        refusals=(404, 410, 429),
    ),
    _route(
        "GET",
        "{id}/log",
        log,
        "What happened to a task",
        task_shapes.TaskLog,
        query=task_shapes.TaskLogQuery,
    ),
)
