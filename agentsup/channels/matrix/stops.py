"""What a stop in a room does to texts that nobody has read yet: they are not begun after it.

A text waits unread while a file before it is fetched, or its own, or while the store is slow. It
was sent before the stop, so it is dropped by the stop like what waits in the mailbox. The rows of
events decide: one that is dropped in a transaction can't be accepted in a later one.
"""

from __future__ import annotations

from collections.abc import Callable

from agentsup.channels.matrix import kept
from agentsup.channels.matrix.context import as_first_said
from agentsup.channels.matrix.event import Event, EventKind, Malformed, Me, read
from agentsup.channels.matrix.kept import Row
from agentsup.channels.stop_marks import sharing
from agentsup.channels.stops import ELSEWHERE, HERE, Scope, scope_of
from agentsup.store.database import Tx

__all__ = ["ELSEWHERE", "HERE", "Scope", "drop_tx", "scope_of"]

_TEXTS = frozenset({EventKind.MESSAGE, EventKind.EDITED})


def drop_tx(
    tx: Tx,
    scope: Scope,
    row: Row,
    *,
    me: Me,
    conversation: str,
    is_command: Callable[[str], bool],
) -> tuple[tuple[Row, Event], ...]:
    """Drop the texts and files in ``scope`` (its ``bot_id`` is an agent's id) that came before the
    stop ``row`` and are not in a mailbox yet; commands stay. A stop of one conversation is one of
    its session, wherever else that is. Returns those of ``conversation``, whose people are told by
    the answer to the stop."""
    shared: frozenset[str] = frozenset()
    if scope.conversation:
        shared = sharing(tx, scope.bot_id, kept.CHANNEL, scope.conversation)
    room_id = "" if shared else scope.conversation.partition("/")[0]
    here: list[tuple[Row, Event]] = []
    elsewhere: list[Row] = []
    for each in kept.waiting(tx, before=row.row_id, agent_id=scope.bot_id, room_id=room_id):
        try:
            event = read(kept.load(each.raw), each.room_id, me)
        except (Malformed, ValueError):
            continue
        if event.kind not in _TEXTS or not event.has_content or event.sender == me.user_id:
            continue
        if not event.attachments and is_command(event.text):
            continue
        if event.kind is EventKind.EDITED:
            raw = kept.original_of(tx, each, event.target_id)
            event = event if raw is None else as_first_said(event, raw, me)
        place = event.place.conversation
        if place == conversation:
            here.append((each, event))
        elif not scope.conversation or place in shared:
            elsewhere.append(each)
    kept.skip_tx(tx, [each for each, _ in here], HERE)
    kept.skip_tx(tx, elsewhere, ELSEWHERE)
    return tuple(here)
