"""On whose behalf a request is made: from the token, and from the turn that it was given to."""

from __future__ import annotations

from agentsup.api import documents
from agentsup.api.access import is_agent
from agentsup.api.route import Call
from agentsup.model.errors import NotFound
from agentsup.model.message import Message
from agentsup.model.principal import NOBODY, Principal, PrincipalKind


async def turn_of(call: Call) -> Message | None:
    """The message of the turn that the token was given to; None for any other token."""
    asker = call.deps.asker_of(call.who)
    if asker is not None:
        return asker.lease.message
    if call.by.kind is not PrincipalKind.RUN:
        return None
    try:
        return await call.deps.mailbox.get(call.who.message_id)
    except NotFound:
        return None


async def caller_of(call: Call) -> Principal:
    """Who acts: for an engine's token its agent, for the person at the root of its turn."""
    who = call.who
    if not is_agent(who):
        return who.principal
    turn, behalf = await turn_of(call), ""
    if turn is not None or who.principal.kind is PrincipalKind.RUN:
        behalf = (turn.person if turn is not None else "") or NOBODY
    name = documents.name_of(call.deps.directory, who.agent_id)
    return Principal(PrincipalKind.AGENT, who.agent_id, name, who.principal.role, behalf=behalf)
