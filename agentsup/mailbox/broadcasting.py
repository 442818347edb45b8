"""Broadcasts: one copy for each addressee, stored together under one id or not at all."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from agentsup.mailbox import keys
from agentsup.mailbox.accept import accept_tx, epochs_of
from agentsup.mailbox.bus import BusRequest, DirectoryEntry
from agentsup.mailbox.draft import draft
from agentsup.mailbox.epoch import scopes_of
from agentsup.mailbox.letters import SHOWN, Broadcast, Sent
from agentsup.mailbox.naming import peer_key
from agentsup.mailbox.values import Desk
from agentsup.model.event import EventType
from agentsup.model.ids import AgentId
from agentsup.model.message import NOWHERE, Kind, Lane, Message, NewMessage, text_parts
from agentsup.model.principal import Principal
from agentsup.model.trace import by_turn_of
from agentsup.store.database import Reader, Tx
from agentsup.store.events import append

__all__ = ["copies_tx", "copy_of", "known_broadcast"]


def copy_of(
    request: BusRequest, principal: Principal, parent: Message | None, person: str = ""
) -> NewMessage:
    """One copy, without its addressee and thread. ``person`` is whose work it is without a turn.

    No turn is an answer to it, so nobody waits and nobody is on its path but its sender.
    """
    sender_id = principal.subject if principal.kind == "agent" else ""
    person = parent.person if parent else person or principal.person
    return NewMessage(
        agent_id=AgentId(""),
        session_key=peer_key(principal.label, person),
        parts=text_parts(request.text),
        principal=principal,
        kind=Kind.BROADCAST,
        lane=Lane.PEER,
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
    desk: Desk,
    tx: Tx,
    template: NewMessage,
    targets: Sequence[DirectoryEntry],
    key: tuple[str, str, str],
    team: str,
) -> Broadcast:
    """Store the copies; ``key`` is owner, key and digest for the ledger. Raises what accepting any
    of them raises, and the transaction of all is undone."""
    at = desk.clock.now_ms()
    broadcast_id = desk.entropy.new_id("bc")
    epochs: dict[str, int] = {}
    if template.sender_agent_id:
        epochs = epochs_of(desk, tx, scopes_of(template.sender_agent_id, ""))
    copies = []
    for target in targets:
        new = replace(template, agent_id=target.agent_id, thread_id=broadcast_id, epochs=epochs)
        accepted = accept_tx(desk, tx, draft(desk, new))
        copies.append(Sent.of(accepted, target.agent_id, target.name, broadcast_id))
    owner, name, digest = key
    keys.enter_tx(tx, owner, name, broadcast_id, digest, at=at)
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
    """What an earlier broadcast under the key has stored, or None. Copies that retention removed
    are left out."""
    known = keys.known(reader, owner, key, digest)
    if known is None:
        return None
    rows = reader.all(
        "SELECT m.message_id, m.agent_id, coalesce(a.name, m.agent_id), m.session_id"
        " FROM messages m LEFT JOIN agents a ON a.agent_id = m.agent_id"
        " WHERE m.thread_id = ? AND m.thread_id <> '' AND m.kind = 'broadcast' ORDER BY m.seq",
        (known,),
    )
    copies = tuple(Sent(row[0], row[1], row[2], row[3], known, duplicate=True) for row in rows)
    return Broadcast(known, copies, duplicate=True)
