"""The Matrix channel of the outbox: one part becomes pieces, each an event that is shown once.

A piece carries a transaction id made from its part. If its answer was lost, or a crash interrupted
it, it is sent again and the homeserver recognises it (P2). It does so for about a day and for one
device; an older attempt has an unknown outcome, and only then is the person asked.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Final

from agentsup.catalogue import words
from agentsup.channels.core.errors import NotAllowed, NotSent, PlatformError, RequestRefused
from agentsup.channels.core.files.upload import unreadable
from agentsup.channels.core.receiving.raw import maybe_of
from agentsup.channels.core.sending.buttons import ONLY_WITH
from agentsup.channels.core.sending.deliver import (
    DeliverySettings,
    PieceChannel,
    delivery_for,
    later,
)
from agentsup.channels.matrix.address import RoomAddress, parse
from agentsup.channels.matrix.client import MatrixClient
from agentsup.channels.matrix.encryption_guard import IN_CLEAR
from agentsup.channels.matrix.errors import EventTooLarge
from agentsup.channels.matrix.outgoing import (
    MESSAGE,
    REPLACES,
    OutgoingEvent,
    could_not_send,
    edit_of,
    new_of,
    pieces_of,
    reply_of,
    txn_of,
)
from agentsup.channels.matrix.render import render_plain
from agentsup.channels.matrix.sender import Sender
from agentsup.kit.clock import Clock
from agentsup.kit.log import get_logger
from agentsup.model.channel import Begin, Delivery, DeliveryOutcome, OutboxPart
from agentsup.model.errors import AgentsupError, Overloaded, StoreUnavailable

_log = get_logger(__name__)

KEY_STORED_MS: Final = 20 * 3_600_000
"""Homeservers remember a transaction id for 24 hours; 4 of them are a margin for their clocks."""
_UNREACHED_CAP_S = 30.0
_TIMEOUT_S = 20.0
_ALONE_S = 10.0
_UNFIT_S = 600.0
_UNFIT_MAX = 200
_SMALL_BYTES = 6_000
_UNDELIVERABLE_ATTEMPTS = 8
"""After so many attempts with an unknown outcome it is checked whether the server works."""


@dataclass(frozen=True, slots=True)
class BotHandle:
    """The part of a running bot that the channel uses."""

    client: MatrixClient
    sender: Sender
    settings: Callable[[], DeliverySettings]
    takeover: Callable[[str], Awaitable[str | None]] | None = None
    """For a message id, returns the event in which its answer was streamed."""
    offered: Callable[[RoomAddress, str, OutgoingEvent], Awaitable[None]] | None = None
    """Called for each event with choices, before it counts as delivered."""
    keys_since_ms: int = 0
    """Since when (wall ms) the homeserver knows this device; transaction ids are per device."""
    tell: Callable[[str], Awaitable[None]] | None = None
    """Sends a text to the operator, in the most suitable way."""


class MatrixChannel(PieceChannel[BotHandle, RoomAddress, OutgoingEvent]):
    """Implements ``model.channel.Channel`` for all Matrix bots of a daemon."""

    name = "matrix"
    idempotent = True

    def __init__(self, clock: Clock) -> None:
        super().__init__()
        self._clock = clock
        self._uploaded: dict[int, tuple[str, int]] = {}
        self._unreached: dict[str, int] = {}
        """Failures in a row to reach the server, by agent."""
        self._unusable_rooms: dict[tuple[str, str], float] = {}
        """Rooms that did not take a part for one person alone, by agent: until when no such part
        is tried there, by the loop's clock."""

    def attach(self, agent_id: str, bot: BotHandle) -> None:
        """Deliver the parts of this agent through ``bot`` from now on."""
        super().attach(agent_id, bot)
        self._unreached.pop(agent_id, None)

    def _where(self, part: OutboxPart) -> RoomAddress:
        return parse(part.conversation)

    async def _rendered(
        self, part: OutboxPart, bot: BotHandle, where: RoomAddress
    ) -> tuple[OutgoingEvent, ...]:
        return await pieces_of(part, bot.settings())

    async def _deliver_piece(
        self,
        bot: BotHandle,
        part: OutboxPart,
        where: RoomAddress,
        piece: OutgoingEvent,
        begin: Begin,
        *,
        more: bool,
    ) -> Delivery:
        if self._is_too_late(part, bot):
            self._forget(part)
            why = "it was begun so long ago that the homeserver would not recognise it"
            return Delivery(DeliveryOutcome.UNKNOWN, why, more=more, is_final=True)
        only_with = part.body.get(ONLY_WITH)
        if only_with and await self.alone_with(part.agent_id, part.conversation) != only_with:
            return await self._elsewhere(bot, part, where, "others may be in the room")
        try:
            event_ids = await self._send(bot, part, where, piece)
        except (StoreUnavailable, Overloaded) as error:
            return Delivery(DeliveryOutcome.RETRY, error.message)
        except PlatformError as error:
            said = await self._delivery_for(error, part, bot, where, more=more)
            if said.outcome is not DeliveryOutcome.RETRY:
                self._forget(part)
            if said.outcome is DeliveryOutcome.REFUSED and only_with:
                return await self._elsewhere(bot, part, where, said.detail)
            return said
        self._unreached.pop(part.agent_id, None)
        self._uploaded.pop(part.outbox_id, None)
        return Delivery(DeliveryOutcome.DELIVERED, more=more, platform_ids=event_ids)

    async def alone_with(self, agent_id: str, conversation: str) -> str:
        """Return the one person who is in that room with the agent's bot, by a request.

        Empty if there are more or none, if that is not known, or if the room may get no messages.
        """
        bot = self._bots.get(agent_id)
        if bot is None:
            return ""
        try:
            room_id = parse(conversation).room_id
            if self._unusable_rooms.get((agent_id, room_id), 0.0) > self._clock.monotonic():
                return ""
            async with asyncio.timeout(_ALONE_S):
                await bot.sender.check(room_id)
                members = (await bot.client.members(room_id)).keys()
        except (PlatformError, ValueError, TimeoutError) as error:
            _log.debug(f"who is in {conversation} is not known: {error}")
            return ""
        others = members - {bot.client.user_id}
        return next(iter(others)) if len(others) == 1 < len(members) else ""

    async def _elsewhere(
        self, bot: BotHandle, part: OutboxPart, address: RoomAddress, why: str
    ) -> Delivery:
        """Send a part that is for one person alone to the operator in another way.

        The room gets no such part for some time, so that the same text does not return here again
        and again.
        """
        if len(self._unusable_rooms) >= _UNFIT_MAX:
            del self._unusable_rooms[next(iter(self._unusable_rooms))]
        self._unusable_rooms[part.agent_id, address.room_id] = self._clock.monotonic() + _UNFIT_S
        if bot.tell is not None:
            try:
                await bot.tell(str(part.body.get("text") or ""))
            except AgentsupError as error:
                return Delivery(DeliveryOutcome.RETRY, error.message)
        return Delivery(DeliveryOutcome.REFUSED, why)

    def _forget(self, part: OutboxPart) -> None:
        super()._forget(part)
        self._uploaded.pop(part.outbox_id, None)

    def _is_too_late(self, part: OutboxPart, bot: BotHandle) -> bool:
        if not part.begun_at:
            return False
        is_forgotten = self._clock.now_ms() - part.begun_at > KEY_STORED_MS
        return is_forgotten or part.begun_at < bot.keys_since_ms

    # -- one piece ---------------------------------------------------------------------------------

    async def _send(
        self, bot: BotHandle, part: OutboxPart, address: RoomAddress, piece: OutgoingEvent
    ) -> tuple[str, ...]:
        """Send one piece and return the ids of the events that show it, one as a rule."""
        in_clear = bool(part.body.get(IN_CLEAR))
        if piece.file is not None and not in_clear:
            await bot.sender.check(address.room_id)  # before the upload
        txn_id = txn_of(part)
        there_id = await self._there(bot, part, address) if piece.file is None else None
        content = await self._content(bot, part, piece)
        put = partial(_put, bot.sender, address, in_clear=in_clear)
        try:
            event_ids = [await put(content, txn_id, there_id)]
        except EventTooLarge:
            parts = render_plain(piece.piece.body, limit=_SMALL_BYTES)
            if len(parts) < 2:
                raise
            # A proxy before the homeserver may have a lower limit; nothing was sent.
            event_ids = []
            for number, each in enumerate(parts):
                content = replace(piece, piece=each).content()
                event_ids.append(await put(content, f"{txn_id}-s{number}", there_id))
                there_id = None
        if piece.choices and bot.offered is not None:
            await bot.offered(address, event_ids[-1], piece)
        return tuple(event_ids)

    async def _there(self, bot: BotHandle, part: OutboxPart, address: RoomAddress) -> str | None:
        """Return the event whose content the part replaces, such as the stream of an answer, if
        people can still see it."""
        if part.progress:
            return None
        event_id = part.body.get(REPLACES)
        if part.kind == "answer" and bot.takeover is not None:
            event_id = await bot.takeover(part.message_id)
        if not isinstance(event_id, str) or not event_id:
            return None
        try:
            event = await bot.client.event(address.room_id, event_id)
        except RequestRefused:
            return None
        return None if "redacted_because" in maybe_of(event, "unsigned") else event_id

    async def _content(
        self, bot: BotHandle, part: OutboxPart, piece: OutgoingEvent
    ) -> dict[str, Any]:
        """Return what to send; a file is uploaded once for all attempts of this process."""
        if piece.file is None:
            return piece.content()
        say = words(str(part.body.get("language") or ""))
        uploaded = self._uploaded.get(part.outbox_id)
        if uploaded is None:
            try:
                mxc = await bot.client.upload(piece.file, piece.mime)
                size = piece.size
            except OSError as error:
                why = unreadable(error, say)
                if piece.is_needed:
                    raise RequestRefused(0, why, "unreadable") from error
                return could_not_send(piece.file, why, say).content()
            except RequestRefused as error:
                if piece.is_needed:
                    raise
                return could_not_send(piece.file, error.description, say).content()
            uploaded = self._uploaded[part.outbox_id] = (mxc, size)
        mxc, size = uploaded
        return piece.content(mxc=mxc, size=size)

    # -- results of a call -------------------------------------------------------------------------

    async def _delivery_for(
        self,
        error: PlatformError,
        part: OutboxPart,
        bot: BotHandle,
        address: RoomAddress,
        *,
        more: bool,
    ) -> Delivery:
        match error:
            case NotSent():
                failures = self._unreached[part.agent_id] = (
                    self._unreached.get(part.agent_id, 0) + 1
                )
                return later(error.message, min(_UNREACHED_CAP_S, 0.5 * 2.0 ** min(failures, 10)))
            case EventTooLarge() | NotAllowed():
                return Delivery(DeliveryOutcome.REFUSED, await self._why(error, bot, address))
        found = delivery_for(error)
        if found.outcome is not DeliveryOutcome.UNKNOWN:
            return found
        if part.attempts >= _UNDELIVERABLE_ATTEMPTS and await self._is_well(bot, address):
            # This event alone makes the server fail; later parts must not wait for it.
            return replace(found, more=more, is_final=True)
        return replace(found, outcome=DeliveryOutcome.RETRY)

    async def _why(self, error: RequestRefused, bot: BotHandle, address: RoomAddress) -> str:
        """Return why a room refuses the event; for a replaced room, name the new one."""
        try:
            tombstone = await bot.client.state(address.room_id, "m.room.tombstone")
        except PlatformError:
            tombstone = None
        if not tombstone:
            return error.message
        return (
            f"the room was replaced by {tombstone.get('replacement_room') or 'another'}; "
            f"invite the bot there ({error.message})"
        )

    async def _is_well(self, bot: BotHandle, address: RoomAddress) -> bool:
        """Whether the server answers a harmless request about this room."""
        try:
            await bot.client.state(address.room_id, "m.room.create")
        except PlatformError as error:
            return isinstance(error, RequestRefused)
        return True


async def _put(
    sender: Sender,
    address: RoomAddress,
    content: Mapping[str, Any],
    txn_id: str,
    there_id: str | None,
    *,
    in_clear: bool,
) -> str:
    """Send the content, or edit an event to it; return the id of the event that shows it."""
    send = partial(sender.send, address.room_id, MESSAGE, timeout_s=_TIMEOUT_S, in_clear=in_clear)
    if there_id is not None:
        await send(edit_of(content, there_id), txn_id=f"{txn_id}-e")
        return there_id
    try:
        return await send(new_of(content, address), txn_id=txn_id)
    except RequestRefused as error:
        if address.thread_id is None or error.number != 400:
            raise
    # No thread can begin with that event, as it belongs to another one: reply to it instead.
    return await send(reply_of(content, address.thread_id), txn_id=f"{txn_id}-f")
