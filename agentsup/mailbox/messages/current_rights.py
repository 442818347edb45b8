"""The rights of work that starts later than it was requested: one decision for every start.

Each message and task records who asked and for whom (``Principal.person``). Work that starts later
(queued, retried, resumed, replayed, delegated or scheduled) has the lesser of the rights at the
request and the rights now. Without any rights it does not start, and the reason is reported (P7).
"""

from __future__ import annotations

from dataclasses import replace

from agentsup.catalogue import words
from agentsup.mailbox.messages.keys import AGENTS, LOCAL, chat_of_key, is_apart_for, may_enter
from agentsup.mailbox.messages.rows import principal_of
from agentsup.mailbox.messages.values import RoleNow
from agentsup.model.errors import RightsLost
from agentsup.model.message import Message, MessageKind
from agentsup.model.principal import (
    OPERATORS,
    PERSON_MARK,
    PersonRole,
    Principal,
    PrincipalKind,
    is_one_persons,
    name_of_person,
)
from agentsup.store import Reader

_PRIVATE_RUNS = ("task:", "run:", "ses_")
"""Keys of sessions that only background work uses begin with these."""


def refusal_text(lost: RightsLost, language: str = "") -> str:
    """The text that tells a person why the work was refused, in ``language``."""
    return words(language)(f"rights.{lost.facts['reason']}", who=lost.facts["who"])


def _rights_lost(reason: str, who: str) -> RightsLost:
    return RightsLost(words()(f"rights.{reason}", who=who), reason=reason, who=who)


# -- the decision ----------------------------------------------------------------------------------


def _lesser_role(subject: str, who: str, stored: PersonRole, role_now: RoleNow) -> PersonRole:
    now = role_now(subject)
    if now is None:
        raise _rights_lost("removed", who)
    if now < PersonRole.USER:
        raise _rights_lost("viewer", who)
    return min(stored, now)


def person_now(person: str, asker: str | None, role_now: RoleNow) -> str:
    """The value of ``Principal.person`` for which work that was requested for ``person`` is done
    now.

    That is ``person`` itself. Only work of the operators changes: if the operator who asked is none
    any more, it becomes that person's own work. ``asker`` is the subject of the operator who asked,
    empty for one without a name (the console) and None if it is not recorded. Raises
    ``RightsLost``.
    """
    if is_one_persons(person):
        subject = person.removeprefix(PERSON_MARK)
        _lesser_role(subject, name_of_person(person), PersonRole.USER, role_now)
        return person
    if person != OPERATORS or asker == "":
        return person
    if asker is None:
        raise _rights_lost("unknown", "")
    role = _lesser_role(asker, asker, PersonRole.OPERATOR, role_now)
    return person if role >= PersonRole.OPERATOR else f"{PERSON_MARK}{asker}"


def is_still_operators(asker: str | None, role_now: RoleNow) -> bool:
    """Whether something that ``asker`` did as an operator still counts as the operators'. ``asker``
    is as in ``person_now``."""
    try:
        return person_now(OPERATORS, asker, role_now) == OPERATORS
    except RightsLost:
        return False


def principal_now(stored: Principal, role_now: RoleNow) -> Principal:
    """A person with the lesser of the stored and the present role; another principal unchanged.

    Raises ``RightsLost``.
    """
    if stored.kind is not PrincipalKind.PERSON:
        return stored
    role = _lesser_role(stored.subject, stored.label, stored.role, role_now)
    return stored if role == stored.role else replace(stored, role=role)


def principal_of_owner(owner: Principal, asked_by: str, role_now: RoleNow) -> Principal:
    """The principal that does the work of a task now, made from the task's owner.

    ``asked_by`` is the person whose message led to the task, if an agent owns it. It is not used if
    the owner's ``asker`` is None (unknown). Raises ``RightsLost``.
    """
    if owner.kind not in AGENTS:
        return principal_now(owner, role_now)
    asker = None if owner.asker is None else owner.asker or asked_by
    behalf = person_now(owner.behalf, asker, role_now)
    return replace(owner, behalf=behalf, asker=asker)


# -- messages --------------------------------------------------------------------------------------


def asker_of(reader: Reader, principal: Principal, message_id: str, root_id: str) -> str | None:
    """The argument ``asker`` of ``person_now`` for a message of the operators' work: the subject of
    the operator who sent the root message."""
    if root_id and root_id != message_id:
        root = reader.scalar("SELECT principal FROM messages WHERE message_id = ?", (root_id,))
        if root is None:
            return principal.asker or None
        principal = principal_of(root)
    return principal.asker_name


def principal_for_new_root(reader: Reader, message: Message) -> Principal:
    """The principal for a new message that repeats ``message`` without its root. It must record by
    itself which operator asked (``asker``; None if that is not recorded any more)."""
    if message.person != OPERATORS or message.principal.kind not in AGENTS:
        return message.principal
    asker = asker_of(reader, message.principal, message.message_id, message.root_id)
    return replace(message.principal, asker=asker)


def acting_for_message(
    reader: Reader,
    principal: Principal,
    person: str,
    message_id: str,
    root_id: str,
    role_now: RoleNow,
) -> tuple[Principal, str]:
    """The principal that works on a stored message now, and the ``person`` for whom.

    Raises ``RightsLost``.
    """
    acting = principal_now(principal, role_now)
    if not person:
        return acting, person
    asker = asker_of(reader, principal, message_id, root_id) if person == OPERATORS else ""
    now = person_now(person, asker, role_now)
    if now != person and acting.behalf == person:
        acting = replace(acting, behalf=now)
    return acting, now


def check_session(person: str, message: Message, key: str) -> None:
    """Raise ``RightsLost`` unless ``person`` may continue this work in its session.

    The work belonged to the operators when it was requested. ``key`` is the key of its session.
    Allowed are a session that contains only this work, and a conversation of that person. Other
    sessions of the operators are refused, because they contain what all operators said.
    """
    to = message.deliver_to
    if message.kind is MessageKind.TASK and key.startswith(_PRIVATE_RUNS):
        return
    if is_apart_for(key, person):
        return
    channel, conversation = chat_of_key(key)
    if to.kind == "chat" and (channel, conversation) == (to.channel, to.conversation):
        subject = person.removeprefix(PERSON_MARK)
        who = Principal(PrincipalKind.PERSON, subject, subject, PersonRole.USER)
        if channel not in LOCAL or may_enter(who, channel, conversation):
            return
    raise _rights_lost("shared", name_of_person(person))
