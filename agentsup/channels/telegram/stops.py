"""What a stop in a chat does to texts that nobody has read yet: they are not begun after it.

A text waits unread while a file before it is fetched, or its own, or while the store is slow. It
was sent before the stop, so it is dropped by the stop like what waits in the mailbox. The rows of
updates decide: one that is dropped in a transaction can't be accepted in a later one.
"""

from __future__ import annotations

from collections.abc import Callable

from agentsup.channels.stop_marks import sharing
from agentsup.channels.stops import ELSEWHERE, HERE, Scope, scope_of
from agentsup.channels.telegram import updates
from agentsup.channels.telegram.event import Event, EventKind, Malformed, Me, read
from agentsup.channels.telegram.updates import Row
from agentsup.store.database import Tx

__all__ = ["ELSEWHERE", "HERE", "Scope", "drop_tx", "scope_of"]

_TEXTS = frozenset({EventKind.MESSAGE, EventKind.EDITED})


def drop_tx(
    tx: Tx,
    scope: Scope,
    row: Row,
    *,
    me: Me,
    agent_id: str,
    conversation: str,
    is_command: Callable[[str], bool],
) -> tuple[tuple[Row, Event], ...]:
    """Drop the texts and files in ``scope`` that came before the stop ``row`` and are not in a
    mailbox yet; commands stay. A stop of one conversation is one of its session, wherever else that
    is. Returns those of ``conversation``, whose people are told by the answer to the stop."""
    shared: frozenset[str] = frozenset()
    if scope.conversation:
        shared = sharing(tx, agent_id, updates.CHANNEL, scope.conversation)
    one_chat = scope.conversation and not shared
    chat_id = int(scope.conversation.partition("/")[0]) if one_chat else None
    found = updates.waiting(tx, before=row.row_id, bot_id=scope.bot_id, chat_id=chat_id)
    here: list[tuple[Row, Event]] = []
    elsewhere: list[Row] = []
    for each in found:
        try:
            event = read(updates.load(each.raw), me)
        except (Malformed, ValueError):
            continue
        if event.kind not in _TEXTS or not event.has_content:
            continue
        if not event.attachments and is_command(event.text):
            continue
        place = event.place.conversation
        if place == conversation:
            here.append((each, event))
        elif not scope.conversation or place in shared:
            elsewhere.append(each)
    updates.skip_tx(tx, [each for each, _ in here], HERE)
    updates.skip_tx(tx, elsewhere, ELSEWHERE)
    return tuple(here)
