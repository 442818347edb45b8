"""Who may do what: one rule for every kind of event. Pure.

The same function decides about texts, edits, files, reactions, redactions and invitations, so there
is no way around it through a rarer kind.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from enum import StrEnum

from agentsup.channels.matrix.event import Event, EventKind
from agentsup.model.agent import AgentSpec
from agentsup.model.principal import Principal

__all__ = ["People", "Reason", "Room", "Verdict", "may", "may_enter", "named", "remedy"]

People = Callable[[AgentSpec, str], Principal | None]
"""The person behind a Matrix user id for this agent, or None for a stranger."""

_FOR_PEOPLE = frozenset(
    {
        EventKind.MESSAGE,
        EventKind.EDITED,
        EventKind.REACTION,
        EventKind.REDACTION,
        EventKind.ENCRYPTED,
    }
)
_WRITTEN = frozenset({EventKind.MESSAGE, EventKind.EDITED})
_NAME_CHARS = 64


@dataclass(frozen=True, slots=True)
class Room:
    """What is known of a room: who is in it, with the names they go by, the bot included."""

    room_id: str
    members: dict[str, str] = field(default_factory=dict)

    def is_private(self, me: str, sender: str) -> bool:
        """Whether nobody but that person is there with the bot."""
        return not self.members.keys() - {me, sender}


class Reason(StrEnum):
    """Why an event is let through or not."""

    ALLOWED = "allowed"
    STRANGER = "stranger"
    ROOM = "room"
    """The room is not one of the agent's, and others are in it."""
    NOT_ADDRESSED = "not addressed"
    NO_PERSON = "no person"
    """The bot itself, or a program."""
    NOT_FOR_US = "not for us"


@dataclass(frozen=True, slots=True)
class Verdict:
    """``principal`` is set if, and only if, the event is allowed."""

    reason: Reason
    principal: Principal | None = None

    @property
    def allowed(self) -> bool:
        return self.principal is not None


def may(event: Event, spec: AgentSpec, people: People, room: Room, me: str) -> Verdict:
    """Whether the agent listens to this event, and in whose name it then acts.

    A room where one of its people is alone with the bot is open. Another one must be allowed, the
    person too, and where the agent answers to mentions only the text must be for it. A stop needs no
    name: whoever wants work to end must not be told how to ask for it. What is encrypted does not
    tell whom it is for.
    """
    if event.kind not in _FOR_PEOPLE:
        return Verdict(Reason.NOT_FOR_US)
    if event.sender == me or event.is_notice:
        return Verdict(Reason.NO_PERSON)
    is_private = room.is_private(me, event.sender)
    if not is_private and event.room_id not in spec.matrix.allowed_rooms:
        return Verdict(Reason.ROOM)
    principal = people(spec, event.sender)
    if principal is None:
        return Verdict(Reason.STRANGER)
    if not is_private and event.kind in _WRITTEN:
        is_ours = event.quoted is not None and event.quoted.is_ours
        is_meant = event.addressed or is_ours or event.is_stop
        if spec.group_mention_only and not is_meant:
            return Verdict(Reason.NOT_ADDRESSED)
    return Verdict(Reason.ALLOWED, principal)


def would_answer(event: Event, spec: AgentSpec, people: People, room: Room | None, me: str) -> bool:
    """Whether a text that nobody has read yet is for the agent, as far as that is known: what it
    refers to, and perhaps who is in the room, was not asked for."""
    if room is None:
        return True
    is_related = bool(event.reply_to or event.thread_id)  # to what we said, perhaps
    event = replace(event, addressed=event.addressed or is_related)
    return may(event, spec, people, room, me).allowed


def may_enter(event: Event, spec: AgentSpec, people: People) -> bool:
    """Whether to accept an invitation: from one of its people, or into one of its rooms."""
    return event.room_id in spec.matrix.allowed_rooms or people(spec, event.sender) is not None


def named(principal: Principal, shown: str) -> Principal:
    """The person with the name that the platform shows, where no other is known.

    The name is for reading; rights hang on the subject.
    """
    shown = " ".join(shown.split())[:_NAME_CHARS]
    if not shown or principal.name not in ("", principal.subject):
        return principal
    return replace(principal, name=shown)


def remedy(event: Event, reason: Reason, agent_name: str) -> str:
    """What an operator reads about an event that was refused; empty where nothing is amiss."""
    allow = (
        f"to allow this person, add {event.sender} to matrix.allowed_users of {agent_name}, or to "
        "[people.NAME] matrix"
    )
    if event.kind is EventKind.INVITE:
        return (
            f"{event.sender} invited {agent_name} to the Matrix room {event.room_id} and was "
            f"refused; {allow}, or add the room to matrix.allowed_rooms; then invite again"
        )
    if reason is Reason.STRANGER:
        return f"{event.sender} is not known to {agent_name} and got no answer; {allow}"
    if reason is Reason.ROOM:
        return (
            f"the Matrix room {event.room_id} is not one of {agent_name}, and others than "
            f"{event.sender} are in it; to allow it, add {event.room_id} to matrix.allowed_rooms "
            f"of {agent_name}"
        )
    return ""
