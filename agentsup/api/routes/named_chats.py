"""The chat that a request names for its result: maps platform ids to a conversation."""

from __future__ import annotations

from agentsup.api.http.access import is_agent
from agentsup.api.http.callers import turn_of
from agentsup.api.http.route import Call
from agentsup.mailbox.delivery import chats_of
from agentsup.mailbox.messages import keys
from agentsup.model.errors import Forbidden
from agentsup.model.message import DeliverTo


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
