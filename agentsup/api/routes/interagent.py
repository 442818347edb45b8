"""``/interagent/*``: agents and programs ask agents. The sender comes from the token (D7, P7)."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

from agentsup.api.documents import bodies
from agentsup.api.documents.agents import AgentHealth, AgentNames, HealthByName
from agentsup.api.documents.messages import ResultDocument, SendAccepted, SendReply
from agentsup.api.http.access import Access, is_agent
from agentsup.api.http.route import Call, get, post
from agentsup.mailbox.delivery import chats_of
from agentsup.mailbox.mail import BusRequest, name_in
from agentsup.mailbox.messages import keys
from agentsup.model.agent import MAIN
from agentsup.model.errors import BadRequest, Forbidden, NotFound, TimedOut
from agentsup.model.message import TERMINAL, DeliverTo, Message, Priority
from agentsup.model.principal import NOBODY, OPERATOR, Principal, PrincipalKind

_MAX_TRACEPARENT = 128


# -- who asks: also for ``/tasks`` --------------------------------------------------------------------


async def turn_of(call: Call) -> Message | None:
    """The message of the turn that the token was given to; None for any other token."""
    asker = call.deps.delegating_turn_of(call.who)
    if asker is not None:
        return asker.lease.message
    if not is_agent(call.who):
        return None
    try:
        return await call.deps.mailbox.messages.get(call.who.message_id)
    except NotFound:
        return None


def check_name(caller: Principal, given: str | None, deed: str, *, field: str = "from") -> None:
    """Raise ``Forbidden`` if ``given``, from ``field``, is another agent than the caller; ``deed``
    is what the caller can't do as that one."""
    if given and given.casefold() != caller.name.casefold():
        raise Forbidden(
            f"this token belongs to {caller.name}; it can't {deed} {given}", field=field
        )


async def caller_of(call: Call) -> Principal:
    """The principal that acts. For an engine's token: its agent, on behalf of the turn's person."""
    who = call.who
    if not is_agent(who):
        return who.principal
    turn = await turn_of(call)
    behalf = (turn.person if turn is not None else "") or NOBODY
    name = name_in(call.deps.directory, who.agent_id)
    return Principal(PrincipalKind.AGENT, who.agent_id, name, who.principal.role, behalf=behalf)


async def named_chat(call: Call, agent: str, chat_id: str, topic_id: str) -> DeliverTo | None:
    """The named chat of ``agent`` (a name); None: the conversation that the request came from.

    An engine's token can name only that one. Raises ``BadRequest``, ``NotFound`` (nobody has
    written there) and ``Forbidden`` (not the turn's own chat, or a person who is not allowed).
    """
    if is_agent(call.who):
        keys.check_chat_of_turn(await turn_of(call), chat_id, topic_id)
        return None
    if not chat_id:
        keys.check_topic(topic_id)
        return None
    entry = call.deps.directory.lookup(agent)
    known = await call.deps.database.read(chats_of, entry.agent_id, name="api.named_chat")
    channel, conversation = keys.chosen_chat(entry.name, chat_id, topic_id, known)
    person = known[channel, conversation]
    if not call.deps.is_allowed(entry.name, channel, conversation, person):
        raise Forbidden(
            f"{channel}:{conversation} is not a chat of people whom {entry.name} may talk to now; "
            "allow it in agents.json, or leave chat_id out and fetch the result",
            field="chat_id",
        )
    return DeliverTo("chat", agent_id=entry.agent_id, channel=channel, conversation=conversation)


# -- asking ----------------------------------------------------------------------------------------


def checked_sender(given: str | None, caller: Principal) -> str:
    """The ``from`` of the body, checked against the token; empty means the caller itself."""
    if caller.kind is PrincipalKind.AGENT:
        check_name(caller, given, "send as")
        return ""
    return "" if not given or given.casefold() == OPERATOR.name else given


