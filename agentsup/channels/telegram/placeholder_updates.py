"""The message in which an answer is streamed, and how it is edited and deleted."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextlib import suppress
from functools import partial
from typing import Any

from agentsup.channels.core.live.placeholder_updates import PlaceholderUpdates
from agentsup.channels.telegram import render
from agentsup.channels.telegram.address import ChatAddress
from agentsup.channels.telegram.errors import NotModified
from agentsup.channels.telegram.render import NO_PREVIEW, Piece
from agentsup.channels.telegram.sender import SendPriority
from agentsup.channels.telegram.status import LowPrioritySender


class MessageUpdates(PlaceholderUpdates[Piece, ChatAddress, LowPrioritySender]):
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
