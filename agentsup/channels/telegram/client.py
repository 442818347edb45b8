"""One bot's calls to the Bot API: raw JSON in and out, typed errors, one HTTP session for all."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import ExitStack, asynccontextmanager
from typing import Any, Protocol

from agentsup.channels.http import BeforeSending
from agentsup.channels.received import Write
from agentsup.channels.telegram import library
from agentsup.channels.telegram.errors import FateUnknown, NotSent, error_of
from agentsup.channels.telegram.flood import Flood
from agentsup.channels.telegram.http import SharedHttp
from agentsup.channels.upload import UploadFile

__all__ = ["DEFAULT_BASE_URL", "SharedHttp", "TelegramClient", "UploadFile"]

DEFAULT_BASE_URL = "https://api.telegram.org"
_POLL = "getUpdates"
_PLACES = 16
"""Calls of one bot under way; polls not counted."""
_PLACE_WAIT_S = 10.0
_CHUNK_BYTES = 64 * 1024
_DOWNLOAD_S = 120.0


class SecretText(Protocol):
    """A resolved secret, such as `agentsup.model.agent.Secret`."""

    @property
    def written(self) -> str: ...


class TelegramClient:
    """Calls of one bot.

    `token` must be resolved (no reference). `base_url` is the server, with or without a trailing
    ``/bot``; empty for the public one.
    """

    def __init__(self, token: SecretText, base_url: str, *, http: SharedHttp) -> None:
        self._token = token.written
        self._root = (base_url or DEFAULT_BASE_URL).rstrip("/").removesuffix("/bot").rstrip("/")
        self._http = http
        self._places = asyncio.Semaphore(_PLACES)
        self._bot: Any = None
        self._library: library.Library | None = None
        self._is_closed = False

    @property
    def bot_id(self) -> str:
        """The public part of the token."""
        return self._token.partition(":")[0]

    @property
    def flood(self) -> Flood:
        """What this bot has sent lately, in all its lives."""
        return self._http.flood_of(f"{self._root}/{self.bot_id}")

    async def call(
        self,
        method: str,
        *,
        timeout_s: float = 20.0,
        files: Mapping[str, UploadFile] | None = None,
        before: BeforeSending | None = None,
        **fields: Any,
    ) -> Any:
        """Call ``method`` and return its raw result.

        ``before`` is awaited when the request is about to leave: after waits for a place and for a
        connection. If it raises an ``AgentsupError``, nothing is sent (``NotSent``).

        ``fields`` are JSON values; None is left out. ``timeout_s`` bounds the call from when it has
        a place (``getUpdates``: more than its own ``timeout``). Raises a ``TelegramError``;
        ``OSError`` for a file that can't be read, before anything was sent.
        """
        if method == _POLL:
            return await self._call(method, fields, timeout_s, before)
        async with self._place():
            with ExitStack() as opened:
                for name, file in (files or {}).items():
                    handle = opened.enter_context(await file.opened())
                    library_ = await self._loaded()
                    fields[name] = library_.telegram.InputFile(
                        handle, filename=file.name, read_file_handle=False
                    )
                return await self._call(method, fields, timeout_s, before)

    @asynccontextmanager
    async def _place(self) -> AsyncIterator[None]:
        try:
            async with asyncio.timeout(_PLACE_WAIT_S):
                await self._places.acquire()
        except TimeoutError:
            raise NotSent("too many calls of this bot wait for Telegram's answers") from None
        try:
            yield
        finally:
            self._places.release()

    async def _call(
        self, method: str, fields: dict[str, Any], timeout_s: float, before: BeforeSending | None
    ) -> Any:
        library_ = await self._loaded()
        if self._is_closed:
            raise NotSent("this bot's connection is closed")
        try:
            with library_.request.sending(before):
                return await self._bot.do_api_request(
                    method, api_kwargs=fields, read_timeout=timeout_s
                )
        except library_.request.Carried as carried:
            raise carried.error from None
        except library_.telegram.error.TelegramError as error:
            # Not one that our requests raise, so nothing is known of what was done.
            # It may quote the URL, and with it the token: what is stored must not.
            told = error.message.replace(self._token, "TOKEN")
            raise FateUnknown(f"{type(error).__name__}: {told}") from None

    async def _loaded(self) -> library.Library:
        if self._library is None:
            self._library = await library.load()
            self._bot = self._library.request.new_bot(
                self._token,
                base_url=f"{self._root}/bot",
                base_file_url=f"{self._root}/file/bot",
                http=self._http,
            )
        return self._library

    async def download(self, file_path: str, write: Write, max_bytes: int) -> int:
        """Fetch a file (``file_path`` of ``getFile``), ``write`` it and return its size in bytes.

        Raises a ``TelegramError``; ``TooLarge`` over ``max_bytes``; what ``write`` raises, an
        ``OSError``. Then a piece of it was written at most.
        """
        url = f"{self._root}/file/bot{self._token}/{file_path}"
        async with self._place(), self._http.get(url, timeout_s=_DOWNLOAD_S) as response:
            if response.status != 200:
                raise error_of(response.status, await response.beginning(_CHUNK_BYTES))
            return await response.save(write, max_bytes)

    async def close(self) -> None:
        """No more calls; the shared session stays open."""
        self._is_closed = True
