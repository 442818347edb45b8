"""The outbox: what must still be delivered, part by part.

A part is written in the transaction of the change that it reports. The relay delivers it
afterwards, in order within its conversation. A part with an unknown outcome is never sent again by
itself; a short note offers to show it again (P1, P2).
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import partial
from typing import Any

from agentsup.catalogue import words
from agentsup.kit import faults
from agentsup.mailbox.delivery.excerpt import excerpt, lost_text
from agentsup.model.channel import Delivery, DeliveryOutcome, OutboxPart, OutboxState, RetryReason
from agentsup.model.errors import Conflict, NotFound
from agentsup.model.event import EventType
from agentsup.store import Reader, Tx, events, from_row

_LEFTOVERS_PER_STEP = 100
# Set for each settled piece. The reason of an unknown piece stays when later pieces arrive.
_PIECE_SQL = (
    "begun_boot = '', begun_at = 0, doubts = :doubts, platform_ids = coalesce(:given, platform_ids),"
    " detail = CASE WHEN :detail = '' AND doubts > 0 THEN detail ELSE :detail END"
)


def topic_of(channel: str) -> str:
    """The topic that is touched when a channel has new parts."""
    return f"outbox:{channel}"


def conversation_of(channel: str, conversation: str) -> str:
    """The name of a conversation in events: ``<channel>:<name>``."""
    return f"{channel}:{conversation}"


def add_tx(
    tx: Tx,
    *,
    agent_id: str,
    channel: str,
    conversation: str,
    kind: str,
    body: dict[str, Any],
    at: int,
    message_id: str = "",
    session_id: str = "",
) -> int:
    """Put one part into the outbox in this transaction and return its ``outbox_id``.

    ``kind`` is answer, notice, question, file or echo; ``body`` is JSON (``text`` is what people
    read); ``at`` is wall ms. Parts of one conversation are delivered in the order in which they
    were added. ``body["language"]`` is the language of the person whose message it concerns, if
    known: channels use it for the text they add. ``body["if_refused"]`` is the text of a note that
    follows if the platform refuses the part. If a part shows a whole call (``body["is_whole"]``),
    no piece is sent after one with an unknown outcome.
    """
    last = None
    if message_id:
        last = tx.scalar(
            "SELECT part_no FROM outbox WHERE message_id = ? ORDER BY outbox_id DESC LIMIT 1",
            (message_id,),
        )
        if language := language_of(tx, message_id):
            body = {"language": language, **body}
    cursor = tx.execute(
        "INSERT INTO outbox (message_id, agent_id, session_id, channel, conversation, part_no,"
        " kind, body, state, created_at) VALUES (?, ?, ?, ?, ?, ?, ?, ?, 'pending', ?)",
        (
            message_id,
            agent_id,
            session_id,
            channel,
            conversation,
            0 if last is None else last + 1,
            kind,
            json.dumps(body, ensure_ascii=False, separators=(",", ":")),
            at,
        ),
    )
    tx.touch(topic_of(channel))
    assert cursor.lastrowid is not None
    return cursor.lastrowid


def language_of(reader: Reader, message_id: str) -> str:
    """The language of the person who sent a message, or empty."""
    found = reader.scalar(
        "SELECT principal ->> '$.language' FROM messages WHERE message_id = ?", (message_id,)
    )
    return str(found or "")


def again_tx(
    tx: Tx, outbox_id: int, *, agent_id: str, channel: str, conversation: str, at: int
) -> int:
    """Queue a part again that may not have arrived, for a person who asks; return the new id.

    The new part carries ``repeat_of`` and ``possible_repeat``. Raises ``NotFound`` if this
    conversation has no such part, ``Conflict`` if its state is neither unknown nor dropped.
    """
    row = tx.one(
        "SELECT * FROM outbox WHERE outbox_id = ? AND agent_id = ? AND channel = ? AND conversation = ?",
        (outbox_id, agent_id, channel, conversation),
    )
    if row is None:
        raise NotFound(f"this conversation has no message {outbox_id}", outbox_id=outbox_id)
    if row["state"] not in (OutboxState.UNKNOWN, OutboxState.DROPPED):
        raise Conflict(
            f"message {outbox_id} is {row['state']}; only one that may not have arrived can be "
            "shown again",
            outbox_id=outbox_id,
            state=row["state"],
        )
    part = _part(row)
    shown = {name: value for name, value in part.body.items() if name != "in_place"}
    body = {**shown, "repeat_of": outbox_id, "possible_repeat": True}
    return _add_below_tx(tx, part, part.kind, body, at)


def make_due_tx(tx: Tx, *, channel: str, agent_id: str, reason: RetryReason) -> int:
    """Make due the parts of an agent that wait for ``reason``; return how many."""
    woken = tx.execute(
        "UPDATE outbox SET not_before = 0 WHERE state = 'pending' AND channel = ? AND agent_id = ?"
        " AND not_before > 0 AND retry_reason = ?",
        (channel, agent_id, reason),
    ).rowcount
    if woken:
        tx.touch(topic_of(channel))
    return woken


def deliver_into_message_tx(tx: Tx, outbox_id: int, platform_id: int | None) -> None:
    """Record that a part begins in an existing platform message; with None, in a new one.

    The caller writes this before it edits or sends. An edit may be repeated, so a part that is
    found begun with this mark is given to its channel again, and its outcome is not unknown.
    """
    tx.execute(
        "UPDATE outbox SET body = CASE WHEN :id IS NULL THEN json_remove(body, '$.in_place')"
        " ELSE json_set(body, '$.in_place', :id) END WHERE outbox_id = :part AND state = 'pending'",
        {"id": platform_id, "part": outbox_id},
    )


def paused(
    reader: Reader, *, channel: str, agent_id: str, own_ms: int, over_ms: int
) -> list[tuple[str, int]]:
    """The conversations of an agent in which a part waits untried for more than ``over_ms``.

    Each with the ms that are left.
    """
    rows = reader.all(
        "SELECT conversation, max(not_before) - ? AS left_ms FROM outbox"
        " WHERE state = 'pending' AND channel = ? AND agent_id = ? AND attempts = 0"
        " AND not_before > ? GROUP BY conversation",
        (own_ms, channel, agent_id, own_ms + over_ms),
    )
    return [(row["conversation"], row["left_ms"]) for row in rows]


def platform_ids(reader: Reader, outbox_id: int) -> tuple[str, ...]:
    """The ids that the platform gave to the delivered pieces of a part, in order."""
    stored = reader.scalar("SELECT platform_ids FROM outbox WHERE outbox_id = ?", (outbox_id,))
    return tuple(json.loads(stored or "[]"))


def delivered_file(reader: Reader, outbox_id: int) -> OutboxPart | None:
    """The part, if it is a file that was delivered."""
    return reader.value(
        _part,
        "SELECT * FROM outbox WHERE outbox_id = ? AND kind = 'file' AND state = 'delivered'",
        (outbox_id,),
    )


# -- for the relay ---------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class ConversationHead:
    """The oldest pending part of a conversation."""

    agent_id: str
    conversation: str
    outbox_id: int
    not_before: int


@dataclass(frozen=True, slots=True)
class Settlement:
    """The end of an attempt. ``pause_ms`` is the pause before a retry."""

    part: OutboxPart
    delivery: Delivery
    at: int
    pause_ms: int = 0


@dataclass(frozen=True, slots=True)
class DeliveryStep:
    """The next part to deliver now, or, if none is due, when the next one will be.

    ``not_before`` is in ms, by the steady clock.
    """

    part: OutboxPart | None = None
    not_before: int | None = None
    given_up: int = 0
    """Number of parts of an earlier attempt that got an unknown outcome."""
    delivered: int = 0
    """Number of parts that were delivered by their event alone."""


def heads(reader: Reader, channel: str, limit: int = 1_000) -> list[ConversationHead]:
    """The oldest pending part of each conversation of a channel.

    One index seek per conversation, so that a long queue in one of them costs the others nothing.
    """
    found: list[ConversationHead] = []
    agent_id, conversation = "", ""
    while len(found) < limit:
        row = reader.one(
            "SELECT agent_id, conversation, outbox_id, not_before FROM outbox"
            " WHERE state = 'pending' AND channel = ? AND (agent_id, conversation) > (?, ?)"
            " ORDER BY agent_id, conversation, outbox_id LIMIT 1",
            (channel, agent_id, conversation),
        )
        if row is None:
            break
        found.append(ConversationHead(*row))
        agent_id, conversation = row["agent_id"], row["conversation"]
    return found


def step_tx(
    tx: Tx,
    settlement: Settlement | None,
    *,
    channel: str,
    agent_id: str,
    conversation: str,
    idempotent: bool,
    fetch: bool,
    now: int,
    own_ms: int,
    in_pieces: bool = False,
    is_event: bool = False,
) -> DeliveryStep:
    """Record how the last delivery ended and begin the next one, in one commit.

    If a part of a channel that is not ``idempotent`` is found begun (see ``begin_tx``), its last
    attempt never recorded an end, so the outcome is unknown. In a channel that sends ``in_pieces``
    only that piece is unknown, and the others follow. An ``idempotent`` channel in pieces repeats
    a piece by its key; for it, ``begun_at`` records when the part was first begun. A piece that
    only edits (see ``deliver_into_message_tx``) is tried again. Where delivery ``is_event``, parts that
    are due are delivered in this very commit. ``fetch=False`` only records.
    ``now`` is wall ms, ``own_ms`` the time of the steady clock, by which pauses are measured; the
    caller reads both in this transaction.
    """
    if settlement is not None:
        _settle_tx(tx, settlement, own_ms)
    if not fetch:
        return DeliveryStep()
    given_up = delivered = 0
    while given_up + delivered < _LEFTOVERS_PER_STEP:
        row = tx.one(
            "SELECT * FROM outbox WHERE state = 'pending' AND channel = ? AND agent_id = ?"
            " AND conversation = ? ORDER BY outbox_id LIMIT 1",
            (channel, agent_id, conversation),
        )
        if row is None:
            return DeliveryStep(given_up=given_up, delivered=delivered)
        part = _part(row)
        if row["begun_boot"] and not idempotent and not part.is_edit:
            detail = f"begun by {row['begun_boot']}, which did not say how it ended"
            unknown = Delivery(DeliveryOutcome.UNKNOWN, detail, more=in_pieces)
            _settle_tx(tx, Settlement(part, unknown, now), own_ms)
            given_up += 1
            continue
        if row["not_before"] > own_ms:
            return DeliveryStep(None, row["not_before"], given_up, delivered)
        if is_event:
            faults.point("outbox.before_deliver")
            tx.after_commit(partial(faults.point, "outbox.after_deliver"))
            _settle_tx(tx, Settlement(part, Delivery(DeliveryOutcome.DELIVERED), now), own_ms)
            delivered += 1
            continue
        if idempotent and in_pieces and not part.begun_at:
            tx.execute("UPDATE outbox SET begun_at = ? WHERE outbox_id = ?", (now, part.outbox_id))
        return DeliveryStep(part, given_up=given_up)
    return DeliveryStep(None, own_ms, given_up, delivered)


def begin_tx(tx: Tx, outbox_id: int, *, boot_id: str) -> bool:
    """Mark the next piece of a part as begun by this boot; False if the part is settled.

    It is used for channels that are not idempotent. The mark is committed just before the piece is
    sent, and its settlement removes it. A process that finds the mark does not know whether the
    piece arrived. With an empty ``boot_id`` the mark is removed: the piece was refused.
    """
    return bool(
        tx.execute(
            "UPDATE outbox SET begun_boot = ? WHERE outbox_id = ? AND state = 'pending'",
            (boot_id, outbox_id),
        ).rowcount
    )


def _settle_tx(tx: Tx, settlement: Settlement, own_ms: int) -> None:
    part, delivery, at = settlement.part, settlement.delivery, settlement.at
    if delivery.outcome is DeliveryOutcome.RETRY:
        tx.execute(
            "UPDATE outbox SET attempts = attempts + :counts, begun_boot = '',"
            " begun_at = iif(:counts, begun_at, :begun_at), not_before = :not_before,"
            " detail = :detail, retry_reason = :reason WHERE outbox_id = :id AND state = 'pending'",
            {
                "counts": 0 if delivery.is_free else 1,
                "begun_at": part.begun_at,
                "not_before": own_ms + settlement.pause_ms,
                "detail": delivery.detail,
                "reason": delivery.reason,
                "id": part.outbox_id,
            },
        )
        return
    is_unknown = delivery.outcome is DeliveryOutcome.UNKNOWN
    doubts = part.doubts + is_unknown
    given = _with_ids(tx, part, delivery)
    values = {
        "id": part.outbox_id,
        "progress": part.progress + 1,
        "doubts": doubts,
        "given": given,
        "detail": delivery.detail,
        "at": at,
    }
    # A whole call is followed by the answers that allow it: they are sent only if it surely was.
    is_over = delivery.outcome is DeliveryOutcome.REFUSED or (
        is_unknown and bool(part.body.get("is_whole"))
    )
    if delivery.more and not is_over:
        tx.execute(
            f"UPDATE outbox SET progress = :progress, not_before = 0, {_PIECE_SQL}"  # noqa: S608 - a constant
            " WHERE outbox_id = :id AND state = 'pending'",
            values,
        )
        return
    state = OutboxState.UNKNOWN if doubts else _ENDS[delivery.outcome]
    changed = tx.execute(
        f"UPDATE outbox SET state = :state, attempts = attempts + 1, ended_at = :at, {_PIECE_SQL}"  # noqa: S608 - a constant
        " WHERE outbox_id = :id AND state = 'pending'",
        {**values, "state": state.value},
    ).rowcount
    if not changed:
        return  # settled otherwise meanwhile; the first settlement counts
    _report_end_tx(tx, part, state, delivery.detail, at)


def _report_end_tx(tx: Tx, part: OutboxPart, state: OutboxState, detail: str, at: int) -> None:
    """Report the end of a part: by a note if its outcome is unknown, else by an event.

    A refused part with ``body["if_refused"]`` gets a note too.
    """
    if state is OutboxState.UNKNOWN:
        if "again" not in part.body:
            note = lost_text(part, words(language_of(tx, part.message_id)))
            again = {"again": part.outbox_id, "possible_repeat": True}
            _add_below_tx(tx, part, "notice", {"text": note, **again}, at)
        return
    if state is OutboxState.DROPPED and (text := part.body.get("if_refused")):
        _add_below_tx(tx, part, "notice", {"text": f"{text}\n({detail})"}, at)
    data: dict[str, Any] = {"kind": part.kind, "outbox_id": part.outbox_id}
    is_delivered = state is OutboxState.DELIVERED
    events.append(
        tx,
        EventType.CHAT_OUT if is_delivered else EventType.CHAT_REFUSED,
        at=at,
        agent_id=part.agent_id,
        session_id=part.session_id,
        message_id=part.message_id,
        conversation=conversation_of(part.channel, part.conversation),
        data={**part.body, **data}
        if is_delivered
        else {**data, "text": excerpt(part), "why": detail},
    )


def _add_below_tx(tx: Tx, part: OutboxPart, kind: str, body: dict[str, Any], at: int) -> int:
    """Add a part about ``part``, below it in its conversation."""
    return add_tx(
        tx,
        agent_id=part.agent_id,
        channel=part.channel,
        conversation=part.conversation,
        kind=kind,
        body=body,
        at=at,
        message_id=part.message_id,
        session_id=part.session_id,
    )


def _with_ids(tx: Tx, part: OutboxPart, delivery: Delivery) -> str | None:
    """The platform's ids to store after this delivery, as JSON; None if it brought none."""
    if not delivery.platform_ids:
        return None
    return json.dumps([*platform_ids(tx, part.outbox_id), *delivery.platform_ids])


_ENDS = {
    DeliveryOutcome.DELIVERED: OutboxState.DELIVERED,
    DeliveryOutcome.UNKNOWN: OutboxState.UNKNOWN,
    DeliveryOutcome.REFUSED: OutboxState.DROPPED,
}


def _part(row: Any) -> OutboxPart:
    return from_row(OutboxPart, row, body=json.loads(row["body"]))


# -- statistics ------------------------------------------------------------------------------------


def counts(reader: Reader) -> dict[str, dict[str, int]]:
    """The number of stored parts per channel and state; every state is a key."""
    found: dict[str, dict[str, int]] = {}
    for row in reader.all("SELECT channel, state, count(*) AS n FROM outbox GROUP BY 1, 2"):
        of_channel = found.setdefault(row["channel"], {state.value: 0 for state in OutboxState})
        of_channel[row["state"]] = row["n"]
    return found
