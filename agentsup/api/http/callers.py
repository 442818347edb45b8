"""The principal of a request, from its token and from the turn that the token was given to, and the
chat that it names for its result."""

from __future__ import annotations

from agentsup.api.http.access import is_agent
from agentsup.api.http.route import Call
from agentsup.mailbox.delivery import chats_of
from agentsup.mailbox.mail import name_in
from agentsup.mailbox.messages import keys
from agentsup.model.errors import Forbidden, NotFound
from agentsup.model.message import DeliverTo, Message
from agentsup.model.principal import NOBODY, Principal, PrincipalKind


async def turn_of(call: Call) -> Message | None:
    """The message of the turn that the token was given to; None for any other token."""
    asker = call.deps.delegating_turn_of(call.who)
    if asker is not None:
        return asker.lease.message
    if not is_agent(call.who):
        return None
    try:
        return await call.deps.mailbox.get(call.who.message_id)
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
