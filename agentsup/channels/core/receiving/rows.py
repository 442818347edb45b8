"""The received updates of all platforms: stored before they are confirmed, with the state of each.

A platform stores rows in the transaction that moves its position, and confirms them to its server
after the commit. So an update is handled at least once, and the ledger of the mailbox makes its
effect happen once (P1, P2). The state of a row is written in the transaction of its effect.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final

from agentsup.mailbox.messages import OPEN_SQL
from agentsup.store import Reader, Retention, Tx

_DAY_MS: Final = 24 * 3600 * 1000
_ERROR_CHARS: Final = 500
_OPEN: Final = "(state = 'received' OR skip_reason = 'stopped_elsewhere')"
"""As in the index ``received_open``."""
_COLUMNS: Final = "row_id, channel, bot_id, account, chat_id, external_id, raw, platform_id, begun"
_OF_BOT: Final = "channel = ? AND bot_id = ? AND account = ?"


class SkipReason(StrEnum):
    """Why a row needs no work. Stored."""

    STOPPED_HERE = "stopped_here"
    """A stop dropped it, and the answer to the stop tells its sender."""
    STOPPED_ELSEWHERE = "stopped_elsewhere"
    """A stop in another chat dropped it, and its sender is not notified yet."""
    UNCHANGED_EDIT = "unchanged_edit"
    EDIT_OF_ANOTHER = "edit_of_another"
    """An edit of another person's message."""
    NOTHING_TO_ANSWER = "nothing_to_answer"
    TOO_LATE = "too_late"
    ENCRYPTED = "encrypted"
    GAP = "gap"
    """It stands for older messages that were not read."""
    MOVED = "moved"
    """The group or room has another id now."""
    NOT_IN_ROOM = "not_in_room"
    NOT_ALLOWED = "not_allowed"
    """Its sender or its chat is not admitted, or it is not for the bot; the row's error says which."""
    DROPPED_BY_OPERATOR = "dropped_by_operator"


@dataclass(frozen=True, slots=True)
class RowOwner:
    """The owner of received rows.

    ``bot_id`` names the bot whose conversations belong together: Telegram's id, on Matrix the
    agent's id. ``account`` is the account that received, by the platform's id.
    """

    channel: str
    bot_id: str
    account: str


@dataclass(frozen=True, slots=True)
class ReceivedRow:
    """A row that is to be handled. ``external_id`` is the platform's name of the update.

    ``begun``: an earlier life began its command.
    """

    row_id: int
    owner: RowOwner
    chat_id: str
    external_id: str
    raw: str
    platform_id: str = ""
    """The message that it is or edits; empty for anything else."""
    begun: bool = False


@dataclass(frozen=True, slots=True)
class EarlierVersions:
    """Earlier versions of a platform message that were received."""

    raw: str = ""
    """The latest version that was admitted; empty if none is stored."""
    message_id: str = ""
    """The latest message that the agent got of it; empty if none."""


@dataclass(frozen=True, slots=True)
class PersonMessage:
    """A platform's message that became the agent's message ``message_id``."""

    message_id: str
    chat_id: str
    platform_id: str


def _row(found: Iterable[Any]) -> ReceivedRow:
    row_id, channel, bot_id, account, chat_id, external_id, raw, platform_id, begun = found
    owner = RowOwner(channel, bot_id, account)
    return ReceivedRow(row_id, owner, chat_id, external_id, raw, platform_id, bool(begun))


def add_tx(
    tx: Tx,
    owner: RowOwner,
    *,
    chat_id: str,
    external_id: str,
    platform_id: str,
    raw: str,
    at: int,
) -> ReceivedRow | None:
    """Store what a platform handed over at wall ms ``at``; None if it is stored already.

    ``platform_id`` names the message that it is or edits; it is empty for anything else.
    """
    cursor = tx.execute(
        "INSERT INTO received (channel, bot_id, account, chat_id, external_id, platform_id, raw,"
        " state, at) VALUES (?, ?, ?, ?, ?, ?, ?, 'received', ?) ON CONFLICT DO NOTHING",
        (*_key(owner), chat_id, external_id, platform_id, raw, at),
    )
    if not cursor.rowcount or cursor.lastrowid is None:
        return None
    return ReceivedRow(cursor.lastrowid, owner, chat_id, external_id, raw, platform_id)


