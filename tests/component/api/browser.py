"""A page in a browser as the daemon sees it: its secret, an Origin, and where it comes from."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

import aiohttp

from agentsup.api.http.web_sessions import WebSessions
from agentsup.api.server.listener import API
from tests.component.api.conftest import ApiFixture

Answer = tuple[int, Any, Mapping[str, str]]


def book_of(rig: ApiFixture) -> WebSessions:
    return rig.server._app[API].web


class Browser:
    """One page with its own secret."""

    def __init__(self, rig: ApiFixture) -> None:
        self.rig = rig
        self.secret = ""
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
        if self.secret:
            sent["Authorization"] = f"Bearer {self.secret}"
        return sent

    async def call(
        self,
        method: str,
        path: str,
        json: Any = None,
        *,
        data: Any = None,
        headers: Mapping[str, str] | None = None,
    ) -> Answer:
        """One request of the page; ``headers`` replace its own."""
        sent = {**self.headers(is_post=method == "POST"), **(headers or {})}
        async with self.rig.client.request(
            method, self.rig.url + path, json=json, data=data, headers=sent
        ) as response:
            assert not response.cookies, (
                "cookies know no ports: others would get them, and set them"
            )
            is_json = response.content_type.endswith("json")
            body = await response.json(content_type=None) if is_json else await response.read()
            if path == "/web/login" and response.status == 200:
                self.secret = (await response.json())["secret"]
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
        headers = self.headers(is_post=True)
        headers.pop("Authorization", None)  # scripts of a page can set none on a socket
        async with self.rig.client.ws_connect(
            f"{self.rig.url}/ws",
            headers=headers,
            protocols=("agentsup", f"bearer.{self.secret}"),
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
