"""The fields of a new task besides its prompt: engine, role, schedule, chat for the result."""

from __future__ import annotations

from agentsup.api.documents import task_bodies
from agentsup.api.http.callers import turn_of
from agentsup.api.http.route import Call
from agentsup.api.routes.named_chats import named_chat
from agentsup.mailbox.mail import to_asker
from agentsup.mailbox.messages import keys
from agentsup.model.agent import MAIN
from agentsup.model.errors import BadRequest, NotFound
from agentsup.model.message import DeliverTo
from agentsup.model.principal import Principal, PrincipalKind
from agentsup.model.task import NewSchedule


def schedule(given: task_bodies.ScheduleBody | None) -> NewSchedule | None:
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


async def check_engine(call: Call, body: task_bodies.CreateTaskBody, agent: str) -> None:
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


async def check_role(call: Call, role: str | None) -> None:
    """Raise ``NotFound`` for a role that can't be used: a run in it would have no tools at all."""
    if role and (problem := await call.deps.roles.problem_of(role)):
        raise NotFound(f"field 'role': {problem}", field="role")


async def deliver_to(
    call: Call, body: task_bodies.CreateTaskBody, caller: Principal
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
    session_id = await call.deps.mailbox.current_session(chat.agent_id, key)
    return DeliverTo("mailbox", agent_id=chat.agent_id, session_id=session_id or "", then=chat)