def _key(owner: RowOwner) -> tuple[str, str, str]:
    return owner.channel, owner.bot_id, owner.account


def open_rows(
    reader: Reader, owner: RowOwner, *, after: int = 0, limit: int = 500
) -> list[ReceivedRow]:
    """Return unfinished rows after row ``after``, oldest first.

    They are still to be handled, or a stop from another chat has dropped them and their senders
    are not notified yet. Those that an operator released are returned by ``take_retries_tx``.
    """
    rows = reader.all(
        f"SELECT {_COLUMNS} FROM received WHERE {_OF_BOT} AND row_id > ? AND {_OPEN}"  # noqa: S608 - constants
        " AND retry_requested = 0 ORDER BY row_id LIMIT ?",
        (*_key(owner), after, limit),
    )
    return [_row(each) for each in rows]


def count_open(reader: Reader, owner: RowOwner) -> tuple[int, int]:
    """Return how many rows ``open_rows`` would return in all, and the ``row_id`` of the last."""
    (count, last), *_ = reader.all(
        f"SELECT COUNT(*), coalesce(MAX(row_id), 0) FROM received WHERE {_OF_BOT} AND {_OPEN}"  # noqa: S608 - constants
        " AND retry_requested = 0",
        _key(owner),
    )
    return count, last


def waiting(
    reader: Reader, channel: str, *, before: int, bot_id: str = "", chat_id: str = ""
) -> list[ReceivedRow]:
    """Return the messages and edits before row ``before`` that were not handled yet.

    They are of all bots and chats of the channel unless ``bot_id`` or ``chat_id`` is given.
    """
    # A stop calls this in a write transaction: without the index it would scan two days of rows.
    rows = reader.all(
        f"SELECT {_COLUMNS} FROM received INDEXED BY received_open"  # noqa: S608 - constants
        " WHERE channel = ? AND state = 'received' AND row_id < ? AND (? = '' OR bot_id = ?)"
        " AND (? = '' OR chat_id = ?) AND platform_id <> '' ORDER BY row_id",
        (channel, before, bot_id, bot_id, chat_id, chat_id),
    )
    return [_row(each) for each in rows]


def begin_tx(tx: Tx, row: ReceivedRow) -> None:
    """Mark that a command is about to run, so that it is not run again after a crash."""
    tx.execute("UPDATE received SET begun = 1 WHERE row_id = ?", (row.row_id,))


def done_tx(tx: Tx, rows: Sequence[ReceivedRow], *, message_id: str = "") -> None:
    """Mark rows as handled; ``message_id`` is the message that they became, if any."""
    tx.executemany(
        "UPDATE received SET state = 'done', skip_reason = NULL, message_id = ? WHERE row_id = ?",
        [(message_id, row.row_id) for row in rows],
    )


def skip_tx(tx: Tx, rows: Sequence[ReceivedRow], reason: SkipReason, why: str = "") -> None:
    """Mark rows that need no work; ``why`` is stored with them."""
    tx.executemany(
        "UPDATE received SET state = 'skipped', skip_reason = ?, error = ? WHERE row_id = ?",
        [(reason, why[:_ERROR_CHARS], row.row_id) for row in rows],
    )


def is_skipped(
    reader: Reader, rows: Sequence[ReceivedRow], reason: SkipReason | None = None
) -> bool:
    """Whether one of the rows was skipped, as by a stop; with ``reason``, for that reason."""
    return any(
        reader.scalar(
            "SELECT 1 FROM received"
            " WHERE row_id = ? AND state = 'skipped' AND (? IS NULL OR skip_reason = ?)",
            (row.row_id, reason, reason),
        )
        is not None
        for row in rows
    )


def quarantine_tx(tx: Tx, row: ReceivedRow, why: str) -> None:
    """Put a row that cannot be handled into quarantine, for a person to inspect."""
    tx.execute(
        "UPDATE received SET state = 'quarantined', skip_reason = NULL, error = ? WHERE row_id = ?",
        (why[:_ERROR_CHARS], row.row_id),
    )


def quarantined(reader: Reader, owner: RowOwner) -> int:
    """Count the rows of a bot that are in quarantine."""
    return int(
        reader.scalar(
            f"SELECT COUNT(*) FROM received WHERE {_OF_BOT} AND state = 'quarantined'",  # noqa: S608 - constants
            _key(owner),
        )
    )


