"""Rights of senders: one rule for every kind of event. Pure.

The same function decides about texts, edits, files, reactions, redactions and invitations, so there
is no way around it through a rarer kind.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace

from agentsup.channels.core.receiving.gate import AccessReason, AccessVerdict
from agentsup.channels.matrix.event import RoomEvent, RoomEventKind
from agentsup.model.agent import AgentSpec
from agentsup.model.principal import Principal

People = Callable[[AgentSpec, str], Principal | None]
"""The person behind a Matrix user id for this agent, or None for a stranger."""

_FOR_PEOPLE = frozenset(
    {
        RoomEventKind.MESSAGE,
        RoomEventKind.EDITED,
        RoomEventKind.REACTION,
        RoomEventKind.REDACTION,
        RoomEventKind.ENCRYPTED,
    }
)


@dataclass(frozen=True, slots=True)
class Room:
    """A room and its members with their display names, the bot included."""

    room_id: str
    members: dict[str, str] = field(default_factory=dict)

    def is_private(self, me: str, sender: str) -> bool:
        """Whether ``sender`` is alone in the room with the bot ``me``."""
        return not self.members.keys() - {me, sender}


def may(event: RoomEvent, spec: AgentSpec, people: People, room: Room, me: str) -> AccessVerdict:
    """Decide whether the agent handles this event, and for which principal.

    The sender must be a person of the agent. A room in which that person is alone with the bot is
    open; any other room must be allowed. If the agent answers to mentions only, a text there must
    be for it. A stop needs no mention: nobody who wants work to end must be told how to ask. An
    encrypted event does not show whom it is for.
    """
    if event.kind not in _FOR_PEOPLE:
        return AccessVerdict(AccessReason.NOT_FOR_US)
    if event.sender == me or event.is_notice:
        return AccessVerdict(AccessReason.NO_PERSON)
    is_private = room.is_private(me, event.sender)
    if not is_private and event.room_id not in spec.matrix.allowed_rooms:
        return AccessVerdict(AccessReason.ROOM)
    principal = people(spec, event.sender)
    if principal is None:
        return AccessVerdict(AccessReason.STRANGER)
    if not is_private and event.is_message:
        is_ours = event.quoted is not None and event.quoted.is_ours
        is_meant = event.addressed or is_ours or event.is_stop
        if spec.group_mention_only and not is_meant:
            return AccessVerdict(AccessReason.NOT_ADDRESSED)
    return AccessVerdict(AccessReason.ALLOWED, principal)


def would_answer(
    event: RoomEvent, spec: AgentSpec, people: People, room: Room | None, me: str
) -> bool:
    """Whether a text that was not handled yet is for the agent, by what is known without a request.

    A text that refers to an event counts as addressed, and an unknown ``room`` as allowed.
    """
    if room is None:
        return True
    is_related = bool(event.reply_to or event.thread_id)  # to what we said, perhaps
    event = replace(event, addressed=event.addressed or is_related)
    return may(event, spec, people, room, me).allowed


def may_enter(event: RoomEvent, spec: AgentSpec, people: People) -> bool:
    """Whether to accept an invitation: from one of its people, or into one of its rooms."""
    return event.room_id in spec.matrix.allowed_rooms or people(spec, event.sender) is not None


def remedy(event: RoomEvent, reason: AccessReason, agent_name: str) -> str:
    """Return the text for the operator about a refused event; empty if none is needed."""
    allow = (
        f"to allow this person, add {event.sender} to matrix.allowed_users of {agent_name}, or to "
        "[people.NAME] matrix"
    )
    if event.kind is RoomEventKind.INVITE:
        return (
            f"{event.sender} invited {agent_name} to the Matrix room {event.room_id} and was "
            f"refused; {allow}, or add the room to matrix.allowed_rooms; then invite again"
        )
    if reason is AccessReason.STRANGER:
        return f"{event.sender} is not known to {agent_name} and got no answer; {allow}"
    if reason is AccessReason.ROOM:
        return (
            f"the Matrix room {event.room_id} is not one of {agent_name}, and others than "
            f"{event.sender} are in it; to allow it, add {event.room_id} to matrix.allowed_rooms "
            f"of {agent_name}"
        )
    return ""
