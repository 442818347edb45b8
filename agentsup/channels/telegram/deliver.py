"""The Telegram channel of the outbox: one part becomes pieces, each sent once.

A send is blind: whether it was done can't be asked afterwards. So a piece goes again only where
the platform has surely not taken it; where that is unknown, the outbox is told so and offers the
part to the person instead (P2).
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from typing import Any

from agentsup.catalogue import Words, words
from agentsup.channels.attachment import unreadable
from agentsup.channels.telegram.client import TelegramClient
from agentsup.channels.telegram.errors import (
    ChatGone,
    ChatMigrated,
    Dropped,
    FateUnknown,
    FloodWait,
    MarkupRefused,
    NotModified,
    NotSent,
    PollConflict,
    Refused,
    TelegramError,
    TokenRefused,
)
from agentsup.channels.telegram.outgoing import (
    Outgoing,
    TelegramSettings,
    could_not_send,
    pieces_of,
)
from agentsup.channels.telegram.place import Place, parse
from agentsup.channels.telegram.render import CAPABILITIES, Entity, Piece, plain, utf16_len
from agentsup.channels.telegram.sender import Sender, SendPriority
from agentsup.model.channel import Begin, Delivery, DeliveryOutcome, OutboxPart
from agentsup.model.errors import Overloaded, StoreUnavailable

__all__ = ["NOT_ATTACHED", "BotHandle", "TelegramChannel", "TelegramSettings"]

_log = logging.getLogger(__name__)

NOT_ATTACHED = "the bot is not connected"
"""The detail of a part that waits for its bot; see `mailbox.outbox.wake_tx`."""
_ABSENT_S = 5.0
_TEXT_TIMEOUT_S = 20.0
_FILE_TIMEOUT_S = 560.0
"""Of a part of kind file, for which the relay has patience; a summarised answer is small."""
_SMALL_FILE_TIMEOUT_S = 35.0
_PROBE_TIMEOUT_S = 5.0
_UNWELL_S = 30.0
_KEPT_PARTS = 64
_CORRECTIONS_MAX = 6


@dataclass(frozen=True, slots=True)
class BotHandle:
    """What the channel needs of a running bot."""

    client: TelegramClient
    sender: Sender
    settings: Callable[[], TelegramSettings]
    takeover: Callable[[str], Awaitable[int | None]] | None = None
    """Given a message id: the id of the Telegram message in which its answer was streamed."""
    moved: Callable[[int, int], None] | None = None
    """Told when a group has become another chat: its old and new id."""
    in_place: Callable[[int, int | None], Awaitable[None]] | None = None
    """Puts on record into which message a part (by its outbox id) is edited, or into none."""


@dataclass(frozen=True, slots=True)
class _Target:
    """Where a piece goes: a new message, or one that is there already."""

    place: Place
    edited_id: int | None = None


class TelegramChannel:
    """Implements ``model.channel.Channel`` for all bots of a daemon."""

    name = "telegram"
    idempotent = False
    in_pieces = True

    def __init__(self) -> None:
        self._bots: dict[str, BotHandle] = {}
        self._moves: dict[tuple[str, int], int] = {}
        self._kept: dict[int, tuple[Outgoing, ...]] = {}
        self._in_doubt: set[str] = set()

    def attach(self, agent_id: str, bot: BotHandle) -> None:
        """Deliver the parts of this agent through ``bot`` from now on."""
        self._bots[agent_id] = bot

    def detach(self, agent_id: str) -> None:
        """The agent's parts wait from now on."""
        self._bots.pop(agent_id, None)

    async def deliver(self, part: OutboxPart, begin: Begin) -> Delivery:
        """Send the piece at ``part.progress`` and say what became of it."""
        bot = self._bots.get(part.agent_id)
        if bot is None:
            return _later(NOT_ATTACHED, _ABSENT_S)
        try:
            place = self._place(part)
        except ValueError as error:
            return Delivery(DeliveryOutcome.REFUSED, str(error))
        pieces = await self._pieces(part, bot, place)
        if part.progress >= len(pieces):
            # The last piece was begun by a process that ended; nothing is left to send.
            self._kept.pop(part.outbox_id, None)
            return Delivery(DeliveryOutcome.DELIVERED)
        has_more = part.progress + 1 < len(pieces)
        try:
            await self._reassure(bot, part.agent_id)
            message_id = await self._send(bot, part, place, pieces[part.progress], begin)
        except FateUnknown as error:
            self._in_doubt.add(part.agent_id)
            return Delivery(DeliveryOutcome.UNKNOWN, error.message, more=has_more)
        except TelegramError as error:
            return _said(error)
        if not has_more:
            self._kept.pop(part.outbox_id, None)
        ids = () if message_id is None else (str(message_id),)
        return Delivery(DeliveryOutcome.DELIVERED, more=has_more, platform_ids=ids)

    async def _reassure(self, bot: BotHandle, agent_id: str) -> None:
        """After an unknown fate, send on only once the platform answers something harmless.

        So an outage costs one piece and not everything that is sent while it lasts, the note
        about that piece included.
        """
        if agent_id not in self._in_doubt:
            return
        try:
            await bot.client.call("getMe", timeout_s=_PROBE_TIMEOUT_S)
        except FateUnknown as error:
            raise NotSent(f"waiting for Telegram to answer again: {error.message}") from error
        self._in_doubt.discard(agent_id)

    def _place(self, part: OutboxPart) -> Place:
        place = parse(part.conversation)
        new_chat_id = self._moves.get((part.agent_id, place.chat_id))
        return place if new_chat_id is None else replace(place, chat_id=new_chat_id)

    async def _pieces(self, part: OutboxPart, bot: BotHandle, place: Place) -> tuple[Outgoing, ...]:
        """The pieces of a part; kept while it is under way, so that settings changed meanwhile
        and long texts do no harm."""
        kept = self._kept.get(part.outbox_id)
        if kept is None:
            kept = await pieces_of(part, bot.settings(), is_private=place.is_private)
            if len(self._kept) >= _KEPT_PARTS:
                del self._kept[next(iter(self._kept))]
            if len(kept) > 1:
                self._kept[part.outbox_id] = kept
        return kept

    async def _send(
        self, bot: BotHandle, part: OutboxPart, place: Place, piece: Outgoing, begin: Begin
    ) -> int | None:
        """Send one piece, corrected where the platform has refused it as it was.

        Every correction follows a refusal, so nothing is sent twice. Returns the id of the message.
        """
        target, say = _Target(place), words(str(part.body.get("language") or ""))
        if part.kind == "answer" and part.progress == 0:
            streamed_id = await self._streamed(bot, part)
            if part.is_edit:
                # A process that ended had begun it: nothing else is under way into that message.
                streamed_id = int(part.body["in_place"])
            target = replace(target, edited_id=None if piece.file else streamed_id)
        is_noted = part.is_edit
        for _ in range(_CORRECTIONS_MAX):
            await begin.refused()
            if is_noted != (target.edited_id is not None):
                await self._note(bot, part, target.edited_id)
                is_noted = not is_noted
            try:
                return await self._call(bot, part, target, piece, begin)
            except ChatMigrated as error:
                target = self._moved(bot, part, target, error.new_chat_id)
            except NotModified:
                return target.edited_id
            except FloodWait:
                # It may be edits alone that the platform has enough of.
                if target.edited_id is None or await self._streamed(bot, part) is not None:
                    raise
                target = replace(target, edited_id=None)
            except Refused as error:
                if target.place.topic_id is not None and _is_of_topic(error):
                    # Closed or deleted meanwhile: the chat around it is the next best place.
                    piece = _from_topic(piece, say) if part.progress == 0 else piece
                    target = _Target(replace(target.place, topic_id=None))
                elif target.edited_id is not None and not isinstance(error, MarkupRefused):
                    target = replace(target, edited_id=None)  # it is gone: then as a new one
                else:
                    piece = _corrected(piece, error, say)
            except OSError as error:
                piece = _without_file(piece, unreadable(error, say), say)
        raise Refused(400, "Telegram refuses this piece in every form")

    async def _note(self, bot: BotHandle, part: OutboxPart, edited_id: int | None) -> None:
        """Put on record whether what follows is an edit, which may be repeated after a crash."""
        if bot.in_place is None:
            return
        try:
            await bot.in_place(part.outbox_id, edited_id)
        except (StoreUnavailable, Overloaded) as error:
            raise NotSent(f"the store can't note it: {error.message}") from error

    async def _streamed(self, bot: BotHandle, part: OutboxPart) -> int | None:
        """The message into which the answer is to be edited, if any."""
        return None if bot.takeover is None else await bot.takeover(part.message_id)

    async def _call(
        self, bot: BotHandle, part: OutboxPart, target: _Target, piece: Outgoing, begin: Begin
    ) -> int | None:
        priority = SendPriority.FINAL
        if piece.markup is not None and part.kind != "answer":
            priority = SendPriority.BUTTONS
        if target.edited_id is not None:
            try:
                await bot.sender.send(
                    target.place.chat_id,
                    "editMessageText",
                    priority=priority,
                    timeout_s=_TEXT_TIMEOUT_S,
                    message_id=target.edited_id,
                    **piece.fields(as_edit=True),
                )
            except FateUnknown as error:
                # The same edit again changes nothing.
                raise NotSent(error.message) from error
            return target.edited_id
        result = await bot.sender.send(
            target.place.chat_id,
            piece.method,
            priority=priority,
            timeout_s=_timeout_s(part, piece),
            files=piece.files,
            before=begin,
            message_thread_id=target.place.topic_id,
            **piece.fields(),
        )
        return _id_of(result)

    def _moved(
        self, bot: BotHandle, part: OutboxPart, target: _Target, new_chat_id: int
    ) -> _Target:
        old_chat_id = target.place.chat_id
        _log.info("the group %d of %s has become %d", old_chat_id, part.agent_id, new_chat_id)
        self._moves[part.agent_id, parse(part.conversation).chat_id] = new_chat_id
        if bot.moved is not None:
            bot.moved(old_chat_id, new_chat_id)
        # What was streamed stays behind in the old chat.
        return _Target(replace(target.place, chat_id=new_chat_id))


