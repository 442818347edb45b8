"""Who may name what: one rule for sessions, threads, chats and messages, whatever way in. Pure.

An operator names anything, by its own key. A person names the conversations that are theirs. An
agent acts for the person at the root of its turn: it names threads of its own making, apart for
each person, and of chats the one that its turn came from; it sees messages of that person's work
only. So nothing that one person has an agent do reaches what another one said (P7).
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Collection
from typing import Final
from urllib.parse import quote

from agentsup.model.errors import BadRequest, Forbidden, NotFound
from agentsup.model.message import DeliverTo, Message
from agentsup.model.principal import (
    NOBODY,
    PERSON_MARK,
    Principal,
    PrincipalKind,
    is_one_persons,
)

__all__ = [
    "AGENTS",
    "OPERATORS_CONVERSATION",
    "SEVERAL",
    "WEB",
    "below_operator",
    "chat_key",
    "chat_of_key",
    "check_chat_of_turn",
    "check_message",
    "check_topic",
    "chosen_chat",
    "is_of_work",
    "key_owner",
    "may_enter",
    "own_conversation",
    "own_key",
    "peer_key",
    "root_chat",
    "session_key",
]

AGENTS = (PrincipalKind.AGENT, PrincipalKind.RUN)
"""Who acts for an agent."""
WEB: Final = "web"
"""The channel of the page, where a conversation is named after its person."""
OPERATORS_CONVERSATION: Final = "local"
SEVERAL: Final = "*"
"""The ``person`` of a conversation in which several speak."""
_LOCAL = ("console", WEB)
_PLAIN = re.compile(r"[A-Za-z0-9_-]{1,40}")


# -- sessions --------------------------------------------------------------------------------------


def chat_key(channel: str, conversation: str) -> str:
    """The key of a chat's session."""
    return f"chat:{channel}:{conversation}"


def chat_of_key(key: str) -> tuple[str, str]:
    """Channel and conversation of a chat's key; of another key, none that anybody may enter."""
    kind, _, place = key.partition(":")
    channel, _, conversation = place.partition(":")
    return (channel, conversation) if kind == "chat" else ("", key)


def own_key(base: str, person: str) -> str:
    """A key that is apart for each person's work; nobody's and the operators' share the plain one."""
    return f"{base}:{quote(person, safe='')}" if is_one_persons(person) else base


def peer_key(name: str, person: str) -> str:
    """The key of the session with a peer of that name, in one person's work."""
    return own_key(f"ia-{name}", person)


def key_owner(deed: str, by: Principal, person: str = "") -> str:
    """Whose idempotency keys they are: each principal has its own for each kind of deed, and an agent
    others for each person. ``person`` is whose work it is, where ``by`` does not tell."""
    own = f"{deed}:{by.kind.value}:{by.subject}"
    return f"{own}:{by.person or person or NOBODY}" if by.kind in AGENTS else own


def session_key(caller: Principal, *, sender_id: str, name: str, person: str, thread: str) -> str:
    """The key of the session that a request goes to. ``sender_id`` and ``name`` are the agent's that
    sends, or the caller's; ``thread`` is what the request names, or empty."""
    if not thread:
        return peer_key(name, person)
    if caller.is_operator:
        return thread
    whose = sender_id or f"{caller.kind.value}:{caller.subject}"
    return f"thread:{quote(whose, safe='')}:{quote(person, safe='')}:{thread}"


# -- chats -----------------------------------------------------------------------------------------


def root_chat(to: DeliverTo | None) -> DeliverTo | None:
    """The chat at the end of the way back, where whoever is at the root reads the answer."""
    while to is not None and to.kind != "chat":
        to = to.then
    return to


def _names(chat_id: str, topic_id: str) -> tuple[str, ...]:
    """What a conversation may be called whose platform's ids are these."""
    return (f"{chat_id}/{topic_id}", f"{chat_id}:{topic_id}") if topic_id else (chat_id,)


