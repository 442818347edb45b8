"""Other people's work as a person who is no operator sees it: its state, but none of its texts.

Pure decisions. A person's own conversations in the page are named after the person.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, TypeVar

from agentsup.api.documents.messages import EventDocument, MessageDocument
from agentsup.mailbox.messages import WEB, may_enter, own_conversation
from agentsup.model.errors import Forbidden
from agentsup.model.event import Event
from agentsup.model.message import Message
from agentsup.model.principal import Principal, PrincipalKind

M = TypeVar("M", bound=MessageDocument)
CHANNEL: Final = WEB
_HIDDEN: Final[Mapping[str, Any]] = {
    "text": "",
    "result_text": "",
    "error": "",
    "summary": "",
    "parts": [],
    "deliver_to": {},
    "waits_for": None,
}
"""The values that replace the texts of other people."""
_SEEN: Final = frozenset(
    {
        *("id", "seq", "agent", "agent_id", "session", "thread_id", "kind", "lane", "priority"),
        *("state", "outcome", "error_code", "sender", "sender_agent_id", "in_reply_to", "root_id"),
        *("path", "replay_of", "traceparent", "silent", "attempts", "crashes", "accepted_at"),
        *("started_at", "finished_at", "expires_at", "not_before", "position", "eta_s", "removed"),
    }
)
"""Fields that everybody sees: that the work exists, and its state. A field that is in neither list
is left out."""


def check_enter(person: Principal, channel: str, conversation: str) -> None:
    """Raise ``Forbidden`` unless this person may read and write in the conversation."""
    if not may_enter(person, channel, conversation):
        raise Forbidden(
            f"{channel}:{conversation} is somebody else's conversation; yours is "
            f"{CHANNEL}:{own_conversation(person)}",
            conversation=conversation,
        )


def check_sees(person: Principal, channel: str, conversation: str) -> None:
    """Raise ``Forbidden`` unless this person may read in the conversation.

    The error does not name the conversation: it comes from the store, not from the person.
    """
    if not may_enter(person, channel, conversation):
        raise Forbidden("this is of somebody else's conversation; an operator may see it")


def is_own(person: Principal, message: Message) -> bool:
    """Whether this person sent the message, or may see what everybody sent."""
    if person.is_operator:
        return True
    sender = message.principal
    return sender.kind is PrincipalKind.PERSON and sender.subject == person.subject


def check_own(person: Principal, message: Message) -> None:
    """Raise ``Forbidden`` unless this person sent the message or is an operator."""
    if not is_own(person, message):
        raise Forbidden(
            f"message {message.message_id} is not yours; an operator may do this",
            message_id=message.message_id,
        )


def shown(person: Principal, message: Message, document: M) -> M:
    """The document of ``message`` as this person may see it."""
    if is_own(person, message):
        return document
    members = document.members()
    seen = {name: value for name, value in members.items() if name in _SEEN}
    hidden = {name: value for name, value in _HIDDEN.items() if name in members}
    whose = {**document.principal, "subject": ""}
    return document.from_value(None, **seen, **hidden, principal=whose, private=True)


def shown_event(person: Principal, event: Event, document: EventDocument) -> EventDocument:
    """The document of ``event`` as this person may see it."""
    channel, _, conversation = event.conversation.partition(":")
    if may_enter(person, channel, conversation):
        return document
    return document.with_members(conversation="", data={})
