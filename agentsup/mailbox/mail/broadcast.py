"""Broadcasts: one copy for each addressee, stored together under one id or not at all."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from agentsup.mailbox.mail.bus import BusRequest
from agentsup.mailbox.mail.directory import DirectoryEntry
from agentsup.mailbox.mail.values import SHOWN, Broadcast, SentMail
from agentsup.mailbox.messages.epoch import scopes_of
from agentsup.mailbox.messages.keys import peer_key
from agentsup.mailbox.messages.values import MailboxContext
from agentsup.mailbox.queue import idempotency
from agentsup.mailbox.queue.accept import accept_tx, epochs_of
from agentsup.mailbox.queue.draft import draft
from agentsup.model.event import EventType
from agentsup.model.ids import AgentId
from agentsup.model.message import NOWHERE, LaneName, Message, MessageKind, NewMessage, text_parts
from agentsup.model.principal import Principal
from agentsup.model.trace import by_turn_of
from agentsup.store import Reader, Tx, append, name_of


def copy_of(
    request: BusRequest, principal: Principal, parent: Message | None, person: str = ""
) -> NewMessage:
    """One copy, without its addressee and thread. ``person`` is used if there is no ``parent``.

    Nobody waits for an answer to it, so only its sender is on its path.
    """
    sender_id = principal.subject if principal.kind == "agent" else ""
    person = parent.person if parent else person or principal.person
    return NewMessage(
        agent_id=AgentId(""),
        session_key=peer_key(principal.label, person),
        parts=text_parts(request.text),
        principal=principal,
        kind=MessageKind.BROADCAST,
        lane=LaneName.PEER,
        priority=request.priority,
        deliver_to=NOWHERE,
        in_reply_to=parent.message_id if parent else "",
        root_id=parent.root_id if parent else "",
        path=(sender_id,) if sender_id else (),
        traceparent=request.traceparent or (by_turn_of(parent) if parent else ""),
        sender_agent_id=sender_id,
        summary=request.summary,
        silent=request.silent,
        person=person,
    )


def copies_tx(
    ctx: MailboxContext,
    tx: Tx,
    template: NewMessage,
    targets: Sequence[DirectoryEntry],
    key: tuple[str, str, str],
    team: str,
) -> Broadcast:
    """Store the copies; ``key`` is owner, key and digest for the ledger.

    Raises what accepting any of them raises; the transaction of all is rolled back then.
    """
    at = ctx.clock.now_ms()
    broadcast_id = ctx.entropy.new_id("bc")
    epochs: dict[str, int] = {}
    if template.sender_agent_id:
        epochs = epochs_of(ctx, tx, scopes_of(template.sender_agent_id, ""))
    copies = []
    for target in targets:
        new = replace(template, agent_id=target.agent_id, thread_id=broadcast_id, epochs=epochs)
        accepted = accept_tx(ctx, tx, draft(ctx, new))
        copies.append(SentMail.of(accepted, target.agent_id, target.name, broadcast_id))
    owner, name, digest = key
    idempotency.enter_tx(tx, owner, name, broadcast_id, digest, at=at)
    append(
        tx,
        EventType.ROUTE_CHOSEN,
        at=at,
        agent_id=template.sender_agent_id,
        message_id=template.in_reply_to or copies[0].message_id,
        data={
            "deed": "broadcast",
            "broadcast_id": broadcast_id,
            "team": team,
            "by": template.principal.label,
            "to": [copy.agent for copy in copies][:SHOWN],
            "considered": len(copies),
            "reason": f"everyone of team {team} but the sender" if team else "named",
        },
    )
    return Broadcast(broadcast_id, tuple(copies))


def known_broadcast(reader: Reader, owner: str, key: str, digest: str) -> Broadcast | None:
    """The earlier broadcast under the key, or None, without copies that retention has removed."""
    known = idempotency.known(reader, owner, key, digest)
    if known is None:
        return None
    rows = reader.all(
        "SELECT message_id, agent_id, session_id FROM messages"
        " WHERE thread_id = ? AND thread_id <> '' AND kind = 'broadcast' ORDER BY seq",
        (known,),
    )
    copies = tuple(
        SentMail(row[0], row[1], name_of(reader, row[1]), row[2], known, duplicate=True)
        for row in rows
    )
    return Broadcast(known, copies, duplicate=True)
