"""Stored updates of Telegram bots, and the offset up to which they were read.

``store_tx`` writes rows and offset in one transaction. Only after it is durable may the next poll
carry the higher offset, which confirms the updates to Telegram.
"""

from __future__ import annotations

import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from agentsup.channels.core.receiving import rows as stored
from agentsup.channels.core.receiving.raw import is_int
from agentsup.channels.core.receiving.rows import ReceivedRow, RowOwner
from agentsup.kit import faults
from agentsup.mailbox.queue import open_of
from agentsup.store import Reader, Tx

CHANNEL: Final = "telegram"
SILENCE_MS: Final = 6 * 24 * 3600 * 1000
"""After a week without updates Telegram may restart its numbers below our offset, and an offset
that is too high would confirm new updates unread. So after this silence we poll without one."""
_DRAFT_ID_MASK: Final = 0x7FFF_FFFF
_NEAR: Final = 100
"""Largest distance between the platform's ids of the messages of one album."""


@dataclass(frozen=True, slots=True)
class Offset:
    """The offset up to which a bot's updates were read.

    ``run`` counts how often Telegram restarted its numbers. ``next_offset`` 0: nothing was read
    yet. ``last_update_at`` is the time of the last update in wall ms.
    """

    run: int = 0
    next_offset: int = 0
    last_update_at: int = 0

    def to_ask(self, now: int) -> int | None:
        """Return the offset for the next poll, or None if the numbers may have restarted."""
        if not self.next_offset or now - self.last_update_at >= SILENCE_MS:
            return None
        return self.next_offset


def row_owner(bot_id: str) -> RowOwner:
    """Return the owner of the rows of a bot."""
    return RowOwner(CHANNEL, bot_id, bot_id)


def ledger_id(row: ReceivedRow) -> str:
    """Return the row's name in the ledger, unique even when Telegram restarts its numbers."""
    return f"update:{row.owner.account}:{row.external_id}"


def offset_of(reader: Reader, bot_id: str) -> Offset:
    """Return the position from which to read on."""
    row = reader.one(
        "SELECT run, next_offset, heard_at FROM poll_offsets WHERE channel = ? AND bot_id = ?",
        (CHANNEL, bot_id),
    )
    return Offset() if row is None else Offset(*row)


def store_tx(
    tx: Tx, bot_id: str, batch: Sequence[Mapping[str, Any]], *, at: int
) -> tuple[Offset, list[ReceivedRow]]:
    """Store a batch of raw updates and move the offset; return the offset and the new rows.

    An update that is stored already is skipped. Another update with a lower number than the offset
    shows that Telegram has restarted its numbers, for it never sends a confirmed update again.
    """
    owner, offset = row_owner(bot_id), offset_of(tx, bot_id)
    run, following = offset.run, offset.next_offset
    rows: list[ReceivedRow] = []
    for update in sorted(batch, key=lambda each: int(each["update_id"])):
        update_id, raw = int(update["update_id"]), stored.written(update)
        chat_id, platform_id = _ids(update)
        if update_id < following:
            if stored.raw_of(tx, owner, chat_id, _external_id(run, update_id)) == raw:
                continue
            run, following = run + 1, update_id
        row = stored.add_tx(
            tx,
            owner,
            chat_id=chat_id,
            external_id=_external_id(run, update_id),
            platform_id=platform_id,
            raw=raw,
            at=at,
        )
        following = max(following, update_id + 1)
        if row is not None:
            rows.append(row)
    new = Offset(run, following, at)
    tx.execute(
        "INSERT INTO poll_offsets (channel, bot_id, run, next_offset, heard_at)"
        " VALUES (?, ?, ?, ?, ?) ON CONFLICT DO UPDATE SET run = excluded.run,"
        " next_offset = excluded.next_offset, heard_at = excluded.heard_at",
        (CHANNEL, bot_id, new.run, new.next_offset, new.last_update_at),
    )
    faults.platform_point("telegram", "before_commit")
    return new, rows


def draft_id_of(message_id: str) -> int:
    """Return the id of a preview; drafts with the same id replace each other."""
    return zlib.crc32(message_id.encode()) & _DRAFT_ID_MASK or 1


def has_open_draft(reader: Reader, agent_id: str, draft_id: int) -> bool:
    """Whether that draft shows the answer to a message of the agent that has not ended."""
    return any(draft_id_of(each) == draft_id for each in open_of(reader, agent_id))


def _external_id(run: int, update_id: int) -> str:
    return f"{run}.{update_id}" if run else f"{update_id}"


def _ids(update: Mapping[str, Any]) -> tuple[str, str]:
    """Return chat id and message id of a message or an edit; empty for any other update."""
    body = update.get("message") or update.get("edited_message")
    chat = body.get("chat") if isinstance(body, Mapping) else None
    if not isinstance(body, Mapping) or not isinstance(chat, Mapping):
        return "", ""
    return _number(chat.get("id")), _number(body.get("message_id"))


def _number(value: object) -> str:
    return str(value) if is_int(value) else ""


def pieces(reader: Reader, row: ReceivedRow, platform_id: int, message_id: str) -> dict[int, str]:
    """Return the raw updates of which a message was made, the latest per platform message id.

    ``row`` is an update of its chat.

    The ids of an album are close to each other, so only ids near ``platform_id`` are searched.
    """
    near = [str(each) for each in range(platform_id - _NEAR, platform_id + _NEAR + 1)]
    found = stored.versions(reader, row.owner, row.chat_id, near, message_id)
    return {int(each): raw for each, raw in found.items()}