def _bus_request(
    call: Call, body: bodies.SendBody | bodies.SendAsyncBody, caller: Principal
) -> BusRequest:
    return BusRequest(
        to=body.to,
        text=body.message,
        sender=checked_sender(body.from_, caller),
        new_session=body.new_session,
        thread_id=body.thread_id or "",
        priority=Priority.parse(body.priority),
        idempotency_key=body.idempotency_key or "",
        traceparent=call.request.headers.get("traceparent", "")[:_MAX_TRACEPARENT],
    )


@post(
    "/interagent/send",
    access=Access.ANY,
    takes_work=True,
    refusals=(404, 409, 410, 429, 502, 504),
    headers={"traceparent": "W3C trace context to continue"},
)
async def send(call: Call, body: bodies.SendBody) -> SendReply:
    """Ask an agent and wait for its answer."""
    caller = await caller_of(call)
    request = _bus_request(call, body, caller)
    asker = call.deps.delegating_turn_of(call.who)
    # If a turn asks, the wait goes on without the client: a late answer is delivered to the turn
    # only after its wait has ended.
    answer = await call.wait(
        lambda: call.deps.bus.send(request, caller=caller, timeout_s=body.timeout, asker=asker),
        name="send",
        goes_on=asker is not None,
    )
    return SendReply.from_value(answer, success=True, error="")


@post(
    "/interagent/send_async",
    202,
    access=Access.ANY,
    takes_work=True,
    refusals=(404, 409, 410, 429),
    headers={"traceparent": "W3C trace context to continue"},
)
async def send_async(call: Call, body: bodies.SendAsyncBody) -> SendAccepted:
    """Queue a request to an agent, also while it is down."""
    caller = await caller_of(call)
    reply_to = body.reply_to or ""
    if caller.kind is PrincipalKind.AGENT:
        check_name(caller, reply_to, "have the result put before", field="reply_to")
        reply_to = ""
    request = replace(
        _bus_request(call, body, caller),
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
        request, caller=caller, asker=call.deps.delegating_turn_of(call.who)
    )
    return SendAccepted.from_value(
        accepted,
        success=True,
        task_id=accepted.message_id,
        session=accepted.session_id,
        agent_state=target.status,
    )


@get("/interagent/results/{id}", access=Access.ANY, refusals=(403, 404, 429))
async def result(call: Call, query: bodies.WaitQuery) -> ResultDocument:
    """Show the state of a message, and its result when it has ended."""
    return await outcome(call, call.named("id"), query.wait)


async def outcome(call: Call, message_id: str, wait_s: float) -> ResultDocument:
    """The result document of a message. Raises ``NotFound``, and ``Forbidden`` for another's."""
    mailbox = call.deps.mailbox
    message = await mailbox.messages.get(message_id)
    await _may_read(call, message)
    if wait_s > 0 and message.state not in TERMINAL:
        try:
            message = await call.wait(
                partial(mailbox.queue.wait_done, message.message_id, wait_s), name="result"
            )
        except TimedOut:
            message = await mailbox.messages.get(message.message_id)
    return ResultDocument.of(message, name_in(call.deps.directory, message.agent_id))


async def _may_read(call: Call, message: Message) -> None:
    """Raise unless the caller may read the message. An engine's token reads only messages that its
    agent sent or got for the same person."""
    if is_agent(call.who):
        keys.check_message(message, call.who.agent_id, (await caller_of(call)).person)


@get("/interagent/agents", access=Access.ANY)
async def names(call: Call) -> AgentNames:
    """Names of the agents."""
    return AgentNames(agents=list(call.deps.directory.names()))


@get("/interagent/health", access=Access.ANY)
async def health(call: Call) -> HealthByName:
    """Show the health of each agent."""
    views = await call.deps.control.agents()
    if is_agent(call.who):
        views = tuple(view.for_agent(call.who.agent_id) for view in views)
    return HealthByName(agents={view.name: AgentHealth.of(view) for view in views})
