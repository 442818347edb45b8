"""A browser as the daemon sees it: a cookie jar, an Origin, and what it says of where it comes from."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

import aiohttp

from agentsup.api.app import API
from agentsup.api.web.book import WebBook
from tests.component.api.conftest import OPERATOR_TOKEN, Rig

Answer = tuple[int, Any, Mapping[str, str]]


def book_of(rig: Rig) -> WebBook:
    return rig.server._app[API].web


class Browser:
    """One browser with its own cookies."""

    def __init__(self, rig: Rig) -> None:
        self.rig = rig
        self.cookies: dict[str, str] = {}
        self.language = ""

    @property
    def origin(self) -> str:
        return self.rig.url

    def headers(self, *, is_post: bool) -> dict[str, str]:
        sent = {"Sec-Fetch-Site": "same-origin"}
        if self.language:
            sent["Accept-Language"] = self.language
        if is_post:
            sent["Origin"] = self.origin
        if self.cookies:
            sent["Cookie"] = "; ".join(f"{name}={value}" for name, value in self.cookies.items())
        return sent

    async def call(
        self,
        method: str,
        path: str,
        json: Any = None,
        *,
        data: Any = None,
        headers: Mapping[str, str] | None = None,
        without: tuple[str, ...] = (),
    ) -> Answer:
        """One request of the page; `headers` replace its own, `without` leaves some out."""
        sent = {**self.headers(is_post=method == "POST"), **(headers or {})}
        for name in without:
            sent.pop(name, None)
        async with self.rig.client.request(
            method, self.rig.url + path, json=json, data=data, headers=sent
        ) as response:
            for name, morsel in response.cookies.items():
                if morsel.value:
                    self.cookies[name] = morsel.value
                else:
                    self.cookies.pop(name, None)
            is_json = response.content_type.endswith("json")
            body = await response.json(content_type=None) if is_json else await response.read()
            return response.status, body, response.headers.copy()

    async def sign_in(self, person: str = "") -> Any:
        """By a one-time link; for the operator without a name."""
        code = (await book_of(self.rig).issue(person)).code
        status, document, _ = await self.call("POST", "/web/login", {"code": code, "replace": True})
        assert status == 200, document
        return document

    @asynccontextmanager
    async def socket(
        self, agent: str = "main", conversation: str = "local", **hello: Any
    ) -> AsyncIterator[aiohttp.ClientWebSocketResponse]:
        async with self.rig.client.ws_connect(
            f"{self.rig.url}/ws", headers=self.headers(is_post=True)
        ) as socket:
            await socket.send_json(
                {
                    "type": "hello",
                    "agent": agent,
                    "channel": "web",
                    "conversation": conversation,
                    **hello,
                }
            )
            yield socket


async def frame(socket: aiohttp.ClientWebSocketResponse, kind: str) -> dict[str, Any]:
    """The next frame of that type."""
    while True:
        message = await socket.receive()
        assert message.type is aiohttp.WSMsgType.TEXT, (message, socket.close_code)
        found: dict[str, Any] = message.json()
        if found["type"] == kind:
            return found


__all__ = ["OPERATOR_TOKEN", "Answer", "Browser", "book_of", "frame"]
