"""Accepting: authorised input becomes one row, exactly once, or a refusal that says why.

In one transaction: the ledger is asked, the bounds are checked, the session is found, and row,
ledger, events, conversation and notice are written. Serves P1, P2 and P6.
"""

from __future__ import annotations

import json
from typing import Any

from agentsup.kit import faults
from agentsup.mailbox import naming, place, sessions, waits
from agentsup.mailbox.draft import Draft, Key
from agentsup.mailbox.epoch import scopes_of
from agentsup.mailbox.notices import notify_tx, preview
from agentsup.mailbox.pace import eta_s
from agentsup.mailbox.rows import encode
from agentsup.mailbox.values import Desk
from agentsup.model.errors import (
    Conflict,
    DepthExceeded,
    LeaseLost,
    LoopDetected,
)
from agentsup.model.event import EventType
from agentsup.model.ids import MessageId, SessionId
from agentsup.model.message import Accepted, Kind, Lease, NewMessage, State, text_of
from agentsup.model.principal import OPERATORS, PrincipalKind
from agentsup.model.trace import of_root
from agentsup.store.database import Reader, Tx
from agentsup.store.events import append

__all__ = [
    "ENTER_SQL",
    "INSERT_SQL",
    "LEDGER_SQL",
    "accept_tx",
    "check_root",
    "columns_of",
    "epochs_of",
    "insert_tx",
    "queued_tx",
    "stored_epoch",
    "visit_tx",
]

_REQUESTS = frozenset({Kind.CHAT, Kind.TASK, Kind.BROADCAST})
"""Kinds that ask for work and are bounded; replies and events must always find their way."""

_VISIT_MS = 1_000
"""A conversation is noted as alive at most this often."""

INSERT_SQL = """
INSERT INTO messages (message_id, agent_id, session_id, kind, lane, priority, state, parts,
  principal, deliver_to, in_reply_to, thread_id, root_id, path, traceparent, sender_agent_id,
  capability, summary, silent, accepted_at, not_before, expires_at, replay_of, epochs, person)
VALUES (?, ?, ?, ?, ?, ?, 'queued', ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
"""

LEDGER_SQL = """
INSERT INTO ledger (source, external_id, message_id, body_hash, at) VALUES (?, ?, ?, ?, ?)
"""
ENTER_SQL = f"{LEDGER_SQL} ON CONFLICT DO NOTHING"


def accept_tx(desk: Desk, tx: Tx, ready: Draft, *, waiter: Lease | None = None) -> Accepted:
    """Store a message, or return what its key stored before (``duplicate``).

    ``waiter`` is the turn that will wait for the answer: the edge is noted, and a wait that closes
    a cycle is refused with nothing stored. Raises ``Conflict`` (key used with another body),
    ``LoopDetected``, ``DepthExceeded``, ``Overloaded``, ``WouldDeadlock``, ``BadRequest`` (no
    session key) and ``LeaseLost`` (the asking turn was stopped).
    """
    new = ready.new
    at = desk.clock.now_ms()
    known = _enter_tx(tx, ready, at)
    if known is not None:
        if waiter is not None:
            waits.wait_tx(desk, tx, waiter, known.message_id)
            waits.expect_tx(tx, known.message_id)
        return known
    _check_bounds(desk, tx, new)
    _check_asker(desk, tx, new)
    there = place.look(tx, new)
    if new.kind in _REQUESTS:
        place.check_room(desk, tx, new.agent_id, there.open)
    session_id = (None if new.new_session else there.session_id) or sessions.resolve_tx(
        tx, new.agent_id, new.session_key, at=at, entropy=desk.entropy, fresh=new.new_session
    )
    if waiter is not None:
        waits.check_session(desk, tx, waiter, session_id)
    insert_tx(desk, tx, ready, session_id, at=at, last_at=there.last_at)
    if waiter is not None:
        waits.add_tx(tx, waiter, ready.message_id)
    before = there.queued if session_id == there.session_id else 0
    return queued_tx(desk, tx, ready, session_id, before, is_busy=there.is_busy)


def queued_tx(
    desk: Desk, tx: Tx, ready: Draft, session_id: str, before: int, *, is_busy: bool
) -> Accepted:
    """What is told of a message that was just stored, with ``before`` others waiting before it."""
    agent_id = ready.new.agent_id
    asked = place.held_by(tx, agent_id, session_id) if is_busy else None
    eta = eta_s(before, desk.pace.mean_s(agent_id), desk.limits.slots_for(agent_id))
    return Accepted(
        MessageId(ready.message_id),
        SessionId(session_id),
        State.QUEUED,
        position=before,
        eta_s=None if asked else eta,
        waits_for=asked,
    )


def insert_tx(
    desk: Desk, tx: Tx, ready: Draft, session_id: str, *, at: int, last_at: int | None = None
) -> None:
    """Write the row with its events; the callers have checked what is to be checked.

    ``last_at`` is when its conversation was last noted, as far as the caller knows.
    """
    new = ready.new
    epochs = new.epochs or _epochs_for(desk, tx, new)
    person = _person_of(tx, new)
    faults.point("mailbox.accept.before_insert")
    step_ms = desk.steady.step_ms()
    tx.execute(INSERT_SQL, columns_of(ready, session_id, at, epochs, person, step_ms=step_ms))
    _tell(tx, ready, session_id, at, last_at, person)
    tx.touch(f"agent:{new.agent_id}")


