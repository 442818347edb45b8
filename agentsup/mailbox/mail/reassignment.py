"""Giving a message to another agent, so that messages of a removed agent are not lost.

The old row ends and the new one begins in one transaction, so that one of the two exists after a
crash, and the asker gets one answer.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from agentsup.mailbox.lifecycle import closing
from agentsup.mailbox.mail.assignment import known_sent
from agentsup.mailbox.mail.directory import DirectoryEntry
from agentsup.mailbox.mail.values import SentMail
from agentsup.mailbox.messages.rows import need_message
from agentsup.mailbox.messages.values import MailboxContext, MessageEnd
from agentsup.mailbox.queue import idempotency
from agentsup.mailbox.queue.accept import accept_tx
from agentsup.mailbox.queue.draft import draft
from agentsup.model.errors import Conflict
from agentsup.model.message import DeliverTo, Message, MessageKind, MessageState, NewMessage
from agentsup.model.principal import Principal
from agentsup.store import Reader, Tx, agents

REASSIGNED = "reassigned"
"""The code with which the old message ends."""
_MOVABLE = frozenset({MessageState.QUEUED, MessageState.PARKED, MessageState.DEAD})


def reassign_tx(
    ctx: MailboxContext, tx: Tx, message_id: str, target: DirectoryEntry, by: Principal
) -> SentMail:
    """Give a message to ``target``; a repeated request gives it only once.

    Raises ``NotFound``, ``Conflict`` and what accepting the new message raises.
    """
    key = ("reassign", message_id, idempotency.digest_of(target.agent_id))
    old = need_message(tx, message_id)
    given_as = _given_before(tx, key, old, target)
    if given_as is not None:
        return replace(known_sent(tx, given_as), agent=target.name)
    _check_movable(ctx, tx, old, target)
    at = ctx.clock.now_ms()
    is_removed = agents.is_removed(tx, old.agent_id)
    new = _moved(tx, old, target, is_removed=is_removed)
    if old.expires_at is not None:  # it is stored by the steady clock; NewMessage has wall time
        new = replace(new, expires_at=old.expires_at + ctx.steady.step_ms())
    text = f"given to {target.name} by {by.label}; its answer comes from there"
    end = MessageEnd(MessageState.CANCELLED, REASSIGNED, text)
    closing.finish_tx(ctx, tx, old, end, at=at, to=target.name, by=by.to_json())
    accepted = accept_tx(ctx, tx, draft(ctx, new))
    # If the message puts a question to the agent, it is put to the new one.
    tx.execute(
        "UPDATE questions SET put_as = ? WHERE question_id = ? AND put_as = ?",
        (accepted.message_id, old.deliver_to.question_id, message_id),
    )
    owner, name, digest = key
    idempotency.enter_tx(tx, owner, name, accepted.message_id, digest, at=at)
    return SentMail.of(accepted, target.agent_id, target.name, old.thread_id or old.root_id)


def _given_before(
    reader: Reader, key: tuple[str, str, str], old: Message, target: DirectoryEntry
) -> str | None:
    try:
        return idempotency.known(reader, *key)
    except Conflict as error:
        raise Conflict(
            f"message {old.message_id} was given to another agent already, as "
            f"{error.facts['message_id']}; {target.name} can be given that one",
            message_id=error.facts["message_id"],
        ) from None


def _check_movable(
    ctx: MailboxContext, reader: Reader, old: Message, target: DirectoryEntry
) -> None:
    if old.kind is MessageKind.TASK:
        raise Conflict(
            f"message {old.message_id} is the run of a task; resume or create the task instead",
            message_id=old.message_id,
        )
    if old.agent_id == target.agent_id:
        raise Conflict(
            f"message {old.message_id} is {target.name}'s already", message_id=old.message_id
        )
    is_void = old.state is MessageState.LEASED and bool(
        reader.scalar(
            "SELECT 1 FROM messages WHERE seq = ? AND lease_boot <> ?", (old.seq, ctx.boot_id)
        )
    )
    if old.state not in _MOVABLE and not is_void:
        raise Conflict(
            f"message {old.message_id} is {old.state.value}; only one that waits or is dead can be "
            "given to another agent",
            message_id=old.message_id,
            state=old.state.value,
        )


def _moved(reader: Reader, old: Message, target: DirectoryEntry, *, is_removed: bool) -> NewMessage:
    """The same request for another agent, in that agent's session of the same key."""
    row: Any = reader.one("SELECT key FROM sessions WHERE session_id = ?", (old.session_id,))
    key = row["key"] if row is not None else f"reassigned:{old.session_id}"
    return replace(
        old.renewed(key),
        agent_id=target.agent_id,
        deliver_to=_answer_of(old, target, is_removed=is_removed),
    )


def _answer_of(old: Message, target: DirectoryEntry, *, is_removed: bool) -> DeliverTo:
    """The old target, but nobody waits for it any more, so that a reply message follows.

    If it was a chat with the removed agent itself, the new agent's bot answers, because no other
    can.
    """
    to = replace(old.deliver_to, waited=False)
    if is_removed and to.kind == "chat" and (to.agent_id or old.agent_id) == old.agent_id:
        return replace(to, agent_id=target.agent_id)
    return to
