"""The rows of updates: kept before they are confirmed to Telegram, and what became of each.

`keep_tx` is the door: rows and offset are one transaction, and only after it is durable may the
next poll carry the higher offset, which is what makes Telegram forget. So an update is handled at
least once, and the ledger of the mailbox makes its effect happen once (P1, P2).
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from agentsup.channels.stops import ELSEWHERE
from agentsup.store.database import Reader, Tx
from agentsup.store.retention import Retention

__all__ = [
    "CHANNEL",
    "SILENCE_MS",
    "Before",
    "Offset",
    "Row",
    "again_tx",
    "before",
    "begin_tx",
    "done_tx",
    "is_skipped",
    "keep_tx",
    "last_received",
    "load",
    "offset_of",
    "pieces",
    "quarantine_tx",
    "quarantined",
    "received",
    "retention_rules",
    "skip_tx",
    "waiting",
]

CHANNEL = "telegram"
_DAY_MS = 24 * 3600 * 1000
SILENCE_MS = 6 * _DAY_MS
"""After a week without updates Telegram may count anew, from a number lower than our offset; an
offset that is too high would throw the new ones away. So after this long we ask without one."""
_ERROR_CHARS = 500
_NEAR = 100
"""How far apart the platform's ids of an album's messages may lie."""
_TOO_LARGE = 2**63
"""What SQLite holds as a number."""


@dataclass(frozen=True, slots=True)
class Offset:
    """How far a bot was read. ``next_offset`` 0: never yet. ``heard_at`` is wall ms."""

    run: int = 0
    next_offset: int = 0
    heard_at: int = 0

    def to_ask(self, now: int) -> int | None:
        """The offset for the next poll, or None where the numbers may have begun anew."""
        if not self.next_offset or now - self.heard_at >= SILENCE_MS:
            return None
        return self.next_offset


@dataclass(frozen=True, slots=True)
class Row:
    """A kept update that is to be handled. ``begun``: an earlier life began its command."""

    row_id: int
    run: int
    update_id: int
    raw: str
    begun: bool = False

    def external_id(self, bot_id: str) -> str:
        """Its name in the ledger, unique even when Telegram counts anew."""
        number = f"{self.run}.{self.update_id}" if self.run else f"{self.update_id}"
        return f"update:{bot_id}:{number}"


@dataclass(frozen=True, slots=True)
class Before:
    """The earlier updates of one Telegram message."""

    raw: str = ""
    """The latest, whatever it became; empty if none is kept."""
    message_id: str = ""
    """What the agent was given of it last; empty if nothing."""


def offset_of(reader: Reader, bot_id: str) -> Offset:
    """Where to go on reading."""
    row = reader.one(
        "SELECT run, next_offset, heard_at FROM poll_offsets WHERE channel = ? AND bot_id = ?",
        (CHANNEL, bot_id),
    )
    return Offset() if row is None else Offset(*row)


def keep_tx(
    tx: Tx, bot_id: str, batch: Sequence[Mapping[str, Any]], *, at: int
) -> tuple[Offset, list[Row]]:
    """Keep a batch of raw updates and move the offset; returns it and the rows that are new.

    An update that is known already is left out. One with a lower number than was read before is
    the first of a new count: Telegram never gives a confirmed one again.
    """
    offset = offset_of(tx, bot_id)
    run, following = offset.run, offset.next_offset
    rows: list[Row] = []
    for update in sorted(batch, key=lambda each: int(each["update_id"])):
        update_id, raw = int(update["update_id"]), json.dumps(update, separators=(",", ":"))
        if update_id < following:
            known = tx.scalar(
                "SELECT raw FROM updates"
                " WHERE channel = ? AND bot_id = ? AND run = ? AND update_id = ?",
                (CHANNEL, bot_id, run, update_id),
            )
            if known == raw:
                continue
            run, following = run + 1, update_id
        chat_id, platform_id = _ids(update)
        cursor = tx.execute(
            "INSERT INTO updates (channel, bot_id, run, update_id, raw, state, chat_id,"
            " platform_id, at) VALUES (?, ?, ?, ?, ?, 'received', ?, ?, ?) ON CONFLICT DO NOTHING",
            (CHANNEL, bot_id, run, update_id, raw, chat_id, platform_id, at),
        )
        following = max(following, update_id + 1)
        if cursor.rowcount and cursor.lastrowid is not None:
            rows.append(Row(cursor.lastrowid, run, update_id, raw))
    new = Offset(run, following, at)
    tx.execute(
        "INSERT INTO poll_offsets (channel, bot_id, run, next_offset, heard_at)"
        " VALUES (?, ?, ?, ?, ?) ON CONFLICT DO UPDATE SET run = excluded.run,"
        " next_offset = excluded.next_offset, heard_at = excluded.heard_at",
        (CHANNEL, bot_id, new.run, new.next_offset, new.heard_at),
    )
    return new, rows


def _ids(update: Mapping[str, Any]) -> tuple[int | None, int | None]:
    """Chat and message of a text or an edit; None for what is neither or makes no sense."""
    body = update.get("message") or update.get("edited_message")
    chat = body.get("chat") if isinstance(body, Mapping) else None
    if not isinstance(body, Mapping) or not isinstance(chat, Mapping):
        return None, None
    return _number(chat.get("id")), _number(body.get("message_id"))


def _number(value: object) -> int | None:
    if not isinstance(value, int) or isinstance(value, bool):
        return None
    return value if abs(value) < _TOO_LARGE else None


def received(reader: Reader, bot_id: str, *, after: int = 0, limit: int = 500) -> list[Row]:
    """What earlier lives have left to do, oldest first: to handle, or to tell that a stop from
    another chat has dropped it."""
    # By row, as no index knows the dropped ones: what comes before ``after`` is not looked at.
    rows = reader.all(
        "SELECT row_id, run, update_id, raw, begun FROM updates NOT INDEXED"
        " WHERE channel = ? AND bot_id = ? AND row_id > ?"
        " AND (state = 'received' OR (state = 'skipped' AND error = ?))"
        " ORDER BY row_id LIMIT ?",
        (CHANNEL, bot_id, after, ELSEWHERE, limit),
    )
    return [Row(r[0], r[1], r[2], r[3], bool(r[4])) for r in rows]


def begin_tx(tx: Tx, row: Row) -> None:
    """A command is about to run: found again after a crash, it is not run a second time."""
    tx.execute("UPDATE updates SET begun = 1 WHERE row_id = ?", (row.row_id,))


def done_tx(tx: Tx, rows: Sequence[Row], *, message_id: str = "") -> None:
    """They were handled, and became that message, if any."""
    tx.executemany(
        "UPDATE updates SET state = 'done', message_id = ? WHERE row_id = ?",
        [(message_id, row.row_id) for row in rows],
    )


def skip_tx(tx: Tx, rows: Sequence[Row], why: str) -> None:
    """Nothing is to be done about them."""
    tx.executemany(
        "UPDATE updates SET state = 'skipped', error = ? WHERE row_id = ?",
        [(why[:_ERROR_CHARS], row.row_id) for row in rows],
    )


def quarantine_tx(tx: Tx, row: Row, why: str) -> None:
    """It can't be handled; it is kept to be looked at."""
    tx.execute(
        "UPDATE updates SET state = 'quarantined', error = ? WHERE row_id = ?",
        (why[:_ERROR_CHARS], row.row_id),
    )