def _person_of(reader: Reader, new: NewMessage) -> str:
    """Whose work it is: that of its root, of what it follows, or its principal's own."""
    if new.root_id or new.in_reply_to:
        row = reader.one(
            "SELECT (SELECT person FROM messages WHERE message_id = ?),"
            " (SELECT person FROM messages WHERE message_id = ?)",
            (new.root_id, new.in_reply_to),
        )
        assert row is not None, "a row of scalars always comes"
        if found := row[0] or row[1]:
            return str(found)
    return new.person or new.principal.person


def columns_of(
    ready: Draft, session_id: str, at: int, epochs: dict[str, int], person: str, *, step_ms: int
) -> tuple[Any, ...]:
    """The row of an accepted message, for ``INSERT_SQL``. Its times are told by the wall, and stored
    by the steady clock, from which the wall is ``step_ms`` away."""
    new = ready.new
    return (
        ready.message_id,
        new.agent_id,
        session_id,
        new.kind.value,
        new.lane.value,
        int(new.priority),
        ready.parts,
        ready.principal,
        ready.deliver_to,
        new.in_reply_to,
        new.thread_id,
        new.root_id or ready.message_id,
        ready.path,
        new.traceparent or of_root(new.root_id or ready.message_id),
        new.sender_agent_id,
        new.capability,
        new.summary,
        int(new.silent),
        at,
        new.not_before and max(1, new.not_before - step_ms),
        None if new.expires_at is None else new.expires_at - step_ms,
        new.replay_of,
        encode(epochs) if epochs else "{}",
        person,
    )


def _epochs_for(desk: Desk, tx: Tx, new: NewMessage) -> dict[str, int]:
    """The stops that everyone up the chain of askers had seen when this was asked.

    What an asker's own message recorded is kept as it was then: a reply that travels back through
    several mailboxes is refused by the first one that was stopped since (P5).
    """
    to = new.deliver_to
    if to.kind != "mailbox":
        return {}
    epochs = epochs_of(desk, tx, scopes_of(to.agent_id, to.session_id))
    if new.in_reply_to:
        asked = tx.scalar("SELECT epochs FROM messages WHERE message_id = ?", (new.in_reply_to,))
        for scope, seen in json.loads(asked or "{}").items():
            epochs[scope] = min(seen, epochs.get(scope, seen))
    return epochs


def epochs_of(desk: Desk, reader: Reader, scopes: tuple[str, ...]) -> dict[str, int]:
    """The counters of ``scopes``, in the store or in memory; 0 for one that was never raised."""
    counters = {scope: desk.epochs.current(scope) for scope in scopes}
    marks = ",".join("?" * len(scopes))
    for row in reader.execute(
        f"SELECT scope, counter FROM epochs WHERE scope IN ({marks})",  # noqa: S608 - marks only
        scopes,
    ):
        counters[row["scope"]] = max(row["counter"], counters[row["scope"]])
    return counters


def stored_epoch(reader: Reader, scope: str) -> int:
    """The counter of ``scope`` as it is in the store."""
    return int(reader.scalar("SELECT counter FROM epochs WHERE scope = ?", (scope,)) or 0)


# -- known already? --------------------------------------------------------------------------------


def _enter_tx(tx: Tx, ready: Draft, at: int) -> Accepted | None:
    """Enter the message's keys in the ledger, or return what one of them stored before.

    Entering comes first, as nearly every input is new; a refusal later undoes it with the rest.
    """
    for number, key in enumerate(ready.keys):
        entered = tx.execute(
            ENTER_SQL,
            (key.source, key.external_id, ready.message_id, key.body_hash, at),
        )
        if entered.rowcount == 0:
            known = _known(tx, key)
            for earlier in ready.keys[:number]:
                tx.execute(
                    "DELETE FROM ledger WHERE source = ? AND external_id = ?",
                    (earlier.source, earlier.external_id),
                )
            return known
    return None


def _known(tx: Tx, key: Key) -> Accepted:
    row = tx.one(
        "SELECT l.message_id, l.body_hash, m.session_id, m.state FROM ledger l"
        " LEFT JOIN messages m ON m.message_id = l.message_id"
        " WHERE l.source = ? AND l.external_id = ?",
        (key.source, key.external_id),
    )
    assert row is not None, "the ledger has just refused this key"
    if row["body_hash"] != key.body_hash:
        raise Conflict(
            f"the idempotency key {key.external_id!r} was used for another request "
            f"({row['message_id']}); use a fresh key, or repeat that request unchanged",
            key=key.external_id,
            message_id=row["message_id"],
        )
    # Without its row the message has ended and is past retention.
    return Accepted(
        MessageId(row["message_id"]),
        SessionId(row["session_id"] or ""),
        State(row["state"]) if row["state"] else State.DONE,
        duplicate=True,
    )


