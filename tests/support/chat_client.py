"""A chat client that keeps every frame, so that a test can ask for what came and wait for more."""

from __future__ import annotations

import asyncio
import contextlib
import json
from typing import Any

import aiohttp

from tests.support.bound import BOUND_S


class Chat:
    """One WebSocket conversation; keeps every frame, in order."""

    def __init__(self, socket_: aiohttp.ClientWebSocketResponse, name: str) -> None:
        self._socket = socket_
        self._name = name
        self._pending_texts = 0
        self._arrived = asyncio.Event()
        self.frames: list[dict[str, Any]] = []
        self.is_closed = False
        self._reader = asyncio.create_task(self._read(), name=f"chat:{name}")

    async def _read(self) -> None:
        try:
            async for message in self._socket:
                if message.type is aiohttp.WSMsgType.TEXT:
                    self.frames.append(json.loads(message.data))
                    self._wake()
        finally:
            self.is_closed = True
            self._wake()

    def _wake(self) -> None:
        self._arrived.set()
        self._arrived = asyncio.Event()

    async def more(self) -> None:
        """Wait for the next frame. Raises ``ConnectionError`` when the socket closed."""
        if self.is_closed:
            raise ConnectionError(f"chat with {self._name}: closed")
        await self._arrived.wait()

    async def frame(
        self, timeout_s: float = BOUND_S, *, start: int = 0, **wanted: Any
    ) -> dict[str, Any]:
        """The first frame from number ``start`` on whose members are as ``wanted``, awaited.

        Raises ``TimeoutError`` (with what did come) and ``ConnectionError`` when the socket closed.
        """
        seen = start
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(timeout_s):
                while True:
                    for frame in self.frames[seen:]:
                        if all(frame.get(key) == value for key, value in wanted.items()):
                            return frame
                    seen = len(self.frames)
                    await self.more()
        raise TimeoutError(f"chat with {self._name}: no {wanted} in {self.frames[start:]}")

    async def event(
        self, message_id: str, kind: str = "answer", timeout_s: float = BOUND_S
    ) -> dict[str, Any]:
        """The data of the delivered part of ``kind`` for a message."""
        found = await self._event(message_id, kind, timeout_s)
        return dict(found["event"]["data"])

    async def _event(self, message_id: str, kind: str, timeout_s: float) -> dict[str, Any]:
        seen = 0
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(timeout_s):
                while True:
                    for frame in self.frames[seen:]:
                        event = frame.get("event", {})
                        if (
                            event.get("type") == "chat.out"
                            and event["message_id"] == message_id
                            and event["data"]["kind"] == kind
                        ):
                            return frame
                    seen = len(self.frames)
                    await self.more()
        raise TimeoutError(f"chat with {self._name}: no {kind} of {message_id} in {self.frames}")

    async def send(self, text: str, say_id: str = "") -> str:
        """Send one text; returns its id."""
        self._pending_texts += 1
        say_id = say_id or f"say-{id(self)}-{self._pending_texts}"
        await self._socket.send_str(json.dumps({"type": "say", "id": say_id, "text": text}))
        return say_id

    async def say(self, text: str, say_id: str = "", timeout_s: float = BOUND_S) -> str:
        """Send a text and wait until it is accepted; returns the message id."""
        say_id = await self.send(text, say_id)
        accepted = await self.frame(timeout_s, type="accepted", id=say_id)
        return str(accepted["message_id"])

    async def command(self, text: str, timeout_s: float = BOUND_S) -> dict[str, Any]:
        """Run a command; the reply frame."""
        say_id = await self.send(text)
        return await self.frame(timeout_s, type="reply", id=say_id)

    async def ask(self, text: str, timeout_s: float = BOUND_S) -> str:
        """Say, and the text of the answer."""
        data = await self.event(await self.say(text), timeout_s=timeout_s)
        return str(data["text"])

    async def close(self) -> None:
        """Close the socket; idempotent."""
        await self._socket.close()
        await asyncio.wait({self._reader}, timeout=2.0)
        self._reader.cancel()
