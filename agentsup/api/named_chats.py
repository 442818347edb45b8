"""A chat that a request names for its result: the one door from platform ids to a conversation."""

from __future__ import annotations

from agentsup.api.access import is_agent
from agentsup.api.callers import turn_of
from agentsup.api.route import Call
from agentsup.mailbox import naming
from agentsup.mailbox.notices import chats_of
from agentsup.model.errors import Forbidden
from agentsup.model.message import DeliverTo


async def named_chat(call: Call, agent: str, chat_id: str, topic_id: str) -> DeliverTo | None:
    """The chat of ``agent`` (a name) that is meant; None: back to where the request came from.

    An engine's token can name no place but that one. Raises ``BadRequest``, ``NotFound`` (nobody has
    written there) and ``Forbidden`` (not the turn's own, or of nobody who is allowed).
    """
    if is_agent(call.who):
        naming.check_chat_of_turn(await turn_of(call), chat_id, topic_id)
        return None
    if not chat_id:
        naming.check_topic(topic_id)
        return None
    entry = call.deps.directory.lookup(agent)
    known = await call.deps.web.database.read(
        lambda reader: chats_of(reader, entry.agent_id), name="api.named_chat"
    )
    channel, conversation = naming.chosen_chat(entry.name, chat_id, topic_id, known)
    person = known[channel, conversation]
    if not call.deps.is_allowed(entry.name, channel, conversation, person):
        raise Forbidden(
            f"{channel}:{conversation} is not a chat of people whom {entry.name} may talk to now; "
            "allow it in agents.json, or leave chat_id out and fetch the result",
            field="chat_id",
        )
    return DeliverTo("chat", agent_id=entry.agent_id, channel=channel, conversation=conversation)
