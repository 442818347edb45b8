"""Completes a Matrix event for the agent: its text, thread and edits, and the message that it
replies to.

An edit has only the new text. Its thread and its addressee are those of the message that it edits,
so an edit in a thread stays in its session, and one of a message for the bot is for the bot.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from agentsup.channels.core.errors import PlatformError, TokenRefused
from agentsup.channels.core.receiving import messages
from agentsup.channels.core.receiving import rows as stored
from agentsup.channels.core.receiving.raw import Malformed
from agentsup.channels.core.receiving.texts import Quoted, with_quote
from agentsup.channels.matrix.access import People, Room
from agentsup.channels.matrix.address import RoomAddress
from agentsup.channels.matrix.client import MatrixClient
from agentsup.channels.matrix.event import BotUser, RoomEvent, RoomEventKind, read
from agentsup.channels.matrix.menus import Menus
from agentsup.channels.matrix.received import CHANNEL
from agentsup.channels.matrix.rooms import RoomMembers
from agentsup.mailbox.delivery import is_known_conversation

ReceivedItem = messages.ReceivedItem[RoomEvent]
Lane = messages.Lane[RoomEvent]
_COURTESY_S = 10.0
"""The longest wait for a quotation on which no decision depends."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReceiveDependencies(messages.ReceiveDependencies):
    """The dependencies of the modules that receive messages for one agent."""

    me: BotUser
    client: MatrixClient
    people: People
    menus: Menus


def said(event: RoomEvent) -> str:
    """Return the text that the agent reads, with what it replies to."""
    blocks = (with_quote(event.text, event.quoted), *event.notes)
    return "\n".join(block for block in blocks if block.strip())


def as_first_said(edit: RoomEvent, raw: str, me: BotUser) -> RoomEvent:
    """Return the edit with what it inherits from the event ``raw`` that it edits."""
    try:
        first = read(stored.load(raw), edit.room_id, me)
    except (Malformed, ValueError):
        return edit
    if first.kind is not RoomEventKind.MESSAGE or first.sender != edit.sender:
        return edit
    return replace(
        edit,
        thread_id=first.thread_id,
        reply_to=first.reply_to,
        addressed=edit.addressed or first.addressed,
    )


class Context:
    """Completes the events of one bot."""

    def __init__(self, deps: ReceiveDependencies, rooms: RoomMembers) -> None:
        self._deps = deps
        self._rooms = rooms

    def may_take_long(self, event: RoomEvent) -> bool:
        """Whether the homeserver may have to be asked; never for a stop, which needs nothing."""
        if event.is_stop:
            return False
        is_related = event.kind is RoomEventKind.EDITED or event.reply_to or event.thread_id
        return event.is_message and bool(is_related)

    async def of(self, event: RoomEvent, room: Room) -> RoomEvent:
        """Return the event with what it refers to; a thread that the bot talks in is for the bot.

        Raises a ``PlatformError`` if a reachable homeserver does not return what is needed to decide
        whether, or how, the event is handled.
        """
        if not event.is_message or event.is_stop:
            return event
        if event.kind is RoomEventKind.EDITED:
            raw = await self._original(event)
            if raw is not None:
                event = as_first_said(event, raw, self._deps.me)
        is_private = room.is_private(self._deps.me.user_id, event.sender)
        if event.reply_to:
            event = replace(event, quoted=await self._quoted(event, room, is_private))
        is_ours = event.quoted is not None and event.quoted.is_ours
        if event.addressed or is_ours or event.thread_id is None or is_private:
            return event
        if await self.talks_in(event.address):
            return replace(event, addressed=True)
        root = await self._rooms.quoted(room, event.thread_id)
        return replace(event, addressed=root is not None and root.is_ours)

    async def _original(self, event: RoomEvent) -> str | None:
        deps = self._deps
        raw = await deps.database.read(
            stored.raw_of, deps.owner, event.room_id, event.target_id, name="matrix.original"
        )
        if raw is not None:
            return raw
        found = await self._rooms.event(event.room_id, event.target_id)
        return None if found is None else stored.written(found)

    async def _quoted(self, event: RoomEvent, room: Room, is_private: bool) -> Quoted | None:
        if not is_private and not event.addressed:
            return await self._rooms.quoted(room, event.reply_to)
        try:
            return await self._rooms.quoted(room, event.reply_to, patience_s=_COURTESY_S)
        except TokenRefused:
            raise
        except PlatformError:
            return None

    async def talks_in(self, address: RoomAddress) -> bool:
        """Whether the bot was ever spoken to there."""
        return await self._deps.database.read(
            is_known_conversation,
            self._deps.agent_id,
            CHANNEL,
            address.conversation,
            name="matrix.talks_in",
        )