def check_chat_of_turn(turn: Message | None, chat_id: str, topic_id: str) -> None:
    """An engine's token names no chat but the one that its turn's root came from. Raises
    ``BadRequest`` and ``Forbidden``."""
    if not chat_id:
        check_topic(topic_id)
        return
    chat = root_chat(turn.deliver_to) if turn is not None else None
    if chat is None or chat.conversation not in _names(chat_id, topic_id):
        raise Forbidden(
            f"chat {chat_id} is not the conversation that this turn came from, and an agent can name "
            "no other: leave chat_id and topic_id out, and the result goes back there",
            field="chat_id",
        )


def chosen_chat(
    agent: str, chat_id: str, topic_id: str, known: Collection[tuple[str, str]]
) -> tuple[str, str]:
    """Channel and conversation of the chat that an operator names. ``known`` are those that
    people have with the agent; a platform's is never mistaken for a console's.

    Raises ``NotFound`` for a chat in which nobody ever wrote to the agent.
    """
    wanted = _names(chat_id, topic_id)
    found = [chat for chat in known if chat[1] in wanted]
    if not found:
        where = f"topic {topic_id} of chat {chat_id}" if topic_id else f"chat {chat_id}"
        raise NotFound(
            f"nobody has written to {agent} in {where}, so nothing can be delivered there: write to "
            "the agent there once, or leave chat_id out and fetch the result",
            field="chat_id",
        )
    return min(found, key=lambda one: (one[0] in _LOCAL, one[0] == "console", one))


def check_topic(topic_id: str) -> None:
    """Raise ``BadRequest`` for a topic of no chat."""
    if topic_id:
        raise BadRequest("field 'topic_id': needs chat_id too", field="topic_id")


# -- people's conversations --------------------------------------------------------------------------


def own_conversation(person: Principal) -> str:
    """The conversation of the page that is this person's; `<it>.<anything>` are further ones.

    It has no dot itself, so nobody's begins with somebody else's.
    """
    if person.kind is not PrincipalKind.PERSON:
        return OPERATORS_CONVERSATION
    name = person.subject
    if _PLAIN.fullmatch(name) and name != OPERATORS_CONVERSATION:
        return name
    plain = re.sub(r"[^A-Za-z0-9_-]+", "-", name)[:31].strip("-") or "person"
    return f"{plain}-{hashlib.sha256(name.encode()).hexdigest()[:8]}"


def below_operator(principal: Principal) -> str:
    """What somebody is named as a ``person`` while they are below operator; empty for no person."""
    is_person = principal.kind is PrincipalKind.PERSON
    return f"{PERSON_MARK}{principal.subject}" if is_person else ""


def may_enter(person: Principal, channel: str, conversation: str) -> bool:
    """Whether this person may name a conversation: read and write there."""
    if person.is_operator:
        return True
    if person.kind is not PrincipalKind.PERSON:
        return False
    own = own_conversation(person)
    return channel == WEB and (conversation == own or conversation.startswith(f"{own}."))


# -- messages --------------------------------------------------------------------------------------


def is_of_work(person: str, whose: str) -> bool:
    """Whether an agent that acts for ``person`` may use what was done for ``whose``: that person's,
    or nobody's. Outside of any turn (empty) it acts for itself: all of its own work is open to it."""
    return not person or whose in ("", NOBODY, person)


def check_message(message: Message, agent_id: str, person: str) -> None:
    """Raise ``Forbidden`` unless an agent, in a turn for ``person``, may see the message: it sent it
    or was sent it, and in that person's work."""
    if agent_id not in (message.sender_agent_id, message.agent_id):
        raise Forbidden("this message was neither sent by your agent nor to it", reason="not_yours")
    if not is_of_work(person, message.person):
        raise Forbidden(
            "this message belongs to the work of another person than this turn's",
            reason="not_yours",
        )
