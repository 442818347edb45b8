"""`/interagent/*`: agents and programs ask agents. The sender comes from the token (D7, P7)."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any

from aiohttp import web

from agentsup.api import bodies, documents, shapes
from agentsup.api.access import Access, is_agent
from agentsup.api.callers import caller_of
from agentsup.api.named_chats import named_chat
from agentsup.api.route import Call, Route, reply
from agentsup.mailbox import naming
from agentsup.mailbox.bus import BusRequest
from agentsup.model.agent import MAIN
from agentsup.model.errors import BadRequest, Forbidden, TimedOut
from agentsup.model.message import TERMINAL, Message, Priority
from agentsup.model.principal import OPERATOR, Principal, PrincipalKind

_MAX_TRACEPARENT = 128


def _sender(given: str | None, caller: Principal) -> str:
    """The `from` of the body, checked against the token; empty means the caller itself."""
    if caller.kind is PrincipalKind.AGENT:
        if given and given.casefold() != caller.name.casefold():
            raise Forbidden(
                f"this token belongs to {caller.name}; it can't send as {given}", field="from"
            )
        return ""
    if given and given.casefold() == OPERATOR.name:
        return ""
    return given or ""


def _bus_request(
    call: Call,
    body: bodies.SendBody | bodies.SendAsyncBody,
    caller: Principal,
    *,
    summary: str = "",
    silent: bool = False,
    reply_to: str = "",
) -> BusRequest:
    return BusRequest(
        to=body.to,
        text=body.message,
        sender=_sender(body.from_, caller),
        new_session=body.new_session,
        thread_id=body.thread_id or "",
        priority=Priority.parse(body.priority),
        idempotency_key=body.idempotency_key or "",
        summary=summary,
        silent=silent,
        reply_to=reply_to,
        traceparent=call.request.headers.get("traceparent", "")[:_MAX_TRACEPARENT],
    )


async def send(call: Call) -> web.Response:
    """Ask an agent and wait for its answer."""
    body: bodies.SendBody = call.body
    caller = await caller_of(call)
    request = _bus_request(call, body, caller)
    asker = call.deps.asker_of(call.who)
    # Where a turn asks, the wait is its own: only at its end is a late answer put before that turn.
    answer = await call.wait(
        lambda: call.deps.bus.send(request, caller=caller, timeout_s=body.timeout, asker=asker),
        name="send",
        is_kept=asker is not None,
    )
    return reply(
        {
            "sender": answer.sender,
            "text": answer.text,
            "success": True,
            "error": "",
            "message_id": answer.message_id,
            "session": answer.session,
        }
    )


async def send_async(call: Call) -> web.Response:
    """Queue a request; also for an agent that is down."""
    body: bodies.SendAsyncBody = call.body
    caller = await caller_of(call)
    reply_to = body.reply_to or ""
    if caller.kind is PrincipalKind.AGENT and reply_to:
        if reply_to.casefold() != caller.name.casefold():
            raise Forbidden(
                f"this token belongs to {caller.name}; it can't have the result put before "
                f"{reply_to}",
                field="reply_to",
            )
        reply_to = ""
    request = _bus_request(
        call,
        body,
        caller,
        summary=body.summary or "",
        silent=body.silent,
        reply_to=reply_to,
    )
    target = call.deps.directory.lookup(body.to)
    whose = request.reply_to or request.sender
    chat = await named_chat(call, whose or MAIN, body.chat_id or "", body.topic_id or "")
    if chat is not None:
        if not whose:
            raise BadRequest(
                "field 'chat_id': name in 'from' or 'reply_to' the agent whose chat it is; your own "
                "result is fetched, or waited for",
                field="chat_id",
            )
        request = replace(request, channel=chat.channel, chat_id=chat.conversation)
    accepted = await call.deps.bus.send_async(
        request, caller=caller, asker=call.deps.asker_of(call.who)
    )
    return reply(
        {
            "success": True,
            "task_id": accepted.message_id,
            "message_id": accepted.message_id,
            "session": accepted.session_id,
            "agent_state": target.status,
            "duplicate": accepted.duplicate,
        },
        202,
    )


async def result(call: Call) -> web.Response:
    """What became of a message; with `wait`, as soon as it has ended or the wait is over."""
    query: bodies.WaitQuery = call.query
    return reply(await outcome(call, call.named("id"), query.wait))


async def outcome(call: Call, message_id: str, wait_s: float) -> dict[str, Any]:
    """The result document of a message. Raises `NotFound`, and `Forbidden` for another's."""
    mailbox = call.deps.mailbox
    message = await mailbox.get(message_id)
    await _may_read(call, message)
    if wait_s > 0 and message.state not in TERMINAL:
        try:
            message = await call.wait(
                partial(mailbox.wait_done, message.message_id, wait_s), name="result"
            )
        except TimedOut:
            message = await mailbox.get(message.message_id)
    return documents.result(message, documents.name_of(call.deps.directory, message.agent_id))


async def _may_read(call: Call, message: Message) -> None:
    """An engine's token reads what its agent sent or was sent for the same person, and no more."""
    if is_agent(call.who):
        naming.check_message(message, call.who.agent_id, (await caller_of(call)).person)


async def names(call: Call) -> web.Response:
    """Who can be asked."""
    return reply({"agents": list(call.deps.directory.names())})


async def health(call: Call) -> web.Response:
    """How each agent does."""
    views = await call.deps.control.agents()
    if is_agent(call.who):
        views = tuple(view.told_to(call.who.agent_id) for view in views)
    return reply({"agents": {view.name: documents.agent_health(view) for view in views}})


ROUTES = (
    Route(
        "POST",
        "/interagent/send",
        send,
        "Ask an agent and wait for its answer",
        {200: shapes.SendReply},
        access=Access.ANY,
        body=bodies.SendBody,
        takes_work=True,
        refusals=(404, 409, 410, 429, 502, 504),
        headers={"traceparent": "W3C trace context to continue"},
    ),
    Route(
        "POST",
        "/interagent/send_async",
        send_async,
        "Queue a request to an agent, also while it is down",
        {202: shapes.SendAccepted},
        access=Access.ANY,
        body=bodies.SendAsyncBody,
        takes_work=True,
        refusals=(404, 409, 410, 429),
        headers={"traceparent": "W3C trace context to continue"},
    ),
    Route(
        "GET",
        "/interagent/results/{id}",
        result,
        "What became of a message",
        {200: shapes.Result},
        access=Access.ANY,
        query=bodies.WaitQuery,
        refusals=(403, 404, 429),
    ),
    Route(
        "GET",
        "/interagent/agents",
        names,
        "Names of the agents",
        {200: shapes.AgentNames},
        access=Access.ANY,
    ),
    Route(
        "GET",
        "/interagent/health",
        health,
        "How each agent does",
        {200: shapes.HealthByName},
        access=Access.ANY,
    ),
)
