"""The Matrix channel of the outbox: one part becomes pieces, each an event that is shown once.

A piece carries a transaction id made of its part, so one whose answer was lost, or that a crash cut
off, goes again and the homeserver recognises it (P2). It does so for about a day and for one
device; an older beginning is of unknown fate, and only then is the person asked.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Final, Protocol

from agentsup.catalogue import words
from agentsup.channels.attachment import unreadable
from agentsup.channels.matrix.clear import IN_CLEAR
from agentsup.channels.matrix.errors import (
    Dropped,
    MatrixError,
    NotAllowed,
    NotSent,
    RateLimited,
    Refused,
    TokenRefused,
    TooLong,
)
from agentsup.channels.matrix.outgoing import (
    MESSAGE,
    REPLACES,
    MatrixSettings,
    Outgoing,
    could_not_send,
    edit_of,
    new_of,
    pieces_of,
    reply_of,
    txn_of,
)
from agentsup.channels.matrix.place import Place, parse
from agentsup.channels.matrix.render import render_plain
from agentsup.channels.matrix.sender import Sender
from agentsup.channels.private import ONLY_WITH
from agentsup.channels.upload import UploadFile
from agentsup.kit.clock import Clock
from agentsup.model.channel import Begin, Delivery, DeliveryOutcome, OutboxPart
from agentsup.model.errors import AgentsupError, Overloaded, StoreUnavailable

__all__ = ["NOT_ATTACHED", "BotHandle", "MatrixChannel", "MatrixSettings", "Offered"]

_log = logging.getLogger(__name__)

NOT_ATTACHED = "the bot is not connected"
"""The detail of a part that waits for its bot; see `mailbox.outbox.wake_tx`."""
KEY_KEPT_MS: Final = 20 * 3_600_000
"""Homeservers remember a transaction id for 24 hours; some of it is for clocks that differ."""
_ABSENT_S = 5.0
_UNWELL_S = 30.0
_UNREACHED_CAP_S = 30.0
_TIMEOUT_S = 20.0
_KEPT_PARTS = 64
_ALONE_S = 10.0
_UNFIT_S = 600.0
_UNFIT_MAX = 200
_SMALL_BYTES = 6_000
_POISON_ATTEMPTS = 8
"""So often the fate of one event is unknown before it is asked whether the server is well."""


class Client(Protocol):
    """What is needed of a bot's client besides its sender."""

    @property
    def user_id(self) -> str: ...

    async def members(self, room_id: str) -> dict[str, Any]: ...

    async def upload(self, file: UploadFile, content_type: str) -> str: ...

    async def event(self, room_id: str, event_id: str) -> dict[str, Any]: ...

    async def state(
        self, room_id: str, event_type: str, state_key: str = ""
    ) -> dict[str, Any] | None: ...


class Offered(Protocol):
    """Told of each event that people can press something at, before it counts as delivered."""

    async def __call__(self, place: Place, event_id: str, piece: Outgoing) -> None: ...


@dataclass(frozen=True, slots=True)
class BotHandle:
    """What the channel needs of a running bot."""

    client: Client
    sender: Sender
    settings: Callable[[], MatrixSettings]
    takeover: Callable[[str], Awaitable[str | None]] | None = None
    """Given a message id: the event in which its answer was streamed."""
    offered: Offered | None = None
    keys_since_ms: int = 0
    """Since when (wall ms) the homeserver knows this device; its memory of keys is the device's."""
    tell: Callable[[str], Awaitable[None]] | None = None
    """Says something to the operator, where he hears it best."""


