"""What a request for a new task asks for beside its words: an engine, times, a chat for its result."""

from __future__ import annotations

from agentsup.api import task_shapes
from agentsup.api.route import Call
from agentsup.mailbox import sessions
from agentsup.model.agent import MAIN
from agentsup.model.errors import BadRequest, NotFound
from agentsup.model.message import DeliverTo
from agentsup.model.principal import Principal, PrincipalKind
from agentsup.model.task import NewSchedule
from agentsup.store.database import Reader


def schedule(given: task_shapes.ScheduleBody | None) -> NewSchedule | None:
    """When it runs. Raises `BadRequest` unless one time is given."""
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


async def check_engine(call: Call, body: task_shapes.CreateTaskBody, agent: str) -> None:
    """A task thinks with what its agent thinks with. Raises `BadRequest` for anything else."""
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


async def check_role(call: Call, role: str | None) -> None:
    """A run in a role that there is not would have no tools at all. Raises `NotFound`."""
    if role and call.deps.roles is not None:
        problem = await call.deps.roles.problem_of(role)
        if problem:
            raise NotFound(f"field 'role': {problem}", field="role")


async def deliver_to(
    call: Call, body: task_shapes.CreateTaskBody, caller: Principal
) -> DeliverTo | None:
    """The chat that was named; None: where the request itself came from.

    An agent's own result comes before it first, in the session of that chat.
    """
    if not body.chat_id:
        if body.topic_id:
            raise BadRequest("field 'topic_id': needs chat_id too", field="topic_id")
        return None
    is_agent = caller.kind is PrincipalKind.AGENT
    agent_id = caller.subject
    if not is_agent:
        agent_id = call.deps.directory.lookup(body.agent or MAIN).agent_id
    channel, conversation, session_id = await place_of(
        call, agent_id, body.chat_id, body.topic_id or ""
    )
    chat = DeliverTo("chat", agent_id=agent_id, channel=channel, conversation=conversation)
    if not is_agent:
        return chat
    return DeliverTo("mailbox", agent_id=agent_id, session_id=session_id, then=chat)


async def place_of(call: Call, agent_id: str, chat_id: str, topic_id: str) -> tuple[str, str, str]:
    """Channel, conversation and session (or nothing) of an agent's chat as platforms name it."""
    names = [f"{chat_id}/{topic_id}", f"{chat_id}:{topic_id}"] if topic_id else [chat_id]
    return await call.deps.web.database.read(
        lambda reader: _place(reader, agent_id, names), name="api.place"
    )


def _place(reader: Reader, agent_id: str, names: list[str]) -> tuple[str, str, str]:
    """Channel, conversation and session of a chat this agent has; else it is the console's."""
    for name in names:
        key = reader.scalar(
            "SELECT key FROM pointers WHERE agent_id = ? AND key GLOB 'chat:*'"
            " AND substr(key, instr(substr(key, 6), ':') + 6) = ? ORDER BY key LIMIT 1",
            (agent_id, name),
        )
        if key is not None:
            channel = str(key).split(":", 2)[1]
            return channel, name, sessions.current(reader, agent_id, str(key)) or ""
    return "console", names[-1], ""
