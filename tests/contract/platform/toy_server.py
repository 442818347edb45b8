"""A small chat server in memory: what people do there, and what a bot may ask of it.

Each chat has one person in it. An update is handed over again until it is confirmed.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from agentsup.channels.core.errors import ChatGone, PlatformError, RequestRefused, TokenRefused

TOKEN = "toy-token"
BOT = "bot"
Button = tuple[str, str]
"""A label, and the data of its press."""
Update = dict[str, Any]


@dataclass
class Message:
    """One message as it is shown now. ``seen`` is the bot's reaction."""

    chat: str
    by: str
    text: str
    buttons: tuple[Button, ...] = ()
    file: str = ""
    seen: str = ""


@dataclass
class ToyServer:
    """``before`` and ``after`` hold errors of new messages, each raised once; ``down`` is what
    every poll fails with."""

    now_ms: Callable[[], int]
    messages: dict[str, Message] = field(default_factory=dict)
    updates: list[Update] = field(default_factory=list)
    files: dict[str, bytes] = field(default_factory=dict)
    typing: set[str] = field(default_factory=set)
    gone: set[str] = field(default_factory=set)
    said: list[str] = field(default_factory=list)
    """Short answers to presses."""
    before: list[PlatformError] = field(default_factory=list)
    after: list[PlatformError] = field(default_factory=list)
    down: PlatformError | None = None
    numbers: int = 0
    news: asyncio.Event = field(default_factory=asyncio.Event)

    # -- what happens ------------------------------------------------------------------------------

    def put(self, message: Message) -> str:
        """Show a message, and return its id."""
        self.numbers += 1
        self.messages[f"m{self.numbers}"] = message
        return f"m{self.numbers}"

    def happens(self, kind: str, chat: str, user: str, message_id: str, **facts: Any) -> int:
        """A person does something, of which the bot gets an update; return its number."""
        self.numbers += 1
        update = {"id": self.numbers, "kind": kind, "chat": chat, "user": user}
        self.updates.append(update | {"message": message_id, "at": self.now_ms(), **facts})
        self.news.set()
        return self.numbers

    # -- what a bot asks ---------------------------------------------------------------------------

    async def sign_in(self, token: str) -> str:
        if token != TOKEN:
            raise TokenRefused("the toy server does not know this token")
        return BOT

    async def close(self) -> None:
        """Nothing is open."""

    async def poll(self, confirmed: int, wait_s: float) -> list[Update]:
        """Forget the updates up to ``confirmed``, and return the others."""
        self.updates = [each for each in self.updates if each["id"] > confirmed]
        if not self.updates and not self.down:
            self.news.clear()
            try:
                async with asyncio.timeout(wait_s):
                    await self.news.wait()
            except TimeoutError:
                return []
        if self.down is not None:
            raise self.down
        return list(self.updates)

    async def send(self, chat: str, text: str, *more: Any, content: bytes = b"") -> str:
        """Show a message; ``more`` is its buttons and the name of its file."""
        if self.before:
            raise self.before.pop(0)
        if chat in self.gone:
            raise ChatGone(403, "the bot is not in this chat")
        message_id = self.put(Message(chat, BOT, text, *more))
        if self.after:
            raise self.after.pop(0)
        return message_id

    async def edit(
        self, message_id: str, text: str | None, buttons: tuple[Button, ...] = ()
    ) -> None:
        """Replace the text, unless it is None, and the buttons."""
        message = self._message(message_id)
        message.text, message.buttons = message.text if text is None else text, buttons

    async def delete(self, message_id: str) -> None:
        self.messages.pop(message_id, None)

    async def react(self, message_id: str, emoji: str) -> None:
        self._message(message_id).seen = emoji

    async def show_typing(self, chat: str, *, is_on: bool) -> None:
        (self.typing.add if is_on else self.typing.discard)(chat)

    async def answer(self, press_id: str, text: str) -> None:
        self.said.append(text)

    async def download(self, file_id: str) -> bytes:
        return self.files[file_id]

    def _message(self, message_id: str) -> Message:
        if message_id not in self.messages:
            raise RequestRefused(404, "no such message")
        return self.messages[message_id]