# -- bounds ----------------------------------------------------------------------------------------


def _check_bounds(desk: Desk, tx: Tx, new: NewMessage) -> None:
    limits = desk.limits
    if new.kind not in _REQUESTS:
        return
    if new.agent_id in new.path or (
        new.sender_agent_id == new.agent_id
        and new.kind is not Kind.TASK
        and not (new.replay_of or new.capability)
    ):
        raise LoopDetected(
            "this agent is already on the way of the request and can't be asked again within it; "
            "answer with what you know",
            agent_id=new.agent_id,
            path=list(new.path),
        )
    if len(new.path) > limits.max_depth:
        raise DepthExceeded(
            f"the request is {len(new.path)} agents deep, the most allowed are {limits.max_depth}",
            depth=len(new.path),
            limit=limits.max_depth,
        )
    if new.root_id:
        check_root(desk, tx, new.root_id)


def check_root(desk: Desk, reader: Reader, root_id: str) -> None:
    """Raise ``DepthExceeded`` if the work begun by that message has used its messages."""
    most = desk.limits.max_messages_per_root
    count = reader.scalar(
        "SELECT COUNT(*) FROM (SELECT 1 FROM messages"
        " WHERE root_id = ? AND root_id <> message_id LIMIT ?)",
        (root_id, most),
    )
    if count + 1 >= most:  # the root itself is one of them
        raise DepthExceeded(
            f"the work begun by {root_id} has used its {most} messages; finish with what you have",
            root_id=root_id,
            limit=most,
        )


def _check_asker(desk: Desk, tx: Tx, new: NewMessage) -> None:
    """A turn that was stopped gets nothing more done, however late its process dies (P5)."""
    if not (new.sender_agent_id and new.in_reply_to) or new.kind not in _REQUESTS:
        return
    row = tx.one(
        "SELECT state, agent_id, session_id, accepted_at FROM messages WHERE message_id = ?",
        (new.in_reply_to,),
    )
    if row is None or row["agent_id"] != new.sender_agent_id:
        return
    if row["state"] == State.CANCELLED or desk.epochs.stops(
        row["agent_id"], row["session_id"], row["accepted_at"]
    ):
        raise LeaseLost(
            f"the turn on {new.in_reply_to} was stopped; it can't send messages any more",
            message_id=new.in_reply_to,
        )


# -- telling ---------------------------------------------------------------------------------------


def _tell(tx: Tx, ready: Draft, session_id: str, at: int, last_at: int | None, person: str) -> None:
    """The events of an acceptance, the conversation it came from, the note about foreign work."""
    new, to = ready.new, ready.new.deliver_to
    where: dict[str, Any] = {
        "at": at,
        "agent_id": new.agent_id,
        "session_id": session_id,
        "message_id": ready.message_id,
        "conversation": f"{to.channel}:{to.conversation}" if to.kind == "chat" else "",
    }
    if new.kind is Kind.CHAT and to.kind == "chat":
        # One event tells both that it was accepted and what was said.
        append(tx, EventType.CHAT_IN, data=ready.facts, **where)
        own = naming.below_operator(new.principal)
        visit_tx(tx, new.agent_id, to.channel, to.conversation, at, last_at, person, own)
        return
    append(tx, EventType.MESSAGE_ACCEPTED, data=ready.facts, **where)
    if (
        new.kind in _REQUESTS
        and to.kind != "chat"
        and not new.silent
        and new.principal.kind is not PrincipalKind.SYSTEM
    ):
        about = preview(new.summary or text_of(new.parts))
        notify_tx(
            tx,
            message_id=ready.message_id,
            agent_id=new.agent_id,
            session_id=session_id,
            text=f"{new.principal.label} asks: {about}",
            at=at,
            facts={"from": new.principal.label, "message_id": ready.message_id},
            person=person,
        )


def visit_tx(
    tx: Tx,
    agent_id: str,
    channel: str,
    conversation: str,
    at: int,
    last_at: int | None,
    person: str,
    own: str,
) -> None:
    """Note that the conversation is alive and whose it is, unless that was noted a moment ago.

    It is that of the one person below operator who speaks there, else the operators'. ``own`` is the
    speaker's own name (``naming.below_operator``), so that nobody is two when their role changes.
    """
    if last_at is not None and 0 <= at - last_at < _VISIT_MS:
        return
    tx.execute(
        "INSERT INTO conversations (agent_id, channel, conversation, first_at, last_at, person)"
        " VALUES (?, ?, ?, ?, ?, ?) ON CONFLICT DO UPDATE SET last_at = excluded.last_at,"
        " person = CASE WHEN excluded.person = '' THEN person"
        " WHEN person IN ('', ?, ?, excluded.person) THEN excluded.person"
        " WHEN excluded.person = ? THEN person ELSE ? END",
        (
            *(agent_id, channel, conversation, at, at, person),
            *(OPERATORS, own, OPERATORS, naming.SEVERAL),
        ),
    )
