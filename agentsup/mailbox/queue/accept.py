"""Accepting: authorised input becomes exactly one row, or a refusal that says why.

One transaction checks the ledger and the limits, finds the session, and writes the row, the ledger
entry, events, the conversation and a notice. Serves P1, P2 and P6.
"""

from __future__ import annotations

import json

from agentsup.catalogue import words
from agentsup.kit import faults
from agentsup.mailbox.delivery.notices import latest_conversation, notify_tx, preview
from agentsup.mailbox.messages import keys, sessions
from agentsup.mailbox.messages.epoch import scopes_of
from agentsup.mailbox.messages.loads import eta_s
from agentsup.mailbox.messages.rows import encode
from agentsup.mailbox.messages.values import MailboxContext
from agentsup.mailbox.queue import admission, idempotency, waits
from agentsup.mailbox.queue.draft import Key, PreparedMessage, draft
from agentsup.model.errors import DepthExceeded, LeaseLost, LoopDetected
from agentsup.model.event import EventType
from agentsup.model.ids import MessageId, SessionId
from agentsup.model.message import Accepted, Lease, MessageKind, MessageState, NewMessage, text_of
from agentsup.model.principal import OPERATORS, PrincipalKind
from agentsup.model.trace import of_root
from agentsup.store import Reader, Tx, append, values_of

REQUESTS = frozenset({MessageKind.CHAT, MessageKind.TASK, MessageKind.BROADCAST})
"""Kinds that ask for work and are bounded; replies and events must always be accepted."""

_VISIT_MS = 1_000
"""The shortest time between two updates of a conversation's row."""


_INSERT = """
INSERT INTO messages (message_id, agent_id, session_id, kind, lane, priority, state, parts,
  principal, deliver_to, in_reply_to, thread_id, root_id, path, traceparent, sender_agent_id,
  capability, summary, silent, accepted_at, not_before, expires_at, replay_of, epochs, person)
VALUES (:message_id, :agent_id, :session_id, :kind, :lane, :priority, 'queued', :parts,
  :principal, :deliver_to, :in_reply_to, :thread_id, :root_id, :path, :traceparent,
  :sender_agent_id, :capability, :summary, :silent, :accepted_at, :not_before, :expires_at,
  :replay_of, :epochs, :person)
"""


def accept_tx(
    ctx: MailboxContext, tx: Tx, ready: PreparedMessage, *, waiter: Lease | None = None
) -> Accepted:
    """Store a message, or return what its key stored before (``duplicate``).

    ``waiter`` is the turn that will wait for the answer: the wait is recorded; if it closes a
    cycle, it is refused and nothing is stored. Raises ``Conflict`` (key used with another body),
    ``LoopDetected``, ``DepthExceeded``, ``Overloaded``, ``WouldDeadlock``, ``BadRequest`` (no
    session key) and ``LeaseLost`` (the asking turn was stopped).
    """
    new = ready.new
    at = ctx.clock.now_ms()
    known = _enter_tx(tx, ready, at)
    if known is not None:
        if waiter is not None:
            waits.wait_tx(ctx, tx, waiter, known.message_id)
            waits.expect_tx(tx, known.message_id)
        return known
    check_bounds(ctx, tx, new)
    _check_asker(ctx, tx, new)
    there = admission.queue_position(tx, new)
    if new.kind in REQUESTS:
        admission.check_room(ctx, tx, new.agent_id, there.open)
    returned = sessions.return_tx(ctx, tx, new.agent_id, new.session_key, there.pointed_by)
    if returned:
        there = admission.queue_position(tx, new)
    session_id = (None if new.new_session else there.session_id) or sessions.resolve_tx(
        tx, new.agent_id, new.session_key, at=at, entropy=ctx.entropy, fresh=new.new_session
    )
    if waiter is not None:
        waits.check_session(ctx, tx, waiter, session_id)
    insert_tx(ctx, tx, ready, session_id, at=at, last_at=there.last_at)
    if returned and new.deliver_to.kind == "chat":
        _notify_returned_tx(tx, ready, session_id, at)
    if waiter is not None:
        waits.add_tx(tx, waiter, ready.message_id)
    before = there.queued if session_id == there.session_id else 0
    return _queued(ctx, tx, ready, session_id, before, is_busy=there.is_busy)


def _queued(
    ctx: MailboxContext,
    reader: Reader,
    ready: PreparedMessage,
    session_id: str,
    before: int,
    *,
    is_busy: bool,
) -> Accepted:
    """The result for a message that was just stored, with ``before`` others queued before it."""
    agent_id = ready.new.agent_id
    asked = admission.holder_of_session(reader, agent_id, session_id) if is_busy else None
    eta = eta_s(before, ctx.durations.mean_s(agent_id), ctx.limits.slots_for(agent_id))
    return Accepted(
        MessageId(ready.message_id),
        SessionId(session_id),
        MessageState.QUEUED,
        position=before,
        eta_s=None if asked else eta,
        waits_for=asked,
    )


def _notify_returned_tx(tx: Tx, ready: PreparedMessage, session_id: str, at: int) -> None:
    new, to = ready.new, ready.new.deliver_to
    notify_tx(
        tx,
        message_id=ready.message_id,
        agent_id=new.agent_id,
        text=words(new.principal.language)("session.returned"),
        at=at,
        address=(to.channel, to.conversation),
    )


def put_tx(ctx: MailboxContext, tx: Tx, new: NewMessage, *, at: int) -> str:
    """Store a message of the mailbox's own, which nothing may refuse; return its id."""
    session_id = sessions.resolve_tx(tx, new.agent_id, new.session_key, at=at, entropy=ctx.entropy)
    ready = draft(ctx, new)
    insert_tx(ctx, tx, ready, session_id, at=at)
    return ready.message_id