def _timeout_s(part: OutboxPart, piece: Outgoing) -> float:
    if piece.file is None:
        return _TEXT_TIMEOUT_S
    return _FILE_TIMEOUT_S if part.kind == "file" else _SMALL_FILE_TIMEOUT_S


def _corrected(piece: Outgoing, error: Refused, say: Words) -> Outgoing:
    """The piece without what was refused. Raises ``error`` if there is nothing to leave out."""
    text = error.description.lower()
    if isinstance(error, MarkupRefused) and piece.piece.entities:
        _log.warning("Telegram refused the formatting of a piece: %s", error.description)
        return replace(piece, piece=Piece(plain(piece.piece)))
    if piece.markup is not None and any(word in text for word in ("button", "markup", "keyboard")):
        _log.warning("Telegram refused the buttons of a piece: %s", error.description)
        return replace(piece, markup=None)
    if piece.is_photo:
        return replace(piece, is_photo=False)
    if piece.file is not None:
        return _without_file(piece, error.description, say)
    raise error


def _without_file(piece: Outgoing, why: str, say: Words) -> Outgoing:
    """What is sent in place of a file. Raises ``Refused`` where nothing may be."""
    assert piece.file is not None
    if piece.is_needed:
        raise Refused(400, why)
    return could_not_send(piece.file, why, markup=piece.markup, say=say)


