"""One bot's calls to the Bot API: raw JSON in and out, typed errors, one HTTP session for all."""

from __future__ import annotations

import asyncio
import importlib
from collections.abc import Mapping
from contextlib import ExitStack
from typing import Any, Final

from agentsup.channels.core.errors import NotSent
from agentsup.channels.core.files.inbox_files import Write
from agentsup.channels.core.files.upload import UploadFile
from agentsup.channels.core.receiving.raw import object_in
from agentsup.channels.core.sending.http import BeforeSending, CallSlots, HttpPool, HttpRequest
from agentsup.channels.telegram.errors import error_of
from agentsup.channels.telegram.flood import RateLimiter, Rates
from agentsup.kit.loading import hidden, late
from agentsup.model.secret import Secret

SERVER: Final = "Telegram"
"""The server's name in the messages of errors."""
DEFAULT_BASE_URL = "https://api.telegram.org"
_REQUEST = "agentsup.channels.telegram.request"
_POLL = "getUpdates"
_CONFLICT = 409
"""After it the next poll must use another connection."""
_CALL_SLOTS = 16
"""Most calls of one bot under way; polls are not counted."""
_CHUNK_BYTES = 64 * 1024
_DOWNLOAD_S = 120.0


async def library() -> Any:
    """Return ``channels.telegram.request``, which imports python-telegram-bot; loads it in a thread.

    Only the library's modules of the forms of requests are loaded. Its types of answers, its own
    HTTP client and the library for Telegram Passport would take 13 MiB more. Raises
    ``ImportError`` if it is not installed.
    """
    return await asyncio.to_thread(_load)


def _load() -> Any:
    late("telegram")
    late("telegram.request")
    with hidden("cryptography"):  # only Telegram Passport would take it
        return importlib.import_module(_REQUEST)


class SharedHttp:
    """The HTTP session of all bots of a daemon, and the rate limiter of each."""

    def __init__(self, *, rates: Rates | None = None, pool: HttpPool | None = None) -> None:
        """``rates`` are the server's limits, if they differ from the public server's.

        ``pool`` is a shared session, which its owner closes.
        """
        self._rates = rates
        self._floods: dict[str, RateLimiter] = {}
        self.pool = pool or HttpPool()
        self._is_ours = pool is None

    def flood_of(self, bot: str) -> RateLimiter:
        """Return the rate limiter of this bot; it exists as long as the daemon runs."""
        return self._floods.setdefault(bot, RateLimiter(self._rates))

    async def close(self) -> None:
        """Close the session if it is our own; calls under way fail. A second call does nothing."""
        if self._is_ours:
            await self.pool.close()


class TelegramClient:
    """Makes the calls of one bot.

    ``token`` must be resolved (no reference). ``base_url`` is the server, with or without a
    trailing ``/bot``; empty for the public one.
    """

    def __init__(self, token: Secret, base_url: str, *, http: SharedHttp) -> None:
        self._token = token.written
        self._root = (base_url or DEFAULT_BASE_URL).rstrip("/").removesuffix("/bot").rstrip("/")
        self._http = http
        self._slots = CallSlots(
            _CALL_SLOTS, "too many calls of this bot wait for Telegram's answers"
        )
        self._library: Any = None
        self._is_closed = False

    @property
    def bot_id(self) -> str:
        """The public part of the token."""
        return self._token.partition(":")[0]

    @property
    def flood(self) -> RateLimiter:
        """The rate limiter of this bot, shared by all its lives."""
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

        ``before`` is awaited immediately before the request is sent, when it has a slot and a
        connection. If it raises an ``AgentsupError``, nothing is sent (``NotSent``).

        ``fields`` are JSON values; None is left out. ``timeout_s`` bounds the call from when it has
        a slot (``getUpdates``: more than its own ``timeout``). Raises a ``PlatformError``;
        ``OSError`` for a file that cannot be read, before anything was sent.
        """
        if method == _POLL:
            return await self._call(method, fields, timeout_s, before)
        async with self._slots.one():
            with ExitStack() as opened:
                for name, file in (files or {}).items():
                    handle = opened.enter_context(await file.opened())
                    fields[name] = (await self._loaded()).input_file(handle, file.name)
                return await self._call(method, fields, timeout_s, before)

    async def _call(
        self, method: str, fields: dict[str, Any], timeout_s: float, before: BeforeSending | None
    ) -> Any:
        form = (await self._loaded()).form_of(fields)
        if self._is_closed:
            raise NotSent("this bot's connection is closed")
        url = f"{self._root}/bot{self._token}/{method}"
        wanted = HttpRequest("POST", url, SERVER, timeout_s, data=form, before=before)
        answer = await self._http.pool.request(wanted, hang_up_after=_CONFLICT)
        found = object_in(answer.body) if 200 <= answer.status <= 299 else {}
        if found.get("ok") is True and "result" in found:
            return found["result"]
        raise error_of(answer.status, answer.body, retry_after=answer.retry_after, method=method)

    async def _loaded(self) -> Any:
        if self._library is None:
            self._library = await library()
        return self._library

    async def download(self, file_path: str, write: Write, max_bytes: int) -> int:
        """Fetch a file (``file_path`` of ``getFile``), ``write`` it and return its size in bytes.

        Raises a ``PlatformError``, ``TooLarge`` over ``max_bytes``, or the ``OSError`` of
        ``write``. In these cases a part of the file may have been written.
        """
        url = f"{self._root}/file/bot{self._token}/{file_path}"
        fetching = self._http.pool.open(HttpRequest("GET", url, SERVER, _DOWNLOAD_S))
        async with self._slots.one(), fetching as response:
            if response.status != 200:
                raise error_of(response.status, await response.beginning(_CHUNK_BYTES))
            return await response.save(write, max_bytes)

    async def close(self) -> None:
        """End the client: further calls raise ``NotSent``; the shared session stays open."""
        self._is_closed = True
