"""Live answers in Telegram: edits while an answer is written, or drafts if those are switched on.

A draft has a stop button, but some clients lock the input while one is shown, and the answer after
it is a new message, whose fate may be unknown, where an edit may be repeated.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Final

from agentsup.channels.core.errors import (
    ChatGone,
    OutcomeUnknown,
    PlatformError,
    RequestRefused,
    TokenRefused,
)
from agentsup.channels.core.live import live_answer
from agentsup.channels.core.live.rate_limit import (
    WINDOW_CHARS,
    RateLimit,
    StreamMethod,
    draft_id_of,
)
from agentsup.channels.telegram import render
from agentsup.channels.telegram.address import ChatAddress
from agentsup.channels.telegram.errors import ChatMigrated, MarkupRefused, NotModified
from agentsup.channels.telegram.flood import CallKind
from agentsup.channels.telegram.placeholder_updates import MessageUpdates
from agentsup.channels.telegram.render import NO_PREVIEW, Piece
from agentsup.channels.telegram.sender import SendPriority
from agentsup.channels.text.rendering import rendered
from agentsup.kit.log import get_logger

_log = get_logger(__name__)

EDIT_QUIET_S: Final = 1.0
"""So long the answer waits for an edit under way; then it is sent as a new message."""
DRAFT_QUIET_S: Final = 0.3
"""The same for a draft, which at worst stays visible for some seconds."""
LATE_S: Final = 3.0
SEND_TIMEOUT_S: Final = 10.0
_CURSOR = " …"


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
        quiet_s = DRAFT_QUIET_S if self._way is StreamMethod.DRAFT else EDIT_QUIET_S
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
    def _way(self) -> StreamMethod:
        is_wanted = self._context.streaming().drafts and not self._platform_id
        if is_wanted and self._drafts.is_in(self._address):
            return StreamMethod.DRAFT
        return StreamMethod.EDIT

    def _pace(self) -> RateLimit:
        wanted = self._context.streaming()
        return RateLimit.of(
            self._context.mode(),
            self._way,
            interval_s=wanted.edit_interval_s,
            min_chars=wanted.min_chars,
            idle_ms=wanted.idle_ms,
            group=not self._address.is_private,
        )

    async def _rendered(self, markdown: str) -> Piece | None:
        agent_id = self._context.agent_id
        piece = await rendered(render.render_partial, markdown, agent_id=agent_id)
        return Piece(piece.text) if piece is not None and self._is_plain else piece

    def _ended_with(self, piece: Piece, word: str) -> Piece:
        return Piece(f"{piece.text}\n\n{word}", piece.entities)

    def _asked_pause_s(self) -> float:
        kind = CallKind.LIGHT if self._way is StreamMethod.DRAFT else CallKind.EDIT
        return self._sender.pause_s(self._address.chat_id, kind)

    async def _send(self, piece: Piece) -> bool:
        fields: dict[str, Any] = {
            "droppable": True,
            "replaces": self._key,
            "timeout_s": SEND_TIMEOUT_S,
            **piece.fields(),
        }
        address, send = self._address, self._sender.send
        if self._way is StreamMethod.DRAFT:
            fields |= {
                "priority": SendPriority.DRAFT,
                "draft_id": draft_id_of(self._message_id),
                "can_stop": True,
                **_topic(address),
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
        sent = await send(address.chat_id, "sendMessage", **fields, **_topic(address))
        self._platform_id = str(sent["message_id"])
        await self._updates.record(self._platform_id)
        return True

    async def _on_error(self, error: PlatformError, retry_at: float) -> None:
        _log.debug(f"the stream of {self._message_id}: {error}")
        way = self._way
        match error:
            case MarkupRefused():
                self._is_muted, self._is_plain = self._is_plain, True
            case ChatGone() | ChatMigrated() | TokenRefused():
                self._is_muted = True
            case RequestRefused() if way is StreamMethod.DRAFT:
                self._drafts.note_refusal(self._address, error)
            case RequestRefused():
                self._is_muted = True
                if self._platform_id:
                    await self._distrust()  # most likely a person deleted it
            case OutcomeUnknown() if way is StreamMethod.EDIT:
                self._is_muted = True
                await self._distrust()
            case _:
                self._on_failure(retry_at)

    async def _distrust(self) -> None:
        self._is_distrusted = True
        await self._updates.distrust()


def _topic(address: ChatAddress) -> dict[str, Any]:
    return {} if address.topic_id is None else {"message_thread_id": address.topic_id}
