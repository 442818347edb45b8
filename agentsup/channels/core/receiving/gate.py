"""The decision whether an agent accepts an event, and as which principal. Pure."""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import StrEnum

from agentsup.model.principal import Principal

_NAME_CHARS = 64


class AccessReason(StrEnum):
    """Why an event is admitted or refused. Stored with what is skipped."""

    ALLOWED = "allowed"
    STRANGER = "stranger"
    GROUP = "group"
    """The Telegram group is not one of the agent's."""
    ROOM = "room"
    """The Matrix room is not one of the agent's, and others are in it."""
    NOT_ADDRESSED = "not addressed"
    NO_PERSON = "no person"
    """The sender is a program, a channel or an anonymous administrator: its rights are unknown."""
    NOT_FOR_US = "not for us"


@dataclass(frozen=True, slots=True)
class AccessVerdict:
    """The decision on an event; ``principal`` is set if, and only if, it is allowed."""

    reason: AccessReason
    principal: Principal | None = None

    @property
    def allowed(self) -> bool:
        return self.principal is not None


def with_name(principal: Principal, shown: str) -> Principal:
    """Return the principal with the platform's display name ``shown``, if it has no other name.

    The name is for display; rights depend on the subject.
    """
    shown = " ".join(shown.split())[:_NAME_CHARS]
    if not shown or principal.name not in ("", principal.subject):
        return principal
    return replace(principal, name=shown)