class MatrixChannel:
    """Implements ``model.channel.Channel`` for all Matrix bots of a daemon."""

    name = "matrix"
    idempotent = True
    in_pieces = True

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._bots: dict[str, BotHandle] = {}
        self._kept: dict[int, tuple[Outgoing, ...]] = {}
        self._uploaded: dict[int, tuple[str, int]] = {}
        self._unreached: dict[str, int] = {}
        """Failures in a row to reach the server, by agent."""
        self._unfit: dict[tuple[str, str], float] = {}
        """Rooms that did not take words for one person alone, by agent: until when no others are
        tried there, by the loop's clock."""

    def attach(self, agent_id: str, bot: BotHandle) -> None:
        """Deliver the parts of this agent through ``bot`` from now on."""
        self._bots[agent_id] = bot
        self._unreached.pop(agent_id, None)

    def detach(self, agent_id: str) -> None:
        """The agent's parts wait from now on."""
        self._bots.pop(agent_id, None)

    async def deliver(self, part: OutboxPart, begin: Begin) -> Delivery:
        """Send the piece at ``part.progress`` and say what became of it."""
        bot = self._bots.get(part.agent_id)
        if bot is None:
            return _later(NOT_ATTACHED, _ABSENT_S)
        try:
            place = parse(part.conversation)
        except ValueError as error:
            return Delivery(DeliveryOutcome.REFUSED, str(error))
        pieces = await self._pieces(part, bot)
        if part.progress >= len(pieces):
            self._forget(part)
            return Delivery(DeliveryOutcome.DELIVERED)
        has_more = part.progress + 1 < len(pieces)
        if self._is_too_late(part, bot):
            self._forget(part)
            why = "it was begun so long ago that the homeserver would not recognise it"
            return Delivery(DeliveryOutcome.UNKNOWN, why, more=has_more, is_final=True)
        only_with = part.body.get(ONLY_WITH)
        if only_with and await self.alone_with(part.agent_id, part.conversation) != only_with:
            return await self._elsewhere(bot, part, place, "others may be in the room")
        try:
            event_ids = await self._send(bot, part, place, pieces[part.progress])
        except (StoreUnavailable, Overloaded) as error:
            return Delivery(DeliveryOutcome.RETRY, error.message)
        except MatrixError as error:
            said = await self._said(error, part, bot, place, has_more=has_more)
            if said.outcome is not DeliveryOutcome.RETRY:
                self._forget(part)
            if said.outcome is DeliveryOutcome.REFUSED and only_with:
                return await self._elsewhere(bot, part, place, said.detail)
            return said
        self._unreached.pop(part.agent_id, None)
        self._uploaded.pop(part.outbox_id, None)
        if not has_more:
            self._forget(part)
        return Delivery(DeliveryOutcome.DELIVERED, more=has_more, platform_ids=event_ids)

    async def alone_with(self, agent_id: str, conversation: str) -> str:
        """The one person who is in that room with the agent's bot, asked now, if words may go
        there; empty if there are more or none, or nobody can say."""
        bot = self._bots.get(agent_id)
        if bot is None:
            return ""
        try:
            room_id = parse(conversation).room_id
            if self._unfit.get((agent_id, room_id), 0.0) > self._clock.monotonic():
                return ""
            async with asyncio.timeout(_ALONE_S):
                await bot.sender.check(room_id)
                members = (await bot.client.members(room_id)).keys()
        except (MatrixError, ValueError, TimeoutError) as error:
            _log.debug("who is in %s is not known: %s", conversation, error)
            return ""
        others = members - {bot.client.user_id}
        return next(iter(others)) if len(others) == 1 < len(members) else ""

    async def _elsewhere(
        self, bot: BotHandle, part: OutboxPart, place: Place, why: str
    ) -> Delivery:
        """What is for one person alone can't be said here: say it to the operator otherwise, and
        not here again, lest it comes back for ever."""
        if len(self._unfit) >= _UNFIT_MAX:
            del self._unfit[next(iter(self._unfit))]
        self._unfit[part.agent_id, place.room_id] = self._clock.monotonic() + _UNFIT_S
        if bot.tell is not None:
            try:
                await bot.tell(str(part.body.get("text") or ""))
            except AgentsupError as error:
                return Delivery(DeliveryOutcome.RETRY, error.message)
        return Delivery(DeliveryOutcome.REFUSED, why)

    def _forget(self, part: OutboxPart) -> None:
        self._kept.pop(part.outbox_id, None)
        self._uploaded.pop(part.outbox_id, None)

    def _is_too_late(self, part: OutboxPart, bot: BotHandle) -> bool:
        if not part.begun_at:
            return False
        is_forgotten = self._clock.now_ms() - part.begun_at > KEY_KEPT_MS
        return is_forgotten or part.begun_at < bot.keys_since_ms

    async def _pieces(self, part: OutboxPart, bot: BotHandle) -> tuple[Outgoing, ...]:
        """The pieces of a part; kept while it is under way, so that settings changed meanwhile
        and long texts do no harm."""
        kept = self._kept.get(part.outbox_id)
        if kept is None:
            kept = await pieces_of(part, bot.settings())
            if len(self._kept) >= _KEPT_PARTS:
                del self._kept[next(iter(self._kept))]
            if len(kept) > 1:
                self._kept[part.outbox_id] = kept
        return kept

    # -- one piece ---------------------------------------------------------------------------------

    async def _send(
        self, bot: BotHandle, part: OutboxPart, place: Place, piece: Outgoing
    ) -> tuple[str, ...]:
        """Send one piece and return the ids of the events that show it, one as a rule."""
        in_clear = bool(part.body.get(IN_CLEAR))
        if piece.file is not None and not in_clear:
            await bot.sender.check(place.room_id)  # before the upload
        txn_id = txn_of(part)
        there_id = await self._there(bot, part, place) if piece.file is None else None
        content = await self._content(bot, part, piece)
        put = partial(_put, bot.sender, place, in_clear=in_clear)
        try:
            event_ids = [await put(content, txn_id, there_id)]
        except TooLong:
            parts = render_plain(piece.piece.body, limit=_SMALL_BYTES)
            if len(parts) < 2:
                raise
            # What stands before the homeserver may take less than that; nothing of it was sent.
            event_ids = []
            for number, each in enumerate(parts):
                content = replace(piece, piece=each).content()
                event_ids.append(await put(content, f"{txn_id}-s{number}", there_id))
                there_id = None
        if piece.choices and bot.offered is not None:
            await bot.offered(place, event_ids[-1], piece)
        return tuple(event_ids)

    async def _there(self, bot: BotHandle, part: OutboxPart, place: Place) -> str | None:
        """The event that the part is to take the place of, the stream of an answer for one, if it
        is still there for people to see."""
        if part.progress:
            return None
        event_id = part.body.get(REPLACES)
        if part.kind == "answer" and bot.takeover is not None:
            event_id = await bot.takeover(part.message_id)
        if not isinstance(event_id, str) or not event_id:
            return None
        try:
            event = await bot.client.event(place.room_id, event_id)
        except Refused:
            return None
        unsigned = event.get("unsigned")
        is_gone = isinstance(unsigned, dict) and "redacted_because" in unsigned
        return None if is_gone else event_id

    async def _content(self, bot: BotHandle, part: OutboxPart, piece: Outgoing) -> dict[str, Any]:
        """What to send; a file is uploaded for it, once for all attempts of this process."""
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
                    raise Refused(0, "unreadable", why) from error
                return could_not_send(piece.file, why, say).content()
            except Refused as error:
                if piece.is_needed:
                    raise
                return could_not_send(piece.file, error.description, say).content()
            uploaded = self._uploaded[part.outbox_id] = (mxc, size)
        mxc, size = uploaded
        return piece.content(mxc=mxc, size=size)

    # -- what became of it -------------------------------------------------------------------------

    async def _said(
        self,
        error: MatrixError,
        part: OutboxPart,
        bot: BotHandle,
        place: Place,
        *,
        has_more: bool,
    ) -> Delivery:
        match error:
            case RateLimited():
                return _later(error.message, error.retry_after_s)
            case NotSent():
                failures = self._unreached[part.agent_id] = (
                    self._unreached.get(part.agent_id, 0) + 1
                )
                return _later(error.message, min(_UNREACHED_CAP_S, 0.5 * 2.0 ** min(failures, 10)))
            case Dropped():
                return _later(error.message, 1.0)
            case TokenRefused():
                # The bot's own life says so to people; its parts wait until that is mended.
                return _later(error.message, _UNWELL_S)
            case TooLong() | NotAllowed():
                return Delivery(DeliveryOutcome.REFUSED, await self._why(error, bot, place))
            case Refused():
                return Delivery(DeliveryOutcome.REFUSED, error.message)
            case _:
                if part.attempts >= _POISON_ATTEMPTS and await self._is_well(bot, place):
                    # This event alone makes the server fail; what waits behind it must go on.
                    return Delivery(
                        DeliveryOutcome.UNKNOWN, error.message, more=has_more, is_final=True
                    )
                return Delivery(DeliveryOutcome.RETRY, error.message)

    async def _why(self, error: Refused, bot: BotHandle, place: Place) -> str:
        """Why a room does not take it; one that was replaced names the other."""
        try:
            tombstone = await bot.client.state(place.room_id, "m.room.tombstone")
        except MatrixError:
            tombstone = None
        if not tombstone:
            return error.message
        return (
            f"the room was replaced by {tombstone.get('replacement_room') or 'another'}; "
            f"invite the bot there ({error.message})"
        )

    async def _is_well(self, bot: BotHandle, place: Place) -> bool:
        """Whether the server does something harmless in this room."""
        try:
            await bot.client.state(place.room_id, "m.room.create")
        except MatrixError as error:
            return isinstance(error, Refused)
        return True


async def _put(
    sender: Sender,
    place: Place,
    content: Mapping[str, Any],
    txn_id: str,
    there_id: str | None,
    *,
    in_clear: bool,
) -> str:
    """Send the content, or put it into an event that is there; the id of what shows it."""
    send = partial(sender.send, place.room_id, MESSAGE, timeout_s=_TIMEOUT_S, in_clear=in_clear)
    if there_id is not None:
        await send(edit_of(content, there_id), txn_id=f"{txn_id}-e")
        return there_id
    try:
        return await send(new_of(content, place), txn_id=txn_id)
    except Refused as error:
        if place.thread_id is None or error.http_status != 400:
            raise
    # There can be no thread there, as that event belongs to another one.
    return await send(reply_of(content, place.thread_id), txn_id=f"{txn_id}-f")


def _later(detail: str, after_s: float) -> Delivery:
    return Delivery(DeliveryOutcome.RETRY, detail, retry_after_s=after_s, is_free=True)
