"""Events to subscribers: started, finished and failed work of one agent, told to those who asked.

They are messages of kind ``event``, stored in the transaction of the change they tell, so that a
crash loses none and repeats none. Nothing is told of events, of one's own work, or of work that an
event set off: so two that watch each other don't keep each other busy for ever. Whoever can't take
more misses it; the work that is told of is never held up (P1, P2, P3, P6).
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from agentsup.mailbox import place, sessions
from agentsup.mailbox.accept import insert_tx
from agentsup.mailbox.draft import draft
from agentsup.mailbox.naming import own_key
from agentsup.mailbox.notices import name_of, preview
from agentsup.mailbox.values import Desk
from agentsup.model.agent import AgentSpec
from agentsup.model.errors import Overloaded
from agentsup.model.ids import AgentId
from agentsup.model.message import (
    NOWHERE,
    Kind,
    Lane,
    Message,
    NewMessage,
    Part,
    Priority,
)
from agentsup.model.principal import Principal, PrincipalKind
from agentsup.model.watch import Watch
from agentsup.store.database import Reader, Tx

__all__ = ["SESSION_KEY", "Subscriptions", "Watcher", "Watchers", "watchers_of"]

SESSION_KEY = "events"
"""All events of a subscriber are one session of it, apart for each person's work."""
_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Watcher:
    """A subscriber, and what it wants to hear."""

    agent_id: str
    what: frozenset[str]


Watchers = Mapping[str, tuple[Watcher, ...]]


def watchers_of(specs: Mapping[str, AgentSpec]) -> Watchers:
    """Who hears of whose work; ``specs`` by agent id. Nobody hears of their own."""
    found: dict[str, list[Watcher]] = {}
    for agent_id, spec in specs.items():
        watches = [Watch.parse(text) for text in spec.subscriptions]
        if not watches:
            continue
        for watched_id, watched in specs.items():
            what = frozenset[str]().union(
                *(each.what for each in watches if each.is_of(watched.name))
            )
            if what and watched_id != agent_id:
                found.setdefault(watched_id, []).append(Watcher(agent_id, what))
    return {watched_id: tuple(each) for watched_id, each in found.items()}


class Subscriptions:
    """Implements ``mailbox.values.Follower``."""

    def __init__(self, desk: Desk, watchers: Callable[[], Watchers]) -> None:
        """``watchers()`` is who hears of whom now; it is never changed in place."""
        self._desk = desk
        self._watchers = watchers
        self._full: frozenset[str] = frozenset()

    def changed_tx(
        self, tx: Tx, message: Message, what: str, *, at: int, code: str = "", text: str = ""
    ) -> None:
        """Tell those who asked that work on ``message`` began or ended."""
        watchers = self._watchers().get(message.agent_id, ())
        wanted = [each for each in watchers if what in each.what]
        if not wanted or message.kind is Kind.EVENT or _was_set_off(tx, message):
            return
        name = name_of(tx, message.agent_id)
        for each in wanted:
            if self._has_room(tx, each.agent_id):
                self._put_tx(tx, each.agent_id, message, _said(name, message, what, code, text), at)

    def _has_room(self, reader: Reader, agent_id: str) -> bool:
        try:
            place.check_room(self._desk, reader, agent_id)
        except Overloaded as full:
            if agent_id not in self._full:  # said once, until there is room again
                self._full |= {agent_id}
                _log.warning("events are not told: %s", full.message)
            return False
        self._full -= {agent_id}
        return True

    def _put_tx(
        self, tx: Tx, agent_id: str, message: Message, parts: tuple[Part, ...], at: int
    ) -> None:
        # What happened in one person's work is not told beside another's.
        key = own_key(SESSION_KEY, message.person)
        new = NewMessage(
            agent_id=AgentId(agent_id),
            session_key=key,
            parts=parts,
            principal=Principal(
                PrincipalKind.AGENT, message.agent_id, name_of(tx, message.agent_id)
            ),
            kind=Kind.EVENT,
            lane=Lane.BACKGROUND,
            priority=Priority.LOW,
            deliver_to=NOWHERE,
            in_reply_to=message.message_id,
            sender_agent_id=message.agent_id,
            summary=parts[0].text,
            silent=True,
        )
        session_id = sessions.resolve_tx(tx, agent_id, key, at=at, entropy=self._desk.entropy)
        insert_tx(self._desk, tx, draft(self._desk, new), session_id, at=at)


def _was_set_off(reader: Reader, message: Message) -> bool:
    """Whether it goes back to an event."""
    if message.root_id == message.message_id:
        return False
    kind = reader.scalar("SELECT kind FROM messages WHERE message_id = ?", (message.root_id,))
    return kind is not None and kind == Kind.EVENT


def _said(name: str, message: Message, what: str, code: str, text: str) -> tuple[Part, ...]:
    """A sentence, and the facts for programs."""
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
