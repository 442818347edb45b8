"""What an event refers to: the message that it replies to, the thread it is in, what it edits.

An edit tells its new words only. Where it belongs and whom it is for is said by the message that it
edits, so an edit in a thread stays in its session, and one of a message for the bot is for the bot.
"""

from __future__ import annotations

from dataclasses import replace

from agentsup.channels.matrix import kept
from agentsup.channels.matrix.access import Room
from agentsup.channels.matrix.desk import SayDeps
from agentsup.channels.matrix.errors import MatrixError, TokenRefused
from agentsup.channels.matrix.event import Event, EventKind, Malformed, Me, Quoted, read
from agentsup.channels.matrix.kept import CHANNEL
from agentsup.channels.matrix.place import Place
from agentsup.channels.matrix.rooms import Rooms

__all__ = ["Context", "as_first_said"]

_MESSAGES = frozenset({EventKind.MESSAGE, EventKind.EDITED})
_COURTESY_S = 10.0
"""So long a quotation is waited for where nothing hangs on it."""


def as_first_said(edit: Event, raw: str, me: Me) -> Event:
    """The edit with what it inherits from the event ``raw`` that it edits."""
    try:
        first = read(kept.load(raw), edit.room_id, me)
    except (Malformed, ValueError):
        return edit
    if first.kind is not EventKind.MESSAGE or first.sender != edit.sender:
        return edit
    return replace(
        edit,
        thread_id=first.thread_id,
        reply_to=first.reply_to,
        addressed=edit.addressed or first.addressed,
    )


class Context:
    """Completes the events of one bot."""

    def __init__(self, deps: SayDeps, rooms: Rooms) -> None:
        self._deps = deps
        self._rooms = rooms

    def may_take_long(self, event: Event) -> bool:
        """Whether the homeserver may have to be asked; never for a stop, which needs nothing."""
        if event.is_stop:
            return False
        is_related = event.kind is EventKind.EDITED or event.reply_to or event.thread_id
        return event.kind in _MESSAGES and bool(is_related)

    async def of(self, event: Event, room: Room) -> Event:
        """The event with what it refers to; a thread that the bot talks in is for the bot.

        Raises a ``MatrixError`` where the homeserver is there but does not tell what decides
        whether, or as what, the event counts.
        """
        if event.kind not in _MESSAGES or event.is_stop:
            return event
        if event.kind is EventKind.EDITED:
            raw = await self._original(event)
            if raw is not None:
                event = as_first_said(event, raw, self._deps.me)
        is_private = room.is_private(self._deps.me.user_id, event.sender)
        if event.reply_to:
            event = replace(event, quoted=await self._quoted(event, room, is_private))
        is_ours = event.quoted is not None and event.quoted.is_ours
        if event.addressed or is_ours or event.thread_id is None or is_private:
            return event
        if await self.talks_in(event.place):
            return replace(event, addressed=True)
        root = await self._rooms.quoted(room, event.thread_id)
        return replace(event, addressed=root is not None and root.is_ours)

    async def _original(self, event: Event) -> str | None:
        deps = self._deps
        raw = await deps.database.read(
            lambda reader: kept.raw_of(reader, deps.owner, event.room_id, event.target_id),
            name="matrix.original",
        )
        if raw is not None:
            return raw
        found = await self._rooms.event(event.room_id, event.target_id)
        return None if found is None else kept.written(found)

    async def _quoted(self, event: Event, room: Room, is_private: bool) -> Quoted | None:
        if not is_private and not event.addressed:
            return await self._rooms.quoted(room, event.reply_to)
        try:
            return await self._rooms.quoted(room, event.reply_to, patience_s=_COURTESY_S)
        except TokenRefused:
            raise
        except MatrixError:
            return None

    async def talks_in(self, place: Place) -> bool:
        """Whether the bot was ever spoken to there."""
        found = await self._deps.database.read(
            lambda reader: reader.scalar(
                "SELECT 1 FROM conversations"
                " WHERE agent_id = ? AND channel = ? AND conversation = ?",
                (self._deps.agent_id, CHANNEL, place.conversation),
            ),
            name="matrix.talks_in",
        )
        return found is not None