def again_tx(tx: Tx, bot_id: str) -> list[Row]:
    """What an operator wants to be tried again, each given out once; oldest first."""
    rows = tx.all(
        "UPDATE updates SET error = '' WHERE channel = ? AND bot_id = ? AND state = 'received'"
        " AND error <> '' RETURNING row_id, run, update_id, raw",
        (CHANNEL, bot_id),
    )
    return sorted((Row(*row) for row in rows), key=lambda each: each.row_id)


def quarantined(reader: Reader, bot_id: str) -> int:
    """How many updates of a bot are in quarantine."""
    return int(
        reader.scalar(
            "SELECT COUNT(*) FROM updates"
            " WHERE channel = ? AND bot_id = ? AND state = 'quarantined'",
            (CHANNEL, bot_id),
        )
    )


def before(reader: Reader, bot_id: str, chat_id: int, platform_id: int, row: Row) -> Before:
    """What came of a Telegram message before that row."""
    rows = reader.all(
        "SELECT message_id, raw FROM updates WHERE channel = ? AND bot_id = ? AND chat_id = ?"
        " AND platform_id = ? AND row_id < ? ORDER BY row_id",
        (CHANNEL, bot_id, chat_id, platform_id, row.row_id),
    )
    if not rows:
        return Before()
    given = [each["message_id"] for each in rows if each["message_id"]]
    return Before(rows[-1]["raw"], given[-1] if given else "")


