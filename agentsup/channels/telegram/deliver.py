"""The Telegram channel of the outbox: one part becomes pieces, each sent once.

A send is blind: the platform cannot be asked afterwards whether it was done. So a piece is sent
again only if the platform has certainly not accepted it. If that is unknown, the outbox gets an
unknown outcome and offers the part to the person instead (P2).
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from typing import Any

from agentsup.catalogue import LocalizedTexts, words
from agentsup.channels.core.errors import (
    ChatGone,
    NotSent,
    OutcomeUnknown,
    PlatformError,
    RateLimited,
    RequestRefused,
)
from agentsup.channels.core.files.upload import unreadable
from agentsup.channels.core.sending.deliver import (
    DeliverySettings,
    PieceChannel,
    delivery_for,
    later,
)
from agentsup.channels.core.sending.pieces import not_sent
from agentsup.channels.telegram.address import ChatAddress, parse
from agentsup.channels.telegram.client import TelegramClient
from agentsup.channels.telegram.errors import ChatMigrated, MarkupRefused, NotModified, PollConflict
from agentsup.channels.telegram.outgoing import OutgoingCall, pieces_of
from agentsup.channels.telegram.render import CAPABILITIES, Entity, Piece
from agentsup.channels.telegram.sender import Sender, SendPriority
from agentsup.channels.text.split import utf16_len
from agentsup.kit.log import get_logger
from agentsup.model.channel import Begin, Delivery, DeliveryOutcome, OutboxPart
from agentsup.model.errors import Overloaded, StoreUnavailable

_log = get_logger(__name__)

_TEXT_TIMEOUT_S = 20.0
_FILE_TIMEOUT_S = 560.0
"""For a part of kind file, for which the relay waits longer; the file of a long answer is small."""
_SMALL_FILE_TIMEOUT_S = 35.0
_PROBE_TIMEOUT_S = 5.0
_UNWELL_S = 30.0
_CORRECTIONS_MAX = 6


@dataclass(frozen=True, slots=True)
class BotHandle:
    """The part of a running bot that the channel uses."""

    client: TelegramClient
    sender: Sender
    settings: Callable[[], DeliverySettings]
    takeover: Callable[[str], Awaitable[str | None]] | None = None
    """Returns for a message id the id of the Telegram message in which its answer was streamed."""
    store_target: Callable[[int, int | None], Awaitable[None]] | None = None
    """Stores into which message a part (by its outbox id) is edited; None: it is sent anew."""


@dataclass(frozen=True, slots=True)
class _Target:
    """The target of a piece: a new message at an address, or an existing one to edit."""

    address: ChatAddress
    edited_id: int | None = None


class TelegramChannel(PieceChannel[BotHandle, ChatAddress, OutgoingCall]):
    """Implements ``model.channel.Channel`` for all bots of a daemon."""

    name = "telegram"
    idempotent = False

    def __init__(self) -> None:
        super().__init__()
        self._moves: dict[tuple[str, int], int] = {}
        self._in_doubt: set[str] = set()

    async def ask(self, agent_id: str, method: str, **fields: Any) -> Any:
        """Call a method that sends nothing, as the bot of an agent. Raises a ``PlatformError``:
        ``NotSent`` if the bot is not connected."""
        bot = self._bots.get(agent_id)
        if bot is None:
            raise NotSent("the bot is not connected to Telegram now; try again in a moment")
        return await bot.client.call(method, **fields)

    async def _deliver_piece(
        self,
        bot: BotHandle,
        part: OutboxPart,
        where: ChatAddress,
        piece: OutgoingCall,
        begin: Begin,
        *,
        more: bool,
    ) -> Delivery:
        try:
            await self._reassure(bot, part.agent_id)
            message_id = await self._send(bot, part, where, piece, begin)
        except OutcomeUnknown as error:
            self._in_doubt.add(part.agent_id)
            return Delivery(DeliveryOutcome.UNKNOWN, error.message, more=more)
        except PollConflict as error:
            # The bot's own life reports it; its parts wait until that is corrected.
            return later(error.message, _UNWELL_S)
        except PlatformError as error:
            return delivery_for(error)
        ids = () if message_id is None else (str(message_id),)
        return Delivery(DeliveryOutcome.DELIVERED, more=more, platform_ids=ids)

    async def _reassure(self, bot: BotHandle, agent_id: str) -> None:
        """After an unknown outcome, wait until the platform answers a harmless call.

        So an outage makes one piece unknown, and not everything that is sent during it, including
        the note about that piece.
        """
        if agent_id not in self._in_doubt:
            return
        try:
            await bot.client.call("getMe", timeout_s=_PROBE_TIMEOUT_S)
        except OutcomeUnknown as error:
            raise NotSent(f"waiting for Telegram to answer again: {error.message}") from error
        self._in_doubt.discard(agent_id)

    def _where(self, part: OutboxPart) -> ChatAddress:
        address = parse(part.conversation)
        new_chat_id = self._moves.get((part.agent_id, address.chat_id))
        return address if new_chat_id is None else replace(address, chat_id=new_chat_id)

    async def _rendered(
        self, part: OutboxPart, bot: BotHandle, where: ChatAddress
    ) -> tuple[OutgoingCall, ...]:
        return await pieces_of(part, bot.settings(), is_private=where.is_private)

    async def _send(
        self,
        bot: BotHandle,
        part: OutboxPart,
        address: ChatAddress,
        piece: OutgoingCall,
        begin: Begin,
    ) -> int | None:
        """Send one piece, and correct it if the platform refuses it; return the message's id.

        Every correction follows a refusal, so nothing is sent twice.
        """
        target, say = _Target(address), words(str(part.body.get("language") or ""))
        if part.kind == "answer" and part.progress == 0:
            streamed_id = await self._streamed(bot, part)
            if part.is_edit:
                # A process that ended had begun this edit: no other edit of it is under way.
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
                target = self._moved(part, target, error.new_chat_id)
            except NotModified:
                return target.edited_id
            except RateLimited:
                # Perhaps only edits are paused: then the piece is sent as a new message.
                if target.edited_id is None or await self._streamed(bot, part) is not None:
                    raise
                target = replace(target, edited_id=None)
            except ChatGone:
                raise
            except RequestRefused as error:
                if target.address.topic_id is not None and _is_of_topic(error):
                    # The topic was closed or deleted: use the chat itself.
                    piece = _from_topic(piece, say) if part.progress == 0 else piece
                    target = _Target(replace(target.address, topic_id=None))
                elif target.edited_id is not None and not isinstance(error, MarkupRefused):
                    target = replace(target, edited_id=None)  # the message is gone: send a new one
                else:
                    piece = _corrected(piece, error, say)
            except OSError as error:
                piece = _without_file(piece, unreadable(error, say), say)
        raise RequestRefused(400, "Telegram refuses this piece in every form")

    async def _note(self, bot: BotHandle, part: OutboxPart, edited_id: int | None) -> None:
        """Store whether the next call is an edit, which may be repeated after a crash."""
        if bot.store_target is None:
            return
        try:
            await bot.store_target(part.outbox_id, edited_id)
        except (StoreUnavailable, Overloaded) as error:
            raise NotSent(f"the store can't note it: {error.message}") from error

    async def _streamed(self, bot: BotHandle, part: OutboxPart) -> int | None:
        """Return the message into which the answer is to be edited, if there is one."""
        streamed_id = None if bot.takeover is None else await bot.takeover(part.message_id)
        return None if streamed_id is None else int(streamed_id)

    async def _call(
        self, bot: BotHandle, part: OutboxPart, target: _Target, piece: OutgoingCall, begin: Begin
    ) -> int | None:
        priority = SendPriority.FINAL
        if piece.markup is not None and part.kind != "answer":
            priority = SendPriority.BUTTONS
        if target.edited_id is not None:
            try:
                await bot.sender.send(
                    target.address.chat_id,
                    "editMessageText",
                    priority=priority,
                    timeout_s=_TEXT_TIMEOUT_S,
                    message_id=target.edited_id,
                    **piece.fields(),
                )
            except OutcomeUnknown as error:
                # Not an unknown outcome, because the same edit may be repeated.
                raise NotSent(error.message) from error
            return target.edited_id
        result = await bot.sender.send(
            target.address.chat_id,
            piece.method,
            priority=priority,
            timeout_s=_timeout_s(part, piece),
            files=piece.files,
            before=begin,
            message_thread_id=target.address.topic_id,
            **piece.fields(),
        )
        return _id_of(result)

    def _moved(self, part: OutboxPart, target: _Target, new_chat_id: int) -> _Target:
        old_chat_id = target.address.chat_id
        _log.warning(
            "a group has a new id; put it into allowed_group_ids",
            agent_id=part.agent_id,
            old_id=old_chat_id,
            new_id=new_chat_id,
        )
        self._moves[part.agent_id, parse(part.conversation).chat_id] = new_chat_id
        # The streamed message is in the old chat, so it is not edited.
        return _Target(replace(target.address, chat_id=new_chat_id))


def _timeout_s(part: OutboxPart, piece: OutgoingCall) -> float:
    if piece.file is None:
        return _TEXT_TIMEOUT_S
    return _FILE_TIMEOUT_S if part.kind == "file" else _SMALL_FILE_TIMEOUT_S


def _corrected(piece: OutgoingCall, error: RequestRefused, say: LocalizedTexts) -> OutgoingCall:
    """Return the piece without what was refused. Raises ``error`` if nothing can be left out."""
    text = error.description.lower()
    if isinstance(error, MarkupRefused) and piece.piece.entities:
        _log.warning(f"Telegram refused the formatting of a piece: {error.description}")
        return replace(piece, piece=Piece(piece.piece.text))
    if piece.markup is not None and any(word in text for word in ("button", "markup", "keyboard")):
        _log.warning(f"Telegram refused the buttons of a piece: {error.description}")
        return replace(piece, markup=None)
    if piece.is_photo:
        return replace(piece, is_photo=False)
    if piece.file is not None:
        return _without_file(piece, error.description, say)
    raise error


def _without_file(piece: OutgoingCall, why: str, say: LocalizedTexts) -> OutgoingCall:
    """Return the text that replaces a file. Raises ``RequestRefused`` if the file is needed."""
    assert piece.file is not None
    if piece.is_needed:
        raise RequestRefused(400, why)
    return OutgoingCall(Piece(not_sent(piece.file, why, say)), markup=piece.markup)


def _is_of_topic(error: RequestRefused) -> bool:
    """Whether the refusal says that the topic is closed or deleted."""
    text = error.description.lower()
    return "topic_closed" in text or "topic_deleted" in text or "thread not found" in text


def _from_topic(piece: OutgoingCall, say: LocalizedTexts) -> OutgoingCall:
    """Return the piece with a note why it is not in its topic, if there is room for the note."""
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


def _id_of(result: Any) -> int | None:
    found = result.get("message_id") if isinstance(result, dict) else None
    return found if isinstance(found, int) else None