def insert_tx(
    ctx: MailboxContext,
    tx: Tx,
    ready: PreparedMessage,
    session_id: str,
    *,
    at: int,
    last_at: int | None = None,
) -> None:
    """Write the row with its events. The callers have made all checks.

    ``last_at`` (wall ms) is when its conversation was last updated, if the caller knows.
    """
    new = ready.new
    epochs = new.epochs or _epochs_for(ctx, tx, new)
    person = _person_of(tx, new)
    faults.point("mailbox.accept.before_insert")
    root_id, step_ms = new.root_id or ready.message_id, ctx.steady.step_ms()
    tx.execute(
        _INSERT,
        values_of(new)
        | {
            "message_id": ready.message_id,
            "session_id": session_id,
            "parts": ready.parts,
            "principal": ready.principal,
            "deliver_to": ready.deliver_to,
            "path": ready.path,
            "root_id": root_id,
            "traceparent": new.traceparent or of_root(root_id),
            "accepted_at": at,
            # Stored by the steady clock, from which the wall clock differs by ``step_ms``.
            "not_before": new.not_before and max(1, new.not_before - step_ms),
            "expires_at": None if new.expires_at is None else new.expires_at - step_ms,
            "epochs": encode(epochs) if epochs else "{}",
            "person": person,
        },
    )
    ctx.loads.change_tx(tx, new.agent_id, 1, at=at)
    tell_tx(ctx, tx, ready, session_id, at, last_at, person)
    tx.touch(f"agent:{new.agent_id}")


def _person_of(reader: Reader, new: NewMessage) -> str:
    """The person for whom the work is done: that of its root or parent, or its principal's own."""
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


def _epochs_for(ctx: MailboxContext, tx: Tx, new: NewMessage) -> dict[str, int]:
    """The stop epochs that all askers above this message had seen when it was requested.

    Epochs that an asker's own message recorded are copied unchanged: a reply that travels back
    through several mailboxes is refused by the first one that was stopped since (P5).
    """
    to = new.deliver_to
    if to.kind != "mailbox":
        return {}
    epochs = epochs_of(ctx, tx, scopes_of(to.agent_id, to.session_id))
    if new.in_reply_to:
        asked = tx.scalar("SELECT epochs FROM messages WHERE message_id = ?", (new.in_reply_to,))
        for scope, seen in json.loads(asked or "{}").items():
            epochs[scope] = min(seen, epochs.get(scope, seen))
    return epochs


def epochs_of(ctx: MailboxContext, reader: Reader, scopes: tuple[str, ...]) -> dict[str, int]:
    """The counters of ``scopes``, in the store or in memory; 0 for one that was never raised."""
    counters = {scope: ctx.epochs.current(scope) for scope in scopes}
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


def _enter_tx(tx: Tx, ready: PreparedMessage, at: int) -> Accepted | None:
    """Enter the message's keys in the ledger, or return what one of them stored before.

    The keys are entered without a look-up, because nearly every input is new. A later refusal
    rolls them back with the rest.
    """
    for number, key in enumerate(ready.keys):
        name = (key.source, key.external_id)
        if not idempotency.enter_tx(tx, *name, ready.message_id, key.body_hash, at=at):
            known = _known(tx, key)
            for earlier in ready.keys[:number]:
                tx.execute(
                    "DELETE FROM ledger WHERE source = ? AND external_id = ?",
                    (earlier.source, earlier.external_id),
                )
            return known
    return None


def _known(tx: Tx, key: Key) -> Accepted:
    known = idempotency.known(tx, key.source, key.external_id, key.body_hash)
    assert known is not None, "the ledger has just refused this key"
    row = tx.one("SELECT session_id, state FROM messages WHERE message_id = ?", (known,))
    # Without its row the message has ended and is past retention.
    session_id, state = row or ("", MessageState.DONE)
    return Accepted(MessageId(known), SessionId(session_id), MessageState(state), duplicate=True)


# -- bounds ----------------------------------------------------------------------------------------


def check_bounds(ctx: MailboxContext, tx: Tx, new: NewMessage) -> None:
    """Raise ``LoopDetected`` for a request to an agent on its own path, ``DepthExceeded`` for one
    that is too deep or whose root has used all its messages."""
    limits = ctx.limits
    if new.kind not in REQUESTS:
        return
    if new.agent_id in new.path or (
        new.sender_agent_id == new.agent_id
        and new.kind is not MessageKind.TASK
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
        check_root(ctx, tx, new.root_id)


def check_root(ctx: MailboxContext, reader: Reader, root_id: str) -> None:
    """Raise ``DepthExceeded`` if the work begun by that message has used all its messages."""
    most = ctx.limits.max_messages_per_root
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


def _check_asker(ctx: MailboxContext, tx: Tx, new: NewMessage) -> None:
    """Raise ``LeaseLost`` if the asking turn was stopped, however late its process ends (P5)."""
    if not (new.sender_agent_id and new.in_reply_to) or new.kind not in REQUESTS:
        return
    row = tx.one(
        "SELECT state, agent_id, session_id, accepted_at FROM messages WHERE message_id = ?",
        (new.in_reply_to,),
    )
    if row is None or row["agent_id"] != new.sender_agent_id:
        return
    if row["state"] == MessageState.CANCELLED or ctx.epochs.stops(
        row["agent_id"], row["session_id"], row["accepted_at"]
    ):
        raise LeaseLost(
            f"the turn on {new.in_reply_to} was stopped; it can't send messages any more",
            message_id=new.in_reply_to,
        )


# -- event, conversation, notice -------------------------------------------------------------------


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
