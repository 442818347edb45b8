"""Records of an accepted message besides its row: event, conversation, notice."""

from __future__ import annotations

from agentsup.mailbox.delivery.notices import latest_conversation, notify_tx, preview
from agentsup.mailbox.messages import keys
from agentsup.mailbox.messages.values import MailboxContext
from agentsup.mailbox.queue.draft import PreparedMessage
from agentsup.model.event import EventType
from agentsup.model.message import MessageKind, NewMessage, text_of
from agentsup.model.principal import OPERATORS, PrincipalKind
from agentsup.store import Tx, append

REQUESTS = frozenset({MessageKind.CHAT, MessageKind.TASK, MessageKind.BROADCAST})
"""Kinds that ask for work and are bounded; replies and events must always be accepted."""

_VISIT_MS = 1_000
"""The shortest time between two updates of a conversation's row."""


def tell_tx(
    ctx: MailboxContext,
    tx: Tx,
    ready: PreparedMessage,
    session_id: str,
    at: int,
    last_at: int | None,
    person: str,
) -> None:
    """Write the event, the conversation of a chat message, and the notice of others' requests."""
    new = ready.new
    to, is_said = new.deliver_to, new.kind is MessageKind.CHAT and new.deliver_to.kind == "chat"
    # Of what is said in a chat, one event reports the acceptance and the text.
    append(
        tx,
        EventType.CHAT_IN if is_said else EventType.MESSAGE_ACCEPTED,
        at=at,
        agent_id=new.agent_id,
        session_id=session_id,
        message_id=ready.message_id,
        conversation=f"{to.channel}:{to.conversation}" if to.kind == "chat" else "",
        data=ready.facts,
    )
    if is_said:
        _touch_conversation_tx(tx, new, at, last_at, person)
    elif _is_shown(new):
        about = preview(new.summary or text_of(new.parts))
        notify_tx(
            tx,
            message_id=ready.message_id,
            agent_id=new.agent_id,
            session_id=session_id,
            text=f"{new.principal.label} asks: {about}",
            at=at,
            address=latest_conversation(tx, new.agent_id, person, ctx.role_now),
            facts={"from": new.principal.label, "message_id": ready.message_id},
        )


def _is_shown(new: NewMessage) -> bool:
    """Whether people get a notice of it: a request of others that doesn't come from a chat."""
    return (
        new.kind in REQUESTS
        and new.deliver_to.kind != "chat"
        and not new.silent
        and new.principal.kind is not PrincipalKind.SYSTEM
    )


def _touch_conversation_tx(
    tx: Tx, new: NewMessage, at: int, last_at: int | None, person: str
) -> None:
    """Update the conversation of a chat message (time, speaker, person), at most once a second.

    The conversation belongs to the one person below operator who speaks there, else to the
    operators. A person whose role changes still counts as one person.
    """
    if last_at is not None and 0 <= at - last_at < _VISIT_MS:
        return
    to, own = new.deliver_to, keys.below_operator(new.principal)
    tx.execute(
        "INSERT INTO conversations"
        " (agent_id, channel, conversation, first_at, last_at, person, speaker)"
        " VALUES (?, ?, ?, ?, ?, ?, ?) ON CONFLICT DO UPDATE SET last_at = excluded.last_at,"
        " speaker = coalesce(excluded.speaker, speaker),"
        " person = CASE WHEN excluded.person = '' THEN person"
        " WHEN person IN ('', ?, ?, excluded.person) THEN excluded.person"
        " WHEN excluded.person = ? THEN person ELSE ? END",
        (
            *(new.agent_id, to.channel, to.conversation, at, at, person),
            keys.speaker_of(new.principal),
            *(OPERATORS, own, OPERATORS, keys.SEVERAL),
        ),
    )
