"""Events to subscribers: agents are notified of started, finished and failed work of other agents.

They are messages of kind ``event``, stored in the transaction of the change that they report, so
that a crash loses none and repeats none. There are no events about events, about the subscriber's
own work, or about work that an event caused: so two agents that subscribe to each other don't keep
each other busy forever. A subscriber whose queue is full misses the event; the reported work is
never delayed (P1, P2, P3, P6).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from agentsup.kit.log import get_logger
from agentsup.mailbox.delivery.notices import preview
from agentsup.mailbox.messages import current_rights
from agentsup.mailbox.messages.keys import own_key
from agentsup.mailbox.messages.values import MailboxContext
from agentsup.mailbox.queue import admission
from agentsup.mailbox.queue.accept import put_tx
from agentsup.model.agent import AgentSpec, EventSubscription
from agentsup.model.errors import Overloaded
from agentsup.model.ids import AgentId
from agentsup.model.message import (
    NOWHERE,
    LaneName,
    Message,
    MessageKind,
    NewMessage,
    Part,
    Priority,
)
from agentsup.model.principal import Principal, PrincipalKind
from agentsup.store import Reader, Tx, name_of

SESSION_KEY = "events"
"""The key of a subscriber's session for events; each person's work has a separate one."""
_log = get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Subscriber:
    """A subscriber, and the kinds of events that it wants."""

    agent_id: str
    what: frozenset[str]


Subscribers = Mapping[str, tuple[Subscriber, ...]]


def subscribers_of(specs: Mapping[str, AgentSpec]) -> Subscribers:
    """The subscribers of each agent, by agent id; ``specs`` by agent id. None has itself."""
    found: dict[str, list[Subscriber]] = {}
    for agent_id, spec in specs.items():
        watches = [EventSubscription.parse(text) for text in spec.subscriptions]
        if not watches:
            continue
        for watched_id, watched in specs.items():
            what = frozenset[str]().union(
                *(each.what for each in watches if each.is_of(watched.name))
            )
            if what and watched_id != agent_id:
                found.setdefault(watched_id, []).append(Subscriber(agent_id, what))
    return {watched_id: tuple(each) for watched_id, each in found.items()}


class Subscriptions:
    """Implements ``mailbox.messages.values.MessageObserver``."""

    def __init__(self, watchers: Callable[[], Subscribers]) -> None:
        """``watchers()`` returns the present subscribers; the mapping itself is never changed."""
        self._watchers = watchers
        self._full: frozenset[str] = frozenset()

    def changed_tx(
        self,
        ctx: MailboxContext,
        tx: Tx,
        message: Message,
        what: str,
        *,
        at: int,
        code: str = "",
        text: str = "",
    ) -> None:
        """Send an event to the subscribers that want it: work on ``message`` began or ended."""
        watchers = self._watchers().get(message.agent_id, ())
        wanted = [each for each in watchers if what in each.what]
        if not wanted or message.kind is MessageKind.EVENT or was_set_off(tx, message):
            return
        name = name_of(tx, message.agent_id)
        for each in wanted:
            if self._has_room(ctx, tx, each.agent_id):
                parts = _said(name, message, what, code, text)
                _put_tx(ctx, tx, each.agent_id, message, parts, at)

    def _has_room(self, ctx: MailboxContext, reader: Reader, agent_id: str) -> bool:
        try:
            admission.check_room(ctx, reader, agent_id)
        except Overloaded as full:
            if agent_id not in self._full:  # logged once, until there is room again
                self._full |= {agent_id}
                _log.warning(f"events are not told: {full.message}")
            return False
        self._full -= {agent_id}
        return True


def _put_tx(
    ctx: MailboxContext, tx: Tx, agent_id: str, message: Message, parts: tuple[Part, ...], at: int
) -> None:
    # Events of one person's work must not be in a session with another's.
    new = NewMessage(
        agent_id=AgentId(agent_id),
        session_key=own_key(SESSION_KEY, message.person),
        parts=parts,
        principal=Principal(
            PrincipalKind.AGENT,
            message.agent_id,
            name_of(tx, message.agent_id),
            asker=current_rights.principal_for_new_root(tx, message).asker_name,
        ),
        kind=MessageKind.EVENT,
        lane=LaneName.BACKGROUND,
        priority=Priority.LOW,
        deliver_to=NOWHERE,
        in_reply_to=message.message_id,
        sender_agent_id=message.agent_id,
        summary=parts[0].text,
        silent=True,
    )
    put_tx(ctx, tx, new, at=at)


def was_set_off(reader: Reader, message: Message) -> bool:
    """Whether the message's root is an event."""
    if message.root_id == message.message_id:
        return False
    kind = reader.scalar("SELECT kind FROM messages WHERE message_id = ?", (message.root_id,))
    return kind is not None and kind == MessageKind.EVENT


def _said(name: str, message: Message, what: str, code: str, text: str) -> tuple[Part, ...]:
    """The content of the event: a sentence, and data for programs."""
    why = f": {preview(text)}" if text else ""
    about = preview(message.summary or message.text, 80)
    sentence = f"{name} {what} message {message.message_id} (“{about}”){why}"
    facts = {
        "agent": name,
        "agent_id": message.agent_id,
        "event": what,
        "message_id": message.message_id,
        "kind": message.kind.value,
        "from": message.principal.label,
        "code": code,
    }
    return (Part("text", text=sentence), Part("data", data=facts))
