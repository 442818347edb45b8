"""An agent's reply to another agent's message."""

from __future__ import annotations

from dataclasses import replace

from agentsup.mailbox.delivery.notices import latest_conversation
from agentsup.mailbox.lifecycle.ending import leased_tx
from agentsup.mailbox.mail.bus import BusRequest
from agentsup.mailbox.messages.epoch import scopes_of
from agentsup.mailbox.messages.keys import key_owner, peer_key
from agentsup.mailbox.messages.rows import find_message, need_message
from agentsup.mailbox.messages.values import MailboxContext
from agentsup.mailbox.queue import idempotency
from agentsup.mailbox.queue.accept import accept_tx, check_root, epochs_of
from agentsup.mailbox.queue.draft import draft
from agentsup.model.errors import BadRequest, Conflict
from agentsup.model.ids import AgentId
from agentsup.model.message import (
    NOWHERE,
    OPEN,
    Accepted,
    DeliverTo,
    LaneName,
    Lease,
    Message,
    MessageKind,
    NewMessage,
    text_parts,
)
from agentsup.model.principal import Principal, PrincipalKind
from agentsup.model.trace import by_turn_of
from agentsup.store import Reader, Tx, name_of


def reply_tx(
    ctx: MailboxContext,
    tx: Tx,
    *,
    message_id: str,
    request: BusRequest,
    back_to: str,
    lease: Lease | None,
) -> Accepted:
    """Store the reply to a message in the mailbox of the agent that sent it.

    While the message is open, the reply replaces its turn's answer. Raises ``Conflict``,
    ``DepthExceeded`` and ``LeaseLost`` (the replying turn was stopped), but never ``Overloaded``: a
    reply must always be accepted.
    """
    message = need_message(tx, message_id)
    name = name_of(tx, message.agent_id)
    principal = Principal(PrincipalKind.AGENT, message.agent_id, name)
    owner, key = key_owner("reply", principal, message.person), request.idempotency_key
    digest = idempotency.digest_of(message_id, request.text)
    known = idempotency.known(tx, owner, key, digest)
    if known is not None:
        stored = need_message(tx, known)
        return Accepted(stored.message_id, stored.session_id, stored.state, duplicate=True)
    if lease is not None:
        leased_tx(ctx, tx, lease)
    _check_open(tx, message)
    check_root(ctx, tx, message.root_id)
    to = _way_back(ctx, tx, message, back_to)
    scopes = scopes_of(back_to, to.session_id)
    new = NewMessage(
        agent_id=AgentId(back_to),
        session_key=to.session_id or peer_key(name, message.person),
        parts=text_parts(request.text),
        principal=principal,
        kind=MessageKind.REPLY,
        lane=LaneName.PEER,
        priority=request.priority,
        deliver_to=replace(to.then, waited=False) if to.then else NOWHERE,
        thread_id=message.thread_id,
        in_reply_to=message_id,
        root_id=message.root_id,
        path=_path_back(message.path, back_to),
        traceparent=request.traceparent or by_turn_of(message),
        sender_agent_id=message.agent_id,
        silent=True,
        epochs={**epochs_of(ctx, tx, scopes), **message.epochs},
    )
    accepted = accept_tx(ctx, tx, draft(ctx, new))
    if message.state in OPEN and message.deliver_to.kind == "mailbox":
        # Marked as waited for, so that the end of its turn makes no second reply.
        tx.execute(
            "UPDATE messages SET deliver_to = json_set(deliver_to, '$.waited', json('true'))"
            " WHERE seq = ?",
            (message.seq,),
        )
    idempotency.enter_tx(tx, owner, key, accepted.message_id, digest, at=ctx.clock.now_ms())
    return accepted


def _check_open(reader: Reader, message: Message) -> None:
    """Refuse a reply to an event, to background work, or to a turn whose end is waited for."""
    if message.kind is MessageKind.TASK:
        raise BadRequest(
            f"{message.message_id} is background work; its result goes back by itself",
            field="message_id",
        )
    if message.kind is MessageKind.EVENT:
        raise BadRequest(
            f"{message.message_id} tells of what happened and wants no answer; write to "
            f"{message.principal.label} instead",
            field="message_id",
        )
    if message.state not in OPEN:
        return
    is_waited_for = reader.scalar(
        "SELECT 1 FROM waits WHERE target_id = ? LIMIT 1", (message.message_id,)
    )
    if is_waited_for or message.deliver_to.kind in ("question", "http"):
        raise Conflict(
            f"{message.principal.label} waits for the end of the turn on {message.message_id}; "
            "say the answer there",
            message_id=message.message_id,
        )


def _way_back(ctx: MailboxContext, reader: Reader, message: Message, back_to: str) -> DeliverTo:
    """The target of the reply: the sender's session, and then the target of its own answer."""
    to = message.deliver_to
    if to.kind == "mailbox" and to.agent_id == back_to:
        if to.then is None and not to.session_id:
            channel, conversation = latest_conversation(
                reader, back_to, message.person, ctx.role_now
            )
            then = DeliverTo("chat", agent_id=back_to, channel=channel, conversation=conversation)
            return replace(to, then=then)
        return to
    asked = find_message(reader, message.in_reply_to) if message.in_reply_to else None
    if asked is not None and asked.agent_id == back_to:
        return DeliverTo(
            "mailbox", agent_id=back_to, session_id=asked.session_id, then=asked.deliver_to
        )
    return DeliverTo("mailbox", agent_id=back_to)


def _path_back(path: tuple[str, ...], back_to: str) -> tuple[str, ...]:
    """The open requests above the agent that gets the reply."""
    return path[: path.index(back_to)] if back_to in path else path
