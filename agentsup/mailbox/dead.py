"""Dead letters: shown, put back, run anew, or dropped, always by a person."""

from __future__ import annotations

from dataclasses import replace

from agentsup.mailbox import attempts, ending
from agentsup.mailbox.accept import accept_tx
from agentsup.mailbox.draft import draft
from agentsup.mailbox.rows import message_of, need_message
from agentsup.mailbox.telling import tell
from agentsup.mailbox.values import Desk
from agentsup.model.errors import Conflict
from agentsup.model.event import EventType
from agentsup.model.ids import AgentId
from agentsup.model.message import (
    TERMINAL,
    Accepted,
    Message,
    NewMessage,
    State,
    check_transition,
)
from agentsup.model.principal import Principal
from agentsup.store.database import Reader, Tx

__all__ = ["drop_tx", "list_of", "replay_tx", "requeue_tx"]


def list_of(reader: Reader, *, limit: int = 100) -> list[Message]:
    """Dead letters, newest first."""
    rows = reader.all(
        "SELECT * FROM messages WHERE state = 'dead' ORDER BY seq DESC LIMIT ?", (limit,)
    )
    return [message_of(row) for row in rows]  # type: ignore[arg-type]  # Row is a mapping in all but name


def requeue_tx(desk: Desk, tx: Tx, message_id: str, by: Principal) -> None:
    """Try a dead letter again at its old place, with fresh attempts; finished calls stay finished.

    Raises ``NotFound`` or ``Conflict`` (not a dead letter).
    """
    message = _need_dead(tx, message_id)
    check_transition(message_id, message.state, State.QUEUED)
    tx.execute(
        "UPDATE messages SET state = 'queued', attempts = 0, crashes = 0, not_before = 0,"
        " finished_at = NULL, expires_at = NULL WHERE seq = ?",
        (message.seq,),
    )
    attempts.begin_anew_tx(tx, message_id, desk.clock.now_ms())
    facts = {"code": "requeued", "by": by.to_json()}
    tell(tx, EventType.MESSAGE_RETRY, message, desk.clock.now_ms(), facts)
    tx.touch(f"agent:{message.agent_id}")


def drop_tx(desk: Desk, tx: Tx, message_id: str, by: Principal) -> None:
    """Give a dead letter up for good. Raises ``NotFound`` or ``Conflict`` (not a dead letter)."""
    message = _need_dead(tx, message_id)
    ending.close_tx(
        tx,
        message,
        State.CANCELLED,
        at=desk.clock.now_ms(),
        code="dropped",
        text=f"dropped by {by.label}; it had failed: {message.error_text}",
    )


def replay_tx(desk: Desk, tx: Tx, message_id: str, by: Principal, key: str = "") -> Accepted:
    """Run an ended message once more as a new one with ``replay_of``; it counts as new work. The
    same ``key`` gives the same one.

    Nobody waits for it any more, so a waited answer goes to the asker's mailbox. Raises
    ``NotFound``, ``Conflict`` (it has not ended) and what accepting raises.
    """
    old = need_message(tx, message_id)
    if old.state not in TERMINAL:
        raise Conflict(
            f"message {message_id} is {old.state.value}; only one that has ended can be replayed",
            message_id=message_id,
            state=old.state.value,
        )
    new = NewMessage(
        agent_id=AgentId(old.agent_id),
        session_key=old.session_id,
        parts=old.parts,
        principal=old.principal,
        kind=old.kind,
        lane=old.lane,
        priority=old.priority,
        deliver_to=replace(old.deliver_to, waited=False),
        thread_id=old.thread_id,
        path=old.path,
        traceparent=old.traceparent,
        replay_of=old.replay_of or message_id,
        sender_agent_id=old.sender_agent_id,
        summary=f"replayed by {by.label}: {old.summary or old.text}"[:200],
        silent=old.silent,
        person=old.person,
        idempotency_key=key and f"replay:{message_id}:{key}",
    )
    return accept_tx(desk, tx, draft(desk, new))


def _need_dead(reader: Reader, message_id: str) -> Message:
    message = need_message(reader, message_id)
    if message.state is not State.DEAD:
        raise Conflict(
            f"message {message_id} is {message.state.value}, not a dead letter",
            message_id=message_id,
            state=message.state.value,
        )
    return message
