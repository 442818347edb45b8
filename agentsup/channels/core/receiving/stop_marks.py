"""A stop drops the unread texts that were sent before it.

A text is unread while its platform's received row is not handled, as while its own file or a file
before it is fetched, or while the store is slow. In the channel in which the stop was given, the
order of the rows decides, so that channel drops them itself: a row that is dropped in one
transaction cannot be accepted in a later one. In every other channel all rows that are stored when
the stop is written came before it: they are marked in the stop's transaction and dropped when they
are handled, also after a restart.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import Final

from agentsup.channels.core.receiving import rows as stored
from agentsup.channels.core.receiving.gate import StopScope
from agentsup.channels.core.receiving.messages import EventT
from agentsup.channels.core.receiving.rows import ReceivedRow, SkipReason
from agentsup.mailbox.messages import chat_key, chat_of_key, scopes_of, sessions
from agentsup.store import Reader, Tx

STOPPED: Final = "stopped"
"""The store topic that a stop touches once it has dropped or marked unread texts."""


def drop_tx(
    tx: Tx,
    scope: StopScope,
    row: ReceivedRow,
    *,
    agent_id: str,
    conversation: str,
    unread: Callable[[Reader, ReceivedRow], EventT | None],
    is_command: Callable[[str], bool],
) -> tuple[tuple[ReceivedRow, EventT], ...]:
    """Drop unread texts and files in ``scope`` that came before the stop ``row``; commands stay.

    ``unread`` reads a row; None if it is no text. A stop of one conversation also covers other
    conversations of its session. Returns the dropped ones of ``conversation``, whose people the
    answer to the stop notifies.
    """
    channel = row.owner.channel
    shared: frozenset[str] = frozenset()
    if scope.conversation:
        shared = conversations_of_session(tx, agent_id, channel, scope.conversation)
    chat_id = "" if shared else scope.conversation.partition("/")[0]
    here: list[tuple[ReceivedRow, EventT]] = []
    elsewhere: list[ReceivedRow] = []
    found = stored.waiting(tx, channel, before=row.row_id, bot_id=scope.bot_id, chat_id=chat_id)
    for each in found:
        event = unread(tx, each)
        if event is None or not event.has_content:
            continue
        if not event.attachments and is_command(event.text):
            continue
        if event.address.conversation == conversation:
            here.append((each, event))
        elif not scope.conversation or event.address.conversation in shared:
            elsewhere.append(each)
    stored.skip_tx(tx, [each for each, _ in here], SkipReason.STOPPED_HERE)
    stored.skip_tx(tx, elsewhere, SkipReason.STOPPED_ELSEWHERE)
    tx.touch(STOPPED)
    return tuple(here)


def mark_tx(tx: Tx, scope: str, given_in: str) -> None:
    """Mark all unread texts; called in the transaction that writes a stop.

    ``scope``: all | agent:<agent_id> | session:<session_id>. ``given_in``: the channel that has
    dropped its own rows already, or empty.
    """
    tx.execute(
        "DELETE FROM stop_marks WHERE NOT EXISTS (SELECT 1 FROM received AS r"
        " WHERE r.row_id = stop_marks.row_id AND r.state = 'received')"
    )
    tx.execute(
        "INSERT INTO stop_marks (channel, row_id, scope) SELECT channel, row_id, ? FROM received"
        " INDEXED BY received_open WHERE state = 'received' AND channel <> ?"
        " ON CONFLICT DO NOTHING",
        (scope, given_in),
    )
    tx.touch(STOPPED)


def is_marked(
    reader: Reader, rows: Sequence[ReceivedRow], *, agent_id: str, conversation: str
) -> bool:
    """Whether a stop from elsewhere covers one of these rows of this agent and conversation."""
    channel, row_ids = rows[0].owner.channel, [row.row_id for row in rows]
    session_id = sessions.current(reader, agent_id, chat_key(channel, conversation))
    found = reader.scalar(
        "SELECT 1 FROM stop_marks WHERE channel = ?"
        " AND row_id IN (SELECT value FROM json_each(?))"
        " AND scope IN (SELECT value FROM json_each(?)) LIMIT 1",
        (channel, json.dumps(row_ids), json.dumps(scopes_of(agent_id, session_id or ""))),
    )
    return found is not None


def conversations_of_session(
    reader: Reader, agent_id: str, channel: str, conversation: str
) -> frozenset[str]:
    """Return the other conversations of that agent and channel that are in the same session."""
    others = sessions.keys_beside(reader, agent_id, chat_key(channel, conversation))
    chats = map(chat_of_key, others)
    return frozenset(name for of_channel, name in chats if of_channel == channel)
