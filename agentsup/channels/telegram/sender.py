"""One bot's way out: everything written to chats passes here, paced and by priority."""

from __future__ import annotations

from collections.abc import Mapping
from enum import IntEnum
from typing import Any

from agentsup.channels.telegram.client import TelegramClient, UploadFile
from agentsup.kit.clock import Clock

__all__ = ["SendPriority", "Sender"]


class SendPriority(IntEnum):
    """Who goes first; the first two are never dropped."""

    FINAL = 0
    BUTTONS = 1
    EDIT = 2
    TYPING = 3
    DRAFT = 4


class Sender:
    """Sends for one bot within the platform's limits."""

    def __init__(self, client: TelegramClient, clock: Clock) -> None: ...

    async def send(
        self,
        chat_id: int,
        method: str,
        *,
        priority: SendPriority,
        droppable: bool = False,
        replaces: str | None = None,
        timeout_s: float = 20.0,
        files: Mapping[str, UploadFile] | None = None,
        **fields: Any,
    ) -> Any:
        """Wait for the turn of this send, call ``method`` with ``chat_id`` and return its result.

        A droppable send that can't go soon raises ``Dropped``; so does one that waits while a
        newer one with the same ``replaces`` arrives. Another raises ``FloodWait`` when its turn is
        further away than it may wait. Both mean that nothing was sent. Else raises what
        ``TelegramClient.call`` raises.
        """
        raise NotImplementedError

    def withdraw(self, key: str) -> bool:
        """Take back a waiting send with ``replaces == key``; False if none waits."""
        raise NotImplementedError

    def pause_s(self, chat_id: int) -> float:
        """Seconds for which Telegram has asked this chat (or the bot) to be left alone; or 0."""
        raise NotImplementedError

    async def close(self) -> None:
        """End what waits; it raises ``FloodWait``."""
