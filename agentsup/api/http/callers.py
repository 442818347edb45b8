"""The principal of a request, from its token and from the turn that the token was given to."""

from __future__ import annotations

from agentsup.api.http.access import is_agent
from agentsup.api.http.route import Call
from agentsup.mailbox.mail import name_in
from agentsup.model.errors import Forbidden, NotFound
from agentsup.model.message import Message
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
