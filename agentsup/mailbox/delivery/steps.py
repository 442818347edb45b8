"""The steps of the relay in the outbox: the end of one delivery, and the beginning of the next.

A part whose outcome is unknown is never sent again by itself; a note offers to show it (P1, P2).
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import partial
from typing import Any

from agentsup.catalogue import LocalizedTexts, words
from agentsup.kit import faults
from agentsup.mailbox.delivery.outbox import (
    add_below_tx,
    conversation_of,
    language_of,
    part_of,
    platform_ids,
)
from agentsup.model.channel import Delivery, DeliveryOutcome, OutboxPart, OutboxState
from agentsup.model.event import EventType
from agentsup.store import Reader, Tx, events

_LEFTOVERS_PER_STEP = 100
_EXCERPT_CHARS = 80
# Set for each settled piece. The reason of an unknown piece stays when later pieces arrive.
_PIECE_SQL = (
    "begun_boot = '', begun_at = 0, doubts = :doubts, platform_ids = coalesce(:given, platform_ids),"
    " detail = CASE WHEN :detail = '' AND doubts > 0 THEN detail ELSE :detail END"
)


@dataclass(frozen=True, slots=True)
class DeliveryLane:
    """One conversation, and how its channel delivers (``model.channel.Channel``)."""

    channel: str
    agent_id: str
    conversation: str
    idempotent: bool
    in_pieces: bool = False
    is_event: bool = False


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
    lane: DeliveryLane,
    settlement: Settlement | None,
    *,
    fetch: bool,
    now: int,
    own_ms: int,
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
            (lane.channel, lane.agent_id, lane.conversation),
        )
        if row is None:
            return DeliveryStep(given_up=given_up, delivered=delivered)
        part = part_of(row)
        if row["begun_boot"] and not lane.idempotent and not part.is_edit:
            detail = f"begun by {row['begun_boot']}, which did not say how it ended"
            unknown = Delivery(DeliveryOutcome.UNKNOWN, detail, more=lane.in_pieces)
            _settle_tx(tx, Settlement(part, unknown, now), own_ms)
            given_up += 1
            continue
        if row["not_before"] > own_ms:
            return DeliveryStep(None, row["not_before"], given_up, delivered)
        if lane.is_event:
            faults.point("outbox.before_deliver")
            tx.after_commit(partial(faults.point, "outbox.after_deliver"))
            _settle_tx(tx, Settlement(part, Delivery(DeliveryOutcome.DELIVERED), now), own_ms)
            delivered += 1
            continue
        if lane.idempotent and lane.in_pieces and not part.begun_at:
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
            note = _lost_text(part, words(language_of(tx, part.message_id)))
            again = {"again": part.outbox_id, "possible_repeat": True}
            add_below_tx(tx, part, "notice", {"text": note, **again}, at)
        return
    if state is OutboxState.DROPPED and (text := part.body.get("if_refused")):
        add_below_tx(tx, part, "notice", {"text": f"{text}\n({detail})"}, at)
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
        else {**data, "text": _excerpt(part), "why": detail},
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


def _excerpt(part: OutboxPart) -> str:
    """The beginning of the part's text, or the name of its file; empty if it has neither."""
    body = part.body
    attached = body.get("attached") or {}
    text = str(
        attached.get("name") or body.get("text") or body.get("name") or body.get("path") or ""
    )
    text = " ".join(text.split())
    if len(text) > _EXCERPT_CHARS:
        text = text[: _EXCERPT_CHARS - 1].rstrip() + "…"
    return text


def _lost_text(part: OutboxPart, say: LocalizedTexts) -> str:
    """The note that the part may not have arrived, and how to see it again."""
    text = _excerpt(part)
    which = f"“{text}”" if text else say("part.of_kind", kind=part.kind)
    return say("part.lost_piece" if part.progress else "part.lost", which=which, id=part.outbox_id)