def _is_of_topic(error: Refused) -> bool:
    """Whether it is the topic that takes nothing any more."""
    text = error.description.lower()
    return "topic_closed" in text or "topic_deleted" in text or "thread not found" in text


def _from_topic(piece: Outgoing, say: Words) -> Outgoing:
    """The piece with a word on why it does not stand in its topic, if there is room for it."""
    word = say("part.topic_closed") + "\n\n"
    text = word + piece.piece.text
    if utf16_len(text) > CAPABILITIES.text_limit or piece.file is not None:
        return piece
    shift = utf16_len(word)
    entities = tuple(_shifted(each, shift) for each in piece.piece.entities)
    return replace(piece, piece=Piece(text, entities))


def _shifted(entity: Entity, by: int) -> Entity:
    moved = entity.copy()
    moved["offset"] += by
    return moved


def _said(error: TelegramError) -> Delivery:
    """What an error other than an unknown fate means for the part: none of it was done."""
    match error:
        case FloodWait():
            return _later(error.message, error.retry_after_s)
        case NotSent():
            return Delivery(DeliveryOutcome.RETRY, error.message)
        case Dropped():
            return _later(error.message, 1.0)
        case TokenRefused() | PollConflict():
            # The bot's own life says so to people; its parts wait until the token is mended.
            return _later(error.message, _UNWELL_S)
        case ChatGone() | Refused():
            return Delivery(DeliveryOutcome.REFUSED, error.message)
        case _:
            return Delivery(DeliveryOutcome.UNKNOWN, error.message)


def _later(detail: str, after_s: float) -> Delivery:
    return Delivery(DeliveryOutcome.RETRY, detail, retry_after_s=after_s, is_free=True)


def _id_of(result: Any) -> int | None:
    found = result.get("message_id") if isinstance(result, dict) else None
    return found if isinstance(found, int) else None
