"""Access: one rule decides which events of whom an agent accepts. Pure.

The same function decides about texts, edits, files, presses and reactions, so no kind of event
bypasses it (P7).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from agentsup.channels.core.receiving.gate import AccessReason, AccessVerdict, with_name
from agentsup.channels.telegram.event import UpdateEvent, UpdateKind
from agentsup.model.agent import AgentSpec
from agentsup.model.principal import Principal

People = Callable[[AgentSpec, int], Principal | None]
"""The person behind a Telegram user id for this agent, or None for a stranger."""

_GROUPS = frozenset({"group", "supergroup"})
_FOR_PEOPLE = frozenset(
    {UpdateKind.MESSAGE, UpdateKind.EDITED, UpdateKind.PRESS, UpdateKind.REACTION}
)


def may(event: UpdateEvent, spec: AgentSpec, people: People) -> AccessVerdict:
    """Decide whether the agent accepts this event, and as which principal.

    In a private chat the person must be allowed. In a group, both the group and the person must
    be, and with ``group_mention_only`` the text must be addressed to the agent.
    """
    if event.kind not in _FOR_PEOPLE or event.chat_id is None:
        return AccessVerdict(AccessReason.NOT_FOR_US)
    if event.user_id is None or event.is_bot or event.for_chat:
        return AccessVerdict(AccessReason.NO_PERSON)
    if event.chat_type in _GROUPS:
        if event.chat_id not in spec.allowed_group_ids:
            return AccessVerdict(AccessReason.GROUP)
    elif event.chat_type != "private" or event.chat_id != event.user_id:
        return AccessVerdict(AccessReason.NO_PERSON)
    principal = people(spec, event.user_id)
    if principal is None:
        return AccessVerdict(AccessReason.STRANGER)
    if event.chat_type in _GROUPS and event.is_message:
        # A stop needs no mention: it must work at the first try.
        is_meant = event.addressed or event.is_stop or not spec.group_mention_only
        if event.misaddressed or not is_meant:
            return AccessVerdict(AccessReason.NOT_ADDRESSED)
    return AccessVerdict(AccessReason.ALLOWED, principal)


def named(principal: Principal, event: UpdateEvent) -> Principal:
    """Add the person's language and, if no name is known, the name that the platform shows.

    Both are only shown; rights depend on the subject.
    """
    if event.language:
        principal = replace(principal, language=event.language)
    return with_name(principal, event.user_name)


def remedy(event: UpdateEvent, verdict: AccessVerdict, spec: AgentSpec) -> str:
    """Return how an operator can allow a refused event; empty if there is nothing to do."""
    agent_name = spec.name
    who = f"{event.user_name or 'somebody'} (Telegram id {event.user_id})"
    if verdict.reason is AccessReason.STRANGER:
        return (
            f"{who} is not known to {agent_name} and got no answer; to allow this person, add "
            f"{event.user_id} to allowed_user_ids of {agent_name}, or to [people.NAME] telegram"
        )
    if verdict.reason is AccessReason.GROUP:
        return (
            f"the group {event.chat_title!r} (id {event.chat_id}) is not one of {agent_name}; to "
            f"allow it, add {event.chat_id} to allowed_group_ids of {agent_name}"
        )
    is_in_group = event.kind is UpdateKind.MESSAGE and event.chat_id in spec.allowed_group_ids
    if verdict.reason is AccessReason.NO_PERSON and is_in_group and event.is_nameless:
        return (
            f"somebody writes in the name of a chat in the group {event.chat_title!r} (id "
            f"{event.chat_id}) and gets no answer, as nobody can tell who it is; to be allowed, an "
            'administrator must switch off "Remain anonymous", and others write as themselves'
        )
    return ""