def take_retries_tx(tx: Tx, owner: RowOwner) -> list[ReceivedRow]:
    """Take the rows that an operator released from quarantine, oldest first.

    Each is returned once.
    """
    rows = tx.all(
        "UPDATE received SET retry_requested = 0"  # noqa: S608 - constants
        f" WHERE {_OF_BOT} AND state = 'received' AND retry_requested = 1 RETURNING {_COLUMNS}",
        _key(owner),
    )
    return sorted((_row(each) for each in rows), key=lambda each: each.row_id)


def earlier(reader: Reader, row: ReceivedRow, platform_id: str = "") -> EarlierVersions:
    """Return what was received before of the message that ``row`` is or edits.

    With ``platform_id`` it is that message of its chat. A version that was not admitted is left
    out: nobody has read it.
    """
    rows = reader.all(
        "SELECT message_id, raw FROM received WHERE channel = ? AND bot_id = ? AND chat_id = ?"
        " AND platform_id = ? AND row_id < ? AND skip_reason IS NOT ? ORDER BY row_id",
        (
            *(row.owner.channel, row.owner.bot_id, row.chat_id, platform_id or row.platform_id),
            *(row.row_id, SkipReason.NOT_ALLOWED),
        ),
    )
    if not rows:
        return EarlierVersions()
    given = [each["message_id"] for each in rows if each["message_id"]]
    return EarlierVersions(rows[-1]["raw"], given[-1] if given else "")


def versions(
    reader: Reader,
    owner: RowOwner,
    chat_id: str,
    platform_ids: Sequence[str],
    message_id: str,
) -> dict[str, str]:
    """Return what a message was made of: the latest version of each of these platform messages."""
    rows = reader.all(
        "SELECT platform_id, raw FROM received WHERE channel = ? AND bot_id = ? AND chat_id = ?"
        " AND platform_id IN (SELECT value FROM json_each(?)) AND message_id = ? ORDER BY row_id",
        (owner.channel, owner.bot_id, chat_id, json.dumps(list(platform_ids)), message_id),
    )
    return {each["platform_id"]: each["raw"] for each in rows}


def of_open_messages(
    reader: Reader, channel: str, agent_id: str, *, limit: int
) -> list[PersonMessage]:
    """Return the platform messages of an agent's messages that have not ended."""
    rows = reader.all(
        "SELECT r.message_id, r.chat_id, r.platform_id"  # noqa: S608 - a constant
        " FROM received r JOIN messages m ON m.message_id = r.message_id"
        " WHERE r.channel = ? AND r.message_id <> '' AND r.platform_id <> '' AND m.agent_id = ?"
        f" AND m.{OPEN_SQL} LIMIT ?",
        (channel, agent_id, limit),
    )
    return [PersonMessage(*each) for each in rows]


def raw_of(reader: Reader, owner: RowOwner, chat_id: str, external_id: str) -> str | None:
    """Return an update as stored, in any state; None if it is not stored (any more)."""
    found = reader.scalar(
        f"SELECT raw FROM received WHERE {_OF_BOT} AND external_id = ? AND chat_id = ?",  # noqa: S608 - constants
        (*_key(owner), external_id, chat_id),
    )
    return found if isinstance(found, str) else None


def written(update: Mapping[str, Any]) -> str:
    """Return an update as the text that is stored."""
    return json.dumps(update, separators=(",", ":"))


def load(raw: str) -> Mapping[str, Any]:
    """Return a stored update as the platform gave it."""
    update: Mapping[str, Any] = json.loads(raw)
    return update


def retention_rules() -> tuple[Retention, ...]:
    """Return the retention rules of the table.

    Handled updates are removed after two days, as long as a message can be edited; quarantined ones
    after thirty. The table only grows at its end, so young rows are never scanned.
    """
    old = "row_id < coalesce((SELECT min(row_id) FROM received WHERE at >= :cutoff), 1 << 62)"
    return (
        Retention("received", f"{old} AND state IN ('done', 'skipped')", 2 * _DAY_MS, key="row_id"),
        Retention("received", f"{old} AND state = 'quarantined'", 30 * _DAY_MS, key="row_id"),
    )
