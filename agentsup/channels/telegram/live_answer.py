"""Live answers in Telegram: edits while an answer is written, or drafts if those are switched on;
and the signs "typing" and seen.

A draft has a stop button, but some clients lock the input while one is shown, and the answer after
it is a new message, whose fate may be unknown, where an edit may be repeated.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final

from agentsup.channels.core.errors import (
    ChatGone,
    OutcomeUnknown,
    PlatformError,
    RequestRefused,
    TokenRefused,
)
from agentsup.channels.core.live import live_answer, signs
from agentsup.channels.core.live.placeholders import Placeholder, PlaceholderUpdates
from agentsup.channels.core.live.rate_limit import WINDOW_CHARS, RateLimit
from agentsup.channels.core.live.signs import REACTIONS_MAX, SEEN, SeenMessage
from agentsup.channels.core.live.streams import StreamSet
from agentsup.channels.core.receiving.messages import BotDependencies
from agentsup.channels.core.receiving.rows import of_open_messages
from agentsup.channels.telegram import render
from agentsup.channels.telegram.address import ChatAddress, parse
from agentsup.channels.telegram.errors import ChatMigrated, MarkupRefused, NotModified
from agentsup.channels.telegram.flood import CallKind
from agentsup.channels.telegram.received import CHANNEL, draft_id_of
from agentsup.channels.telegram.render import NO_PREVIEW, Piece
from agentsup.channels.telegram.sender import Sender, SendPriority
from agentsup.channels.text.long import rendered
from agentsup.kit.log import get_logger

TYPING_S = 4.5
"""The platform shows "typing" for 5 seconds."""
_TIMEOUT_S = 5.0
_log = get_logger(__name__)
EDIT_QUIET_S: Final = 1.0
"""So long the answer waits for an edit under way; then it is sent as a new message."""
DRAFT_QUIET_S: Final = 0.3
"""The same for a draft, which at worst stays visible for some seconds."""
LATE_S: Final = 3.0
SEND_TIMEOUT_S: Final = 10.0
_CURSOR = " …"


class Typing(signs.Typing[Sender]):
    """The sign of a conversation: a chat, or a topic in it."""

    renew_s = TYPING_S

    def _pause_s(self, chat: str) -> float:
        return self._sender.pause_s(parse(chat).chat_id)

    async def _set(self, chat: str, *, is_on: bool) -> None:
        address = parse(chat)
        await self._sender.send(
            address.chat_id,
            "sendChatAction",
            priority=SendPriority.TYPING,
            droppable=True,
            replaces=f"typing:{chat}",
            timeout_s=_TIMEOUT_S,
            action="typing",
            message_thread_id=address.topic_id,
        )


class Reactions(signs.Reactions[tuple[ChatAddress, int], Sender]):
    """Seen reactions, set on the message with this id in this chat."""

    clear_attempts = 4

    async def restore(self) -> None:
        left = await self._database.read(
            partial(
                of_open_messages, channel=CHANNEL, agent_id=self._agent_id, limit=REACTIONS_MAX
            ),
            name="reactions.left",
        )
        for each in left:
            if each.message_id not in self._seen:
                target = (ChatAddress(int(each.chat_id)), int(each.platform_id))
                self._watch(each.message_id, SeenMessage(target, is_shown=True))

    async def _set(self, seen: SeenMessage[tuple[ChatAddress, int]]) -> None:
        await self._react(seen, [{"type": "emoji", "emoji": SEEN}], droppable=True)

    async def _unset(self, seen: SeenMessage[tuple[ChatAddress, int]]) -> None:
        await self._react(seen, [], droppable=False)

    async def _react(
        self,
        seen: SeenMessage[tuple[ChatAddress, int]],
        reaction: list[dict[str, str]],
        *,
        droppable: bool,
    ) -> None:
        address, platform_id = seen.target
        await self._sender.send(
            address.chat_id,
            "setMessageReaction",
            priority=SendPriority.TYPING,
            droppable=droppable,
            timeout_s=_TIMEOUT_S,
            message_id=platform_id,
            reaction=reaction,
        )


class MessageUpdates(PlaceholderUpdates[Piece, ChatAddress, Sender]):
    """The placeholder is a message of the bot."""

    _render = staticmethod(render.render)

    def _edit_call(self, platform_id: str, piece: Piece) -> Callable[[], Awaitable[object]]:
        return partial(self._edit_once, platform_id, {**piece.fields(), **NO_PREVIEW})

    async def _edit_once(self, platform_id: str, fields: dict[str, Any]) -> None:
        with suppress(NotModified):
            await self._call("editMessageText", platform_id, **fields)

    async def _delete_once(self, platform_id: str) -> None:
        await self._call("deleteMessage", platform_id)

    async def _call(self, method: str, platform_id: str, **fields: Any) -> None:
        await self.sender.send(
            self.address.chat_id,
            method,
            priority=SendPriority.EDIT,
            message_id=int(platform_id),
            **fields,
        )


@dataclass(frozen=True, slots=True)
class DraftSupport:
    """The kinds of chats in which the platform shows drafts, its own preview of a text."""

    refused: set[int] = field(default_factory=set)
    """Chats in which it accepts none; 0 stands for all."""

    def is_in(self, address: ChatAddress) -> bool:
        """Whether the platform may show a draft there."""
        return address.is_private and not self.refused & {0, address.chat_id}

    def note_refusal(self, address: ChatAddress, error: RequestRefused) -> None:
        """Use no drafts in this chat; in none at all if the server has no such method."""
        _log.info(f"drafts are not taken, edits instead: {error}")
        self.refused.add(0 if error.number == 404 else address.chat_id)


class LiveAnswer(live_answer.LiveAnswer[Piece]):
    """The stream of one message."""

    def __init__(self, updates: MessageUpdates, drafts: DraftSupport) -> None:
        super().__init__(updates, LATE_S)
        self._address = updates.address
        self._sender = updates.sender
        self._drafts = drafts
        self._key = f"stream:{updates.message_id}"
        self._is_plain = False

    async def takeover(self) -> str | None:
        """End the stream for the whole answer, and return the placeholder's id.

        Waits shortly for a request under way. None: the answer is to be sent as a new message, and
        the placeholder, if there is one, is deleted.
        """
        quiet_s = DRAFT_QUIET_S if self._is_draft else EDIT_QUIET_S
        if not await self._rests_within(quiet_s):
            self._is_distrusted = True
        if self._platform_id and self._edit_must_wait() and not self._is_distrusted:
            await self._distrust()
        return None if self._is_distrusted else self._platform_id or None

    def _edit_must_wait(self) -> bool:
        """Whether a new message may be sent sooner than an edit.

        The stream may have used up the edits of the chat; the answer does not wait for them.
        """
        pause_s, chat_id = self._sender.pause_s, self._address.chat_id
        return pause_s(chat_id, CallKind.EDIT) > pause_s(chat_id, CallKind.MESSAGE) + EDIT_QUIET_S

    def stop_sending(self) -> None:
        super().stop_sending()
        self._sender.withdraw(self._key)

    @property
    def _is_draft(self) -> bool:
        """Whether the text is shown as a draft, which disappears by itself."""
        is_wanted = self._context.streaming().drafts and not self._platform_id
        return is_wanted and self._drafts.is_in(self._address)

    def _pace(self) -> RateLimit:
        mode, wanted = self._context.mode(), self._context.streaming()
        if self._is_draft:
            return RateLimit.of(mode, wanted, least_s=0.5, cap_s=10.0, refresh_s=20.0)
        # Edits in a group share its limit of 20 messages a minute with the answers.
        return RateLimit.of(mode, wanted, least_s=0.5 if self._address.is_private else 3.0)

    async def _rendered(self, markdown: str) -> Piece | None:
        agent_id = self._context.agent_id
        piece = await rendered(render.render_partial, markdown, agent_id=agent_id)
        return Piece(piece.text) if piece is not None and self._is_plain else piece

    def _ended_with(self, piece: Piece, word: str) -> Piece:
        return Piece(f"{piece.text}\n\n{word}", piece.entities)

    def _asked_pause_s(self) -> float:
        kind = CallKind.LIGHT if self._is_draft else CallKind.EDIT
        return self._sender.pause_s(self._address.chat_id, kind)

    async def _send(self, piece: Piece) -> bool:
        fields: dict[str, Any] = {
            "droppable": True,
            "replaces": self._key,
            "timeout_s": SEND_TIMEOUT_S,
            **piece.fields(),
        }
        address, send = self._address, self._sender.send
        if self._is_draft:
            fields |= {
                "priority": SendPriority.DRAFT,
                "draft_id": draft_id_of(self._message_id),
                "can_stop": True,
                "message_thread_id": address.topic_id,
            }
            await send(address.chat_id, "sendMessageDraft", **fields)
            return True
        if len(piece.text) <= WINDOW_CHARS:
            fields["text"] += _CURSOR
        fields |= {"priority": SendPriority.EDIT, **NO_PREVIEW}
        if self._platform_id:
            with suppress(NotModified):
                await send(
                    address.chat_id, "editMessageText", message_id=int(self._platform_id), **fields
                )
            return True
        fields["message_thread_id"] = address.topic_id
        sent = await send(address.chat_id, "sendMessage", **fields)
        self._platform_id = str(sent["message_id"])
        await self._updates.record(self._platform_id)
        return True

    async def _on_error(self, error: PlatformError, retry_at: float) -> None:
        _log.debug(f"the stream of {self._message_id}: {error}")
        is_draft = self._is_draft
        match error:
            case MarkupRefused():
                self._is_muted, self._is_plain = self._is_plain, True
            case ChatGone() | ChatMigrated() | TokenRefused():
                self._is_muted = True
            case RequestRefused() if is_draft:
                self._drafts.note_refusal(self._address, error)
            case RequestRefused():
                self._is_muted = True
                if self._platform_id:
                    await self._distrust()  # most likely a person deleted it
            case OutcomeUnknown() if not is_draft:
                self._is_muted = True
                await self._distrust()
            case _:
                self._on_failure(retry_at)

    async def _distrust(self) -> None:
        self._is_distrusted = True
        await self._updates.distrust()


class Streams(StreamSet[Sender]):
    """The streams of one life of a bot."""

    channel = "telegram"
    typing_kind = Typing
    reactions_kind = Reactions

    def __init__(self, deps: BotDependencies, sender: Sender) -> None:
        super().__init__(deps, sender)
        self._drafts = DraftSupport()

    def _target(
        self, message_id: str, conversation: str, platform_id: str
    ) -> tuple[ChatAddress, int]:
        return parse(conversation), int(platform_id)

    async def _restore_signs(self) -> None:
        if self._wanted().reactions:
            await self._reactions.restore()

    def _new(
        self, message_id: str, conversation: str, left: Placeholder | None = None
    ) -> LiveAnswer:
        address = parse(conversation)
        updates = MessageUpdates(self._context, message_id, address, self._sender, left)
        return LiveAnswer(updates, self._drafts)
