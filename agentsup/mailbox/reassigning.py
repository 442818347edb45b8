"""Giving a message to another agent: what waits for an agent that was removed need not be lost.

The old row ends and the new one begins in one transaction, so that a crash leaves one of the two,
and whoever asked gets one answer.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from agentsup.mailbox import ending, keys
from agentsup.mailbox.accept import accept_tx
from agentsup.mailbox.bus import DirectoryEntry
from agentsup.mailbox.draft import draft
from agentsup.mailbox.letters import Sent
from agentsup.mailbox.rows import need_message
from agentsup.mailbox.values import Desk
from agentsup.model.errors import Conflict
from agentsup.model.message import DeliverTo, Kind, Message, NewMessage, State
from agentsup.model.principal import Principal
from agentsup.store.database import Reader, Tx

__all__ = ["REASSIGNED", "reassign_tx"]

REASSIGNED = "reassigned"
"""The code with which the old message ends."""
_MOVABLE = frozenset({State.QUEUED, State.PARKED, State.DEAD})


def reassign_tx(desk: Desk, tx: Tx, message_id: str, target: DirectoryEntry, by: Principal) -> Sent:
    """Let ``target`` do what another agent was to do; asked twice, it is done once.

    Raises ``NotFound``, ``Conflict`` and what accepting the new message raises.
    """
    key = ("reassign", message_id, keys.digest_of(target.agent_id))
    old = need_message(tx, message_id)
    given_as = _given_before(tx, key, old, target)
    if given_as is not None:
        known = need_message(tx, given_as)
        return Sent(
            given_as,
            target.agent_id,
            target.name,
            known.session_id,
            known.thread_id or known.root_id,
            duplicate=True,
        )
    _check_movable(desk, tx, old, target)
    at = desk.clock.now_ms()
    is_removed = _is_removed(tx, old.agent_id)
    new = _moved(tx, old, target, is_removed=is_removed)
    if old.expires_at is not None:  # stored by the steady clock, told by the wall
        new = replace(new, expires_at=old.expires_at + desk.steady.step_ms())
    ending.close_tx(
        tx,
        old,
        State.CANCELLED,
        at=at,
        code=REASSIGNED,
        text=f"given to {target.name} by {by.label}; its answer comes from there",
        data={"to": target.name, "by": by.to_json()},
    )
    accepted = accept_tx(desk, tx, draft(desk, new))
    # A question put to the one is put to the other.
    tx.execute(
        "UPDATE questions SET put_as = ? WHERE question_id = ? AND put_as = ?",
        (accepted.message_id, old.deliver_to.question_id, message_id),
    )
    owner, name, digest = key
    keys.enter_tx(tx, owner, name, accepted.message_id, digest, at=at)
    return Sent.of(accepted, target.agent_id, target.name, old.thread_id or old.root_id)


def _given_before(
    reader: Reader, key: tuple[str, str, str], old: Message, target: DirectoryEntry
) -> str | None:
    try:
        return keys.known(reader, *key)
    except Conflict as error:
        raise Conflict(
            f"message {old.message_id} was given to another agent already, as "
            f"{error.facts['message_id']}; {target.name} can be given that one",
            message_id=error.facts["message_id"],
        ) from None


def _check_movable(desk: Desk, reader: Reader, old: Message, target: DirectoryEntry) -> None:
    if old.kind is Kind.TASK:
        raise Conflict(
            f"message {old.message_id} is the run of a task; resume or create the task instead",
            message_id=old.message_id,
        )
    if old.agent_id == target.agent_id:
        raise Conflict(
            f"message {old.message_id} is {target.name}'s already", message_id=old.message_id
        )
    is_void = old.state is State.LEASED and bool(
        reader.scalar(
            "SELECT 1 FROM messages WHERE seq = ? AND lease_boot <> ?", (old.seq, desk.boot_id)
        )
    )
    if old.state not in _MOVABLE and not is_void:
        raise Conflict(
            f"message {old.message_id} is {old.state.value}; only one that waits or is dead can be "
            "given to another agent",
            message_id=old.message_id,
            state=old.state.value,
        )


def _is_removed(reader: Reader, agent_id: str) -> bool:
    return bool(
        reader.scalar("SELECT 1 FROM agents WHERE agent_id = ? AND present = 0", (agent_id,))
    )


def _moved(reader: Reader, old: Message, target: DirectoryEntry, *, is_removed: bool) -> NewMessage:
    """The same request for another agent, in that agent's session of the same key."""
    row: Any = reader.one("SELECT key FROM sessions WHERE session_id = ?", (old.session_id,))
    return NewMessage(
        agent_id=target.agent_id,
        session_key=row["key"] if row is not None else f"reassigned:{old.session_id}",
        parts=old.parts,
        principal=old.principal,
        kind=old.kind,
        lane=old.lane,
        priority=old.priority,
        deliver_to=_answer_of(old, target, is_removed=is_removed),
        thread_id=old.thread_id,
        in_reply_to=old.in_reply_to,
        root_id=old.root_id,
        path=old.path,
        traceparent=old.traceparent,
        replay_of=old.replay_of or old.message_id,
        sender_agent_id=old.sender_agent_id,
        summary=old.summary,
        silent=old.silent,
        epochs=old.epochs,
        person=old.person,
    )


def _answer_of(old: Message, target: DirectoryEntry, *, is_removed: bool) -> DeliverTo:
    """Where it went before. Only a chat with the removed agent itself goes on with the new one, by
    whose bot alone an answer can still come; and who waited has been told, so a reply follows."""
    to = replace(old.deliver_to, waited=False)
    if is_removed and to.kind == "chat" and (to.agent_id or old.agent_id) == old.agent_id:
        return replace(to, agent_id=target.agent_id)
    return to
