"""Who may do what: one rule for every kind of event. Pure.

The same function decides about texts, edits, files, presses and reactions, so there is no way
around it through a rarer kind.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from enum import StrEnum

from agentsup.channels.telegram.event import Event, EventKind
from agentsup.model.agent import AgentSpec
from agentsup.model.principal import Principal

__all__ = ["People", "Reason", "Verdict", "may", "named", "remedy"]

People = Callable[[AgentSpec, int], Principal | None]
"""The person behind a Telegram user id for this agent, or None for a stranger."""

_GROUPS = frozenset({"group", "supergroup"})
_FOR_PEOPLE = frozenset({EventKind.MESSAGE, EventKind.EDITED, EventKind.PRESS, EventKind.REACTION})
_WRITTEN = frozenset({EventKind.MESSAGE, EventKind.EDITED})
_NAME_CHARS = 64


class Reason(StrEnum):
    """Why an event is let through or not."""

    ALLOWED = "allowed"
    STRANGER = "stranger"
    GROUP = "group"
    """The group is not one of the agent's."""
    NOT_ADDRESSED = "not addressed"
    NO_PERSON = "no person"
    """A bot, a channel, an administrator without a name: nobody whose rights are known."""
    NOT_FOR_US = "not for us"


@dataclass(frozen=True, slots=True)
class Verdict:
    """``principal`` is set if, and only if, the event is allowed."""

    reason: Reason
    principal: Principal | None = None

    @property
    def allowed(self) -> bool:
        return self.principal is not None


def may(event: Event, spec: AgentSpec, people: People) -> Verdict:
    """Whether the agent listens to this event, and in whose name it then acts.

    A private chat is open to the agent's people. A group must be allowed, the person too, and
    where the agent answers to mentions only the text must be for it.
    """
    if event.kind not in _FOR_PEOPLE or event.chat_id is None:
        return Verdict(Reason.NOT_FOR_US)
    if event.user_id is None or event.is_bot or event.for_chat:
        return Verdict(Reason.NO_PERSON)
    if event.chat_type in _GROUPS:
        if event.chat_id not in spec.allowed_group_ids:
            return Verdict(Reason.GROUP)
    elif event.chat_type != "private" or event.chat_id != event.user_id:
        return Verdict(Reason.NO_PERSON)
    principal = people(spec, event.user_id)
    if principal is None:
        return Verdict(Reason.STRANGER)
    if event.chat_type in _GROUPS and event.kind in _WRITTEN:
        # A stop needs no name: whoever wants work to end must not be told how to ask for it.
        is_meant = event.addressed or event.is_stop or not spec.group_mention_only
        if event.misaddressed or not is_meant:
            return Verdict(Reason.NOT_ADDRESSED)
    return Verdict(Reason.ALLOWED, principal)


def named(principal: Principal, event: Event) -> Principal:
    """The person with the name that the platform shows, where no other is known, and the language.

    Both are for reading; rights hang on the subject.
    """
    if event.language:
        principal = replace(principal, language=event.language)
    shown = " ".join(event.user_name.split())[:_NAME_CHARS]
    if not shown or principal.name not in ("", principal.subject):
        return principal
    return replace(principal, name=shown)


def remedy(event: Event, verdict: Verdict, agent_name: str) -> str:
    """What an operator reads about an event that was refused; empty where nothing is amiss."""
    who = f"{event.user_name or 'somebody'} (Telegram id {event.user_id})"
    if verdict.reason is Reason.STRANGER:
        return (
            f"{who} is not known to {agent_name} and got no answer; to allow this person, add "
            f"{event.user_id} to allowed_user_ids of {agent_name}, or to [people.NAME] telegram"
        )
    if verdict.reason is Reason.GROUP:
        return (
            f"the group {event.chat_title!r} (id {event.chat_id}) is not one of {agent_name}; to "
            f"allow it, add {event.chat_id} to allowed_group_ids of {agent_name}"
        )
    return ""
