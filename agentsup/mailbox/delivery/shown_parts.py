"""Parts of the outbox that a conversation shows: found again, edited and dropped by their platform."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from agentsup.model.channel import OutboxState
from agentsup.store import Reader, Tx, from_row

_OF_BOT = "channel = :channel AND agent_id = :agent"


@dataclass(frozen=True, slots=True)
class ShownPart:
    """A part as a conversation shows it. ``platform_ids``: the messages of the platform, in order."""

    outbox_id: int
    conversation: str
    state: OutboxState
    body: Mapping[str, Any]
    platform_ids: tuple[str, ...]


def answer_of(reader: Reader, message_id: str) -> ShownPart | None:
    """The answer to a message. Repeats that a person asked for are later rows."""
    found = _parts(
        reader,
        "message_id = :message AND kind = 'answer' ORDER BY outbox_id LIMIT 1",
        message=message_id,
    )
    return found[0] if found else None


def is_question_in(
    reader: Reader,
    message_id: str,
    question_id: str,
    *,
    agent_id: str,
    channel: str,
    conversation: str,
) -> bool:
    """Whether a part of the message shows that question in the conversation."""
    found = _parts(
        reader,
        f"message_id = :message AND kind = 'question' AND {_OF_BOT} AND conversation = :in",
        **{"message": message_id, "agent": agent_id, "channel": channel, "in": conversation},
    )
    return any(part.body.get("question_id") == question_id for part in found)


def shown_in(
    reader: Reader,
    *,
    channel: str,
    agent_id: str,
    platform_id: str,
    fits: Callable[[str], bool],
) -> str | None:
    """Return the conversation of the latest part with a piece of that platform id, or None.

    ``fits`` says which conversations count.
    """
    names = reader.all(
        "SELECT DISTINCT conversation FROM outbox WHERE agent_id = ? AND channel = ?",
        (agent_id, channel),
    )
    found: str | None = reader.scalar(
        "SELECT conversation FROM outbox WHERE agent_id = ? AND channel = ?"
        " AND conversation IN (SELECT value FROM json_each(?))"
        " AND EXISTS (SELECT 1 FROM json_each(platform_ids) WHERE CAST(value AS TEXT) = ?)"
        " ORDER BY outbox_id DESC LIMIT 1",
        (
            *(agent_id, channel),
            json.dumps([name for (name,) in names if fits(name)]),
            platform_id,
        ),
    )
    return found


# -- notes with a cancel button --------------------------------------------------------------------


def cancellable(reader: Reader, message_id: str) -> list[ShownPart]:
    """The notices about a message that have a button to cancel it."""
    where = "message_id = :message AND kind = 'notice' AND body ->> '$.cancel' = :message"
    return _parts(reader, where, message=message_id)


def cancellable_since(
    reader: Reader, agent_id: str, channel: str, since: int
) -> list[tuple[str, str]]:
    """Message and conversation of each notice with such a button that is pending, or ended after
    ``since`` (wall ms)."""
    notice = f"{_OF_BOT} AND kind = 'notice' AND body ->> '$.cancel' IS NOT NULL"
    rows = reader.all(
        f"SELECT message_id, conversation FROM outbox WHERE ended_at > :since AND {notice}"  # noqa: S608 - constants
        f" UNION SELECT message_id, conversation FROM outbox WHERE state = 'pending' AND {notice}",
        {"since": since, "channel": channel, "agent": agent_id},
    )
    return [(row[0], row[1]) for row in rows]


def remove_cancel_tx(tx: Tx, message_id: str) -> None:
    """Record that the notices about a message have no such button any more. May be repeated."""
    tx.execute(
        "UPDATE outbox SET body = json_remove(body, '$.cancel')"
        " WHERE message_id = ? AND kind = 'notice' AND body ->> '$.cancel' = ?",
        (message_id, message_id),
    )


def drop_unsent_tx(tx: Tx, outbox_id: int, *, at: int, detail: str) -> bool:
    """Drop a part that was not sent yet; False if it is being sent at this moment."""
    dropped = tx.execute(
        "UPDATE outbox SET state = 'dropped', ended_at = ?, detail = ?"
        " WHERE outbox_id = ? AND state = 'pending' AND begun_boot = '' AND begun_at = 0",
        (at, detail, outbox_id),
    )
    return bool(dropped.rowcount)


# -- cards -----------------------------------------------------------------------------------------


def shown_as(
    reader: Reader, agent_id: str, channel: str, conversation: str, platform_id: str, latest: int
) -> ShownPart | None:
    """The part that is that one message of the platform, among the ``latest`` parts."""
    found = _parts(
        reader,
        f"{_OF_BOT} AND conversation = :in AND platform_ids = :ids AND outbox_id > :after",
        **{"agent": agent_id, "channel": channel, "in": conversation},
        ids=json.dumps([platform_id]),
        after=_last_id(reader) - latest,
    )
    return found[0] if found else None


def live_cards(
    reader: Reader, agent_id: str, channel: str, *, since: int, latest: int
) -> list[ShownPart]:
    """Delivered notices with a live text, newest first: made after ``since`` (wall ms), and among
    the ``latest`` parts."""
    return _parts(
        reader,
        f"outbox_id > :after AND {_OF_BOT} AND kind = 'notice' AND state = 'delivered'"
        " AND created_at > :since AND body ->> '$.live' IS NOT NULL ORDER BY outbox_id DESC",
        agent=agent_id,
        channel=channel,
        since=since,
        after=_last_id(reader) - latest,
    )


def set_body_tx(tx: Tx, outbox_id: int, body: Mapping[str, Any]) -> None:
    """Replace the body of a part."""
    text = json.dumps(dict(body), ensure_ascii=False)
    tx.execute("UPDATE outbox SET body = ? WHERE outbox_id = ?", (text, outbox_id))


def end_live_tx(tx: Tx, outbox_id: int) -> None:
    """Record that the text of a part is not live any more."""
    tx.execute(
        "UPDATE outbox SET body = json_remove(body, '$.live') WHERE outbox_id = ?", (outbox_id,)
    )


def newest_choices_begun(reader: Reader, agent_id: str, channel: str, room: str) -> int:
    """The id of the newest part with choices that is being sent into the room or a thread of it;
    0 without one."""
    found = reader.scalar(
        f"SELECT max(outbox_id) FROM outbox WHERE {_OF_BOT} AND state = 'pending'"  # noqa: S608 - constants
        " AND (conversation = :room OR substr(conversation, 1, length(:room) + 1) = :room || '/')"
        " AND begun_at > 0"
        " AND (kind = 'question' OR body ->> '$.buttons' IS NOT NULL"
        " OR body ->> '$.again' IS NOT NULL OR body ->> '$.cancel' IS NOT NULL)",
        {"agent": agent_id, "channel": channel, "room": room},
    )
    return int(found or 0)


def is_followed(
    reader: Reader, agent_id: str, channel: str, conversation: str, platform_id: str, at: int
) -> bool:
    """Whether a part without that platform id was delivered there after ``at`` (wall ms)."""
    found = reader.scalar(
        f"SELECT 1 FROM outbox WHERE ended_at > :at AND {_OF_BOT} AND conversation = :in"  # noqa: S608 - constants
        " AND state = 'delivered'"
        " AND NOT EXISTS (SELECT 1 FROM json_each(platform_ids) WHERE value = :id)",
        {"at": at, "agent": agent_id, "channel": channel, "in": conversation, "id": platform_id},
    )
    return found is not None


def _last_id(reader: Reader) -> int:
    return int(reader.scalar("SELECT seq FROM sqlite_sequence WHERE name = 'outbox'") or 0)


def _parts(reader: Reader, where: str, **values: Any) -> list[ShownPart]:
    rows = reader.all(
        f"SELECT outbox_id, conversation, state, body, platform_ids FROM outbox WHERE {where}",  # noqa: S608 - constants
        values,
    )
    return [
        from_row(
            ShownPart,
            row,
            state=OutboxState(row["state"]),
            body=json.loads(row["body"]),
            platform_ids=tuple(map(str, json.loads(row["platform_ids"]))),
        )
        for row in rows
    ]
