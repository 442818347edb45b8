"""Keys of sessions, threads and chats, and who may use them: one rule for all entry points. Pure.

An operator may name anything by its key, a person their own conversations. An agent acts for the
person at the root of its turn. It may name its own threads, which are separate for each person, and
the one chat that its turn came from, and it sees only messages of that person's work. So a person
can't use an agent to reach what another person said (P7).
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

AGENTS = (PrincipalKind.AGENT, PrincipalKind.RUN)
"""The kinds of principal that act for an agent."""
WEB: Final = "web"
"""The channel of the web page, where a conversation is named after its person."""
CONSOLE: Final = "console"
"""The channel of the terminal's chat."""
OF_TASKS: Final = "task:"
"""How the keys of tasks' sessions begin."""
OPERATORS_CONVERSATION: Final = "local"
SEVERAL: Final = "*"
"""The ``person`` of a conversation in which several people speak."""
LOCAL: Final = (CONSOLE, WEB)
"""The daemon's own channels, which no platform protects."""
_PLAIN = re.compile(r"[A-Za-z0-9_-]{1,40}")


# -- sessions --------------------------------------------------------------------------------------


def chat_key(channel: str, conversation: str) -> str:
    """The key of a chat's session."""
    return f"chat:{channel}:{conversation}"


def chat_of_key(key: str) -> tuple[str, str]:
    """Channel and conversation of a chat's key; for another key, a pair that nobody may enter."""
    kind, _, name = key.partition(":")
    channel, _, conversation = name.partition(":")
    return (channel, conversation) if kind == "chat" else ("", key)


def own_key(base: str, person: str) -> str:
    """A separate key for each person's work; that of operators and of nobody keeps ``base``."""
    return f"{base}:{quote(person, safe='')}" if is_one_persons(person) else base


def peer_key(name: str, person: str) -> str:
    """The key of the session with a peer of that name, in one person's work."""
    return own_key(f"ia-{name}", person)


def is_apart_for(key: str, person: str) -> bool:
    """Whether a peer or thread session with that key has only this one person's work."""
    whose = quote(person, safe="")
    return (key.startswith("ia-") and key.endswith(f":{whose}")) or (
        key.startswith("thread:") and key.split(":")[2:3] == [whose]
    )


def key_owner(deed: str, by: Principal, person: str = "") -> str:
    """The owner of idempotency keys, as stored in the ledger.

    Each principal has its own keys for each kind of request (``deed``), and an agent separate ones
    for each person. ``person`` is the person for whom the work is done, if ``by`` does not tell.
    """
    own = f"{deed}:{by.kind.value}:{by.subject}"
    return f"{own}:{by.person or person or NOBODY}" if by.kind in AGENTS else own


def session_key(caller: Principal, *, sender_id: str, name: str, person: str, thread: str) -> str:
    """The key of the session that a request goes to.

    ``sender_id`` and ``name`` are the sending agent's; without one, ``sender_id`` is empty and
    ``name`` is the caller's. ``thread`` is the thread that the request names, or empty.
    """
    if not thread:
        return peer_key(name, person)
    if caller.is_operator:
        return thread
    whose = sender_id or f"{caller.kind.value}:{caller.subject}"
    return f"thread:{quote(whose, safe='')}:{quote(person, safe='')}:{thread}"


# -- chats -----------------------------------------------------------------------------------------


def root_chat(to: DeliverTo | None) -> DeliverTo | None:
    """The chat at the end of the ``then`` chain, where the root's asker gets the answer, if any."""
    while to is not None and to.kind != "chat":
        to = to.then
    return to


def _names(chat_id: str, topic_id: str) -> tuple[str, ...]:
    """The possible names of the conversation with these ids of a platform."""
    return (f"{chat_id}/{topic_id}", f"{chat_id}:{topic_id}") if topic_id else (chat_id,)


def check_chat_of_turn(turn: Message | None, chat_id: str, topic_id: str) -> None:
    """Check that an engine's token names only the chat that its turn's root came from.

    Raises ``BadRequest`` and ``Forbidden``.
    """
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
    """Channel and conversation of the chat that an operator names.

    ``known`` are the chats that people have with the agent; if several have the name, one of a
    platform comes first, the console last. Raises ``NotFound`` for a chat in which nobody ever
    wrote to the agent.
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
    return min(found, key=lambda one: (one[0] in LOCAL, one[0] == "console", one))


def check_known_chat(agent: str, chat: str, known: Collection[tuple[str, str]]) -> None:
    """Check that people write to the agent in ``<channel>:<conversation>``, or in a topic of it.

    Raises ``NotFound``.
    """
    channel, _, conversation = chat.partition(":")
    if not any(
        each == channel and conversation in (name, name.partition("/")[0]) for each, name in known
    ):
        raise NotFound(
            f"nobody has written to {agent} in {chat}; a chat is named as in `agentsup sessions "
            f"{agent}`, without chat: before it",
            field="chat",
        )


def check_topic(topic_id: str) -> None:
    """Raise ``BadRequest`` for a topic without a chat."""
    if topic_id:
        raise BadRequest("field 'topic_id': needs chat_id too", field="topic_id")


# -- people's conversations ------------------------------------------------------------------------


def own_conversation(person: Principal) -> str:
    """The person's own conversation on the web page; ``<it>.<anything>`` are further ones.

    It has no dot itself, so no person's conversation begins with another's.
    """
    if person.kind is not PrincipalKind.PERSON:
        return OPERATORS_CONVERSATION
    name = person.subject
    if _PLAIN.fullmatch(name) and name != OPERATORS_CONVERSATION:
        return name
    plain = re.sub(r"[^A-Za-z0-9_-]+", "-", name)[:31].strip("-") or "person"
    return f"{plain}-{hashlib.sha256(name.encode()).hexdigest()[:8]}"


def below_operator(principal: Principal) -> str:
    """The ``person`` value of somebody below operator; empty if the principal is no person."""
    is_person = principal.kind is PrincipalKind.PERSON
    return f"{PERSON_MARK}{principal.subject}" if is_person else ""


def speaker_of(principal: Principal) -> str | None:
    """The speaker in a chat: a person's subject, empty for the console; None for no person."""
    speaks = principal.kind in (PrincipalKind.PERSON, PrincipalKind.OPERATOR)
    return principal.asker_name if speaks else None


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
    """Whether an agent that acts for ``person`` may use work that was done for ``whose``.

    It may use that person's work and nobody's. Outside a turn (``person`` is empty) it acts for
    itself and may use all of its own work.
    """
    return not person or whose in ("", NOBODY, person)


def check_message(message: Message, agent_id: str, person: str) -> None:
    """Raise ``Forbidden`` unless an agent, in a turn for ``person``, may see the message.

    The agent must be its sender or receiver, and the message must belong to that person's work or
    to nobody's.
    """
    if agent_id not in (message.sender_agent_id, message.agent_id):
        raise Forbidden("this message was neither sent by your agent nor to it", reason="not_yours")
    if not is_of_work(person, message.person):
        raise Forbidden(
            "this message belongs to the work of another person than this turn's",
            reason="not_yours",
        )
