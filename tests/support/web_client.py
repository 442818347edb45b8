"""A page in a browser as the daemon sees it: signed in by a one-time link, with its secret."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import aiohttp

from tests.support.chat_client import Chat
from tests.support.daemon_process import DaemonProcess


class Tab:
    """One browser. Its secret outlives the daemon's deaths; its sockets do not."""

    def __init__(self, daemon: DaemonProcess) -> None:
        self._daemon = daemon
        self._http = aiohttp.ClientSession()
        self._secret = ""
        self._chats: list[Chat] = []
        self.is_signed_in = False

    async def call(self, method: str, path: str, body: Any = None, data: Any = None) -> Any:
        """One request of the page; its answer as JSON, or as bytes where it is none."""
        async with self._http.request(
            method, self._daemon.url + path, json=body, data=data, headers=self._headers
        ) as answer:
            assert answer.status < 300, (answer.status, await answer.text())
            is_json = answer.content_type.endswith("json")
            return await answer.json() if is_json else await answer.read()

    @property
    def _headers(self) -> Mapping[str, str]:
        page = {"Origin": self._daemon.url, "Sec-Fetch-Site": "same-origin"}
        return {**page, "Authorization": f"Bearer {self._secret}"} if self._secret else page

    async def sign_in(self, person: str | None = None) -> Any:
        """By a one-time link, as ``agentsup link`` makes one; what the page is told of the session."""
        made = await self._daemon.post("/web/links", {"person": person})
        code = made.body["url"].partition("/#code=")[2]
        document = await self.call("POST", "/web/login", {"code": code})
        self._secret = document["secret"]
        self.is_signed_in = True
        return document

    async def chat(self, conversation: str, agent: str = "main", **hello: Any) -> Chat:
        """Open a conversation and wait for its welcome."""
        url = f"{self._daemon.url}/ws"
        # Scripts of a page can set no header here.
        headers, offered = {"Origin": self._daemon.url}, ("agentsup", f"bearer.{self._secret}")
        opened = await self._http.ws_connect(url, headers=headers, protocols=offered)
        first = {"type": "hello", "agent": agent, "channel": "web", "conversation": conversation}
        await opened.send_str(json.dumps({**first, **hello}))
        chat = Chat(opened, f"web:{agent}/{conversation}")
        self._chats.append(chat)
        await chat.frame(type="welcome")
        return chat

    async def close(self) -> None:
        """Close every socket; harmless when repeated."""
        for chat in self._chats:
            await chat.close()
        await self._http.close()
