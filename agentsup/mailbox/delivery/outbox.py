"""The outbox: what must still be delivered, part by part.

A part is written in the transaction of the change that it reports. The relay delivers it
afterwards, in order within its conversation. A part with an unknown outcome is never sent again by
itself; a short note offers to show it again (P1, P2).
"""

from __future__ import annotations

import json
from typing import Any

from agentsup.model.channel import OutboxPart, OutboxState, RetryReason
from agentsup.model.errors import Conflict, NotFound
from agentsup.store import Reader, Tx, from_row


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
) -> int:
    """Put one part into the outbox in this transaction and return its ``outbox_id``.

    ``kind`` is answer, notice, question, file or echo; ``body`` is JSON (``text`` is what people
    read); ``at`` is wall ms. Parts of one conversation are delivered in the order in which they
    were added. ``body["language"]`` is the language of the person whose message it concerns, if
    known: channels use it for the text they add. ``body["if_refused"]`` is the text of a note that
    follows if the platform refuses the part. If a part shows a whole call (``body["is_whole"]``),
    no piece is sent after one with an unknown outcome.
    """
    session_id, last = "", None
    if message_id:
        last = tx.scalar(
            "SELECT part_no FROM outbox WHERE message_id = ? ORDER BY outbox_id DESC LIMIT 1",
            (message_id,),
        )
        session_id, language = _about(tx, message_id)
        if language:
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


def _about(reader: Reader, message_id: str) -> tuple[str, str]:
    """The session of a message, and the language of the person who sent it; each may be empty."""
    row = reader.one(
        "SELECT session_id, principal ->> '$.language' FROM messages WHERE message_id = ?",
        (message_id,),
    )
    return (row[0], row[1] or "") if row is not None else ("", "")


def language_of(reader: Reader, message_id: str) -> str:
    """The language of the person who sent a message, or empty."""
    return _about(reader, message_id)[1]


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
    part = part_of(row)
    shown = {name: value for name, value in part.body.items() if name != "in_place"}
    body = {**shown, "repeat_of": outbox_id, "possible_repeat": True}
    return add_below_tx(tx, part, part.kind, body, at)


def add_below_tx(tx: Tx, part: OutboxPart, kind: str, body: dict[str, Any], at: int) -> int:
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
    )


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
        part_of,
        "SELECT * FROM outbox WHERE outbox_id = ? AND kind = 'file' AND state = 'delivered'",
        (outbox_id,),
    )


def part_of(row: Any) -> OutboxPart:
    """A row of the outbox as a value."""
    return from_row(OutboxPart, row, body=json.loads(row["body"]))


# -- statistics ------------------------------------------------------------------------------------


def counts(reader: Reader) -> dict[str, dict[str, int]]:
    """The number of stored parts per channel and state; every state is a key."""
    found: dict[str, dict[str, int]] = {}
    for row in reader.all("SELECT channel, state, count(*) AS n FROM outbox GROUP BY 1, 2"):
        of_channel = found.setdefault(row["channel"], {state.value: 0 for state in OutboxState})
        of_channel[row["state"]] = row["n"]
    return found