def pieces(
    reader: Reader, bot_id: str, chat_id: int, platform_id: int, message_id: str
) -> dict[int, str]:
    """The updates that a message was made of, by the platform's id of each, latest texts; those
    of an album lie close to each other."""
    rows = reader.all(
        "SELECT platform_id, raw FROM updates WHERE channel = ? AND bot_id = ? AND chat_id = ?"
        " AND platform_id BETWEEN ? AND ? AND message_id = ? ORDER BY row_id",
        (CHANNEL, bot_id, chat_id, platform_id - _NEAR, platform_id + _NEAR, message_id),
    )
    latest = {each["platform_id"]: each["raw"] for each in rows}
    return dict(sorted(latest.items()))


def waiting(
    reader: Reader, *, before: int, bot_id: str = "", chat_id: int | None = None
) -> list[Row]:
    """Texts and edits older than row ``before`` that were not handled yet; of all bots or one,
    of all chats or one."""
    rows = reader.all(
        "SELECT row_id, run, update_id, raw, begun FROM updates WHERE channel = ?"
        " AND (? = '' OR bot_id = ?) AND state = 'received' AND row_id < ?"
        " AND chat_id IS NOT NULL AND (? IS NULL OR chat_id = ?) ORDER BY row_id",
        (CHANNEL, bot_id, bot_id, before, chat_id, chat_id),
    )
    return [Row(r[0], r[1], r[2], r[3], bool(r[4])) for r in rows]


def is_skipped(reader: Reader, rows: Sequence[Row], *, why: str = "") -> bool:
    """Whether nothing is to be done any more about one of them: a stop was quicker. ``why``
    counts only those that were skipped for that reason."""
    return any(
        reader.scalar(
            "SELECT 1 FROM updates WHERE row_id = ? AND state = 'skipped' AND (? = '' OR error = ?)",
            (row.row_id, why, why),
        )
        is not None
        for row in rows
    )


def last_received(reader: Reader, bot_id: str) -> int:
    """The number of the last row that is left to do, as ``received`` finds it, or 0."""
    found = reader.scalar(
        "SELECT MAX(row_id) FROM updates WHERE channel = ? AND bot_id = ?"
        " AND (state = 'received' OR (state = 'skipped' AND error = ?))",
        (CHANNEL, bot_id, ELSEWHERE),
    )
    return int(found or 0)


def load(raw: str) -> Mapping[str, Any]:
    """A kept update as the platform gave it."""
    update: Mapping[str, Any] = json.loads(raw)
    return update


def retention_rules() -> tuple[Retention, ...]:
    """Handled updates go after two days, as long as a message can be edited; poison after thirty.

    The table only grows at its end, so what is young is never walked.
    """
    old = "row_id < coalesce((SELECT min(row_id) FROM updates WHERE at >= :cutoff), 1 << 62)"
    return (
        Retention("updates", f"{old} AND state IN ('done', 'skipped')", 2 * _DAY_MS, key="row_id"),
        Retention("updates", f"{old} AND state = 'quarantined'", 30 * _DAY_MS, key="row_id"),
    )
