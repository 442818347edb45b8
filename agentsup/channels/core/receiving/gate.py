"""The decisions on an event: whether the agent accepts it, from whom, and what a stop covers. Pure."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import StrEnum

from agentsup.model.agent import MAIN
from agentsup.model.control import CommandInfo
from agentsup.model.principal import PersonRole, Principal

_NAME_CHARS = 64
_ENDING = re.compile(
    r"\s*[/!](stop|stop_all|interrupt)(?:@\S+)?(?:\s.*)?\Z", re.IGNORECASE | re.DOTALL
)


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


@dataclass(frozen=True, slots=True)
class StopScope:
    """The scope of a stop. ``bot_id`` empty: all bots; ``conversation`` empty: all chats."""

    bot_id: str = ""
    conversation: str = ""

    def covers(self, bot_id: str, conversation: str) -> bool:
        """Whether that conversation of that bot is in the scope."""
        return self.bot_id in ("", bot_id) and self.conversation in ("", conversation)


def is_stop(text: str) -> bool:
    """Whether the text is a command that ends running work."""
    return _ENDING.match(text) is not None


def scope_of(
    text: str,
    *,
    agent_name: str,
    bot_id: str,
    conversation: str,
    principal: Principal,
    offered: Sequence[CommandInfo],
) -> StopScope | None:
    """Return what ``text`` stops, or None if it is no stop or one that this person may not give.

    ``offered``: the commands of that agent's chat.
    """
    match = _ENDING.match(text)
    if match is None or principal.role < PersonRole.USER:
        return None
    name = match[1].casefold()
    if name == "interrupt":
        return None  # it ends the running turn, and waiting texts stay
    info = next((each for each in offered if each.name == name), None)
    if info is None or (info.operator and principal.role < PersonRole.OPERATOR):
        return None
    if name == "stop":
        return StopScope(bot_id, conversation)
    return StopScope() if agent_name == MAIN else StopScope(bot_id)
