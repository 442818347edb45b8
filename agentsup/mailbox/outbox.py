"""The outbox: what must still be delivered, part by part.

A part is written in the transaction of what it tells and delivered afterwards by the relay, in
order within its conversation. A part whose fate is unknown is never sent again by itself; a short
note offers it instead (P1, P2).
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from agentsup.catalogue import words
from agentsup.mailbox.excerpt import excerpt, lost_text
from agentsup.model.channel import Delivery, DeliveryOutcome, OutboxPart, OutboxState
from agentsup.model.errors import Conflict, NotFound
from agentsup.model.event import EventType
from agentsup.store import events
from agentsup.store.database import Reader, Tx

__all__ = [
    "Head",
    "Settlement",
    "Step",
    "add_tx",
    "again_tx",
    "begin_tx",
    "conversation_of",
    "counts",
    "heads",
    "in_place_tx",
    "language_of",
    "platform_ids",
    "step_tx",
    "topic_of",
    "wake_tx",
]

_LEFTOVERS_PER_STEP = 100
# What every settled piece leaves; the reason of a doubt outlives the pieces that arrive after it.
_PIECE_SQL = (
    "begun_boot = '', begun_at = 0, doubts = :doubts, platform_ids = coalesce(:given, platform_ids),"
    " detail = CASE WHEN :detail = '' AND doubts > 0 THEN detail ELSE :detail END"
)


def topic_of(channel: str) -> str:
    """The topic that is touched when a channel has new parts."""
    return f"outbox:{channel}"


def conversation_of(channel: str, conversation: str) -> str:
    """How a conversation is named in events: ``<channel>:<name>``."""
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

    ``kind`` is answer, notice, question, file or echo; ``body`` is JSON (``text`` where people
    read it); ``at`` is wall ms. Parts of one conversation are delivered in the
    order in which they were added. ``body["language"]`` is the one of the person whose message it
    concerns, where it is known: for what a channel puts around the text.
    ``body["if_refused"]`` is said there should the platform refuse the part. Of a part that shows
    all of a call (``body["is_whole"]``) nothing follows a piece whose fate is unknown.
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
    """A person asks to be shown a part again whose fate is unknown; returns the new part's id.

    The new part carries ``repeat_of`` and ``possible_repeat``. Raises ``NotFound`` if this
    conversation has no such part, ``Conflict`` if nothing is uncertain about it.
    """
    row = tx.one(
        "SELECT *, json_remove(body, '$.in_place') AS shown FROM outbox"
        " WHERE outbox_id = ? AND agent_id = ? AND channel = ? AND conversation = ?",
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
    return add_tx(
        tx,
        agent_id=agent_id,
        channel=channel,
        conversation=conversation,
        kind=row["kind"],
        body={**json.loads(row["shown"]), "repeat_of": outbox_id, "possible_repeat": True},
        at=at,
        message_id=row["message_id"],
        session_id=row["session_id"],
    )


def wake_tx(tx: Tx, *, channel: str, agent_id: str, detail: str) -> int:
    """Make parts of an agent due now that wait for the reason ``detail``; returns how many."""
    woken = tx.execute(
        "UPDATE outbox SET not_before = 0 WHERE state = 'pending' AND channel = ? AND agent_id = ?"
        " AND not_before > 0 AND detail = ?",
        (channel, agent_id, detail),
    ).rowcount
    if woken:
        tx.touch(topic_of(channel))
    return woken


def in_place_tx(tx: Tx, outbox_id: int, platform_id: int | None) -> None:
    """The beginning of a part is put into a message that is there already, from now on; with None,
    it is sent as a new one.

    To be written before either is done: an edit does no harm when repeated, so a part that is
    found begun with this mark is given to its channel again and is in no doubt.
    """
    tx.execute(
        "UPDATE outbox SET body = CASE WHEN :id IS NULL THEN json_remove(body, '$.in_place')"
        " ELSE json_set(body, '$.in_place', :id) END WHERE outbox_id = :part AND state = 'pending'",
        {"id": platform_id, "part": outbox_id},
    )


def platform_ids(reader: Reader, outbox_id: int) -> tuple[str, ...]:
    """The ids that the platform gave to the delivered pieces of a part, in order."""
    kept = reader.scalar("SELECT platform_ids FROM outbox WHERE outbox_id = ?", (outbox_id,))
    return tuple(json.loads(kept or "[]"))


# -- for the relay ---------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Head:
    """The oldest pending part of a conversation: what the relay looks at to start work."""

    agent_id: str
    conversation: str
    outbox_id: int
    not_before: int


@dataclass(frozen=True, slots=True)
class Settlement:
    """How an attempt ended. ``pause_ms`` is what a retry waits for."""

    part: OutboxPart
    delivery: Delivery
    at: int
    pause_ms: int = 0


@dataclass(frozen=True, slots=True)
class Step:
    """The next part to deliver now, or, if none is due, when the next one will be (ms, by the steady
    clock)."""

    part: OutboxPart | None = None
    not_before: int | None = None
    given_up: int = 0
    """Parts of an earlier attempt whose fate became unknown."""


def heads(reader: Reader, channel: str, limit: int = 1_000) -> list[Head]:
    """The oldest pending part of each conversation of a channel.

    One index seek per conversation, so that a long queue in one of them costs the others nothing.
    """
    found: list[Head] = []
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
        found.append(Head(*row))
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
) -> Step:
    """One commit between two deliveries: record how the last one ended and begin the next.

    A blind part that is found begun (see ``begin_tx``) was left by an attempt that never said how
    it ended, so its fate is unknown; in a channel that sends ``in_pieces`` that is the fate of one
    piece, and the others follow. One that repeats its pieces
    by a key is told when it first had a piece. A piece that only edits (see ``in_place_tx``) is in
    no doubt and tried again. ``fetch=False`` only records. ``now`` is wall time, ``own_ms`` that of the
    steady clock, by which pauses are kept; both are read in this transaction.
    """
    if settlement is not None:
        _settle_tx(tx, settlement, own_ms)
    if not fetch:
        return Step()
    given_up = 0
    while given_up < _LEFTOVERS_PER_STEP:
        row = tx.one(
            "SELECT * FROM outbox WHERE state = 'pending' AND channel = ? AND agent_id = ?"
            " AND conversation = ? ORDER BY outbox_id LIMIT 1",
            (channel, agent_id, conversation),
        )
        if row is None:
            return Step(given_up=given_up)
        part = _part(row)
        if row["begun_boot"] and not idempotent and not part.is_edit:
            detail = f"begun by {row['begun_boot']}, which did not say how it ended"
            unknown = Delivery(DeliveryOutcome.UNKNOWN, detail, more=in_pieces)
            _settle_tx(tx, Settlement(part, unknown, now), own_ms)
            given_up += 1
            continue
        if row["not_before"] > own_ms:
            return Step(not_before=row["not_before"], given_up=given_up)
        if idempotent and in_pieces and not part.begun_at:
            tx.execute("UPDATE outbox SET begun_at = ? WHERE outbox_id = ?", (now, part.outbox_id))
        return Step(part, given_up=given_up)
    return Step(not_before=own_ms, given_up=given_up)


def begin_tx(tx: Tx, outbox_id: int, *, boot_id: str) -> bool:
    """Mark the next piece of a blind part as begun by this boot; False if the part is settled. With
    an empty ``boot_id`` the mark is taken away: what was begun was refused.

    The mark is committed when the piece is about to leave and taken away by its settlement. A
    process that finds it in place does not know whether the piece arrived.
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
            " detail = :detail WHERE outbox_id = :id AND state = 'pending'",
            {
                "counts": 0 if delivery.is_free else 1,
                "begun_at": part.begun_at,
                "not_before": own_ms + settlement.pause_ms,
                "detail": delivery.detail,
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
    # Below all of a call stand the answers that allow it: they go out once it surely has.
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
        return  # settled otherwise meanwhile; the first word stands
    _tell_end_tx(tx, part, state, delivery.detail, at)


def _tell_end_tx(tx: Tx, part: OutboxPart, state: OutboxState, detail: str, at: int) -> None:
    """What a part's end means to others: an event, or a note where its fate is unknown, or where
    people wait for what was refused (``body["if_refused"]``)."""
    if state is OutboxState.UNKNOWN:
        if "again" not in part.body:
            note = lost_text(part, words(language_of(tx, part.message_id)))
            again = {"again": part.outbox_id, "possible_repeat": True}
            _note_tx(tx, part, {"text": note, **again}, at)
        return
    if state is OutboxState.DROPPED and (text := part.body.get("if_refused")):
        _note_tx(tx, part, {"text": f"{text}\n({detail})"}, at)
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


def _note_tx(tx: Tx, part: OutboxPart, body: dict[str, Any], at: int) -> None:
    """A word about a part, below it in its conversation."""
    add_tx(
        tx,
        agent_id=part.agent_id,
        channel=part.channel,
        conversation=part.conversation,
        kind="notice",
        body=body,
        at=at,
        message_id=part.message_id,
        session_id=part.session_id,
    )


def _with_ids(tx: Tx, part: OutboxPart, delivery: Delivery) -> str | None:
    """The platform's ids as they are kept after this delivery; None if it brought none."""
    if not delivery.platform_ids:
        return None
    return json.dumps([*platform_ids(tx, part.outbox_id), *delivery.platform_ids])


_ENDS = {
    DeliveryOutcome.DELIVERED: OutboxState.DELIVERED,
    DeliveryOutcome.UNKNOWN: OutboxState.UNKNOWN,
    DeliveryOutcome.REFUSED: OutboxState.DROPPED,
}


def _part(row: Any) -> OutboxPart:
    return OutboxPart(
        outbox_id=row["outbox_id"],
        message_id=row["message_id"],
        agent_id=row["agent_id"],
        session_id=row["session_id"],
        channel=row["channel"],
        conversation=row["conversation"],
        part_no=row["part_no"],
        kind=row["kind"],
        body=json.loads(row["body"]),
        attempts=row["attempts"],
        progress=row["progress"],
        doubts=row["doubts"],
        begun_at=row["begun_at"],
    )


# -- figures ---------------------------------------------------------------------------------------


def counts(reader: Reader) -> dict[str, dict[str, int]]:
    """Kept parts per channel and state; every state is named."""
    found: dict[str, dict[str, int]] = {}
    for row in reader.all("SELECT channel, state, count(*) AS n FROM outbox GROUP BY 1, 2"):
        of_channel = found.setdefault(row["channel"], {state.value: 0 for state in OutboxState})
        of_channel[row["state"]] = row["n"]
    return found
