"""python-telegram-bot over our own HTTP session. Imported by `library.load` only.

Answers are turned into our typed errors here, where status and body are at hand; they travel
through the library inside one of its own.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any

import aiohttp
from telegram import Bot
from telegram.error import TelegramError as LibraryError
from telegram.request import BaseRequest

from agentsup.channels.http import BeforeSending
from agentsup.channels.telegram import errors
from agentsup.channels.telegram.http import SharedHttp

if TYPE_CHECKING:
    from telegram._utils.types import JSONDict, ODVInput
    from telegram.request import RequestData

__all__ = ["Carried", "RawBot", "Request", "new_bot", "sending"]

_TIMEOUT_S = 20.0
# The library stands between a call and its request, and hands nothing of ours on.
_before: ContextVar[BeforeSending | None] = ContextVar("telegram before sending", default=None)


@contextmanager
def sending(before: BeforeSending | None) -> Iterator[None]:
    """Have ``before`` awaited by the call made in the block, when its request is about to leave."""
    mine = _before.set(before)
    try:
        yield
    finally:
        _before.reset(mine)


class Carried(LibraryError):
    """Carries one of our errors through the library."""

    def __init__(self, error: errors.TelegramError) -> None:
        super().__init__(error.message)
        self.error = error


class RawBot(Bot):
    """A bot whose calls are made by name and answered with raw JSON."""

    @classmethod
    def _warn(cls, *args: Any, **kwargs: Any) -> None:
        """Say nothing: that a typed method exists too is known, and raw answers are wanted."""


class Request(BaseRequest):
    """One bot's requests over the shared session."""

    def __init__(self, http: SharedHttp) -> None:
        self._http = http

    @property
    def read_timeout(self) -> float | None:
        return _TIMEOUT_S

    async def initialize(self) -> None:
        """Nothing: the session opens itself."""

    async def shutdown(self) -> None:
        """Nothing: the session belongs to all bots."""

    async def do_request(
        self,
        url: str,
        method: str,
        request_data: RequestData | None = None,
        read_timeout: ODVInput[float] = BaseRequest.DEFAULT_NONE,
        write_timeout: ODVInput[float] = BaseRequest.DEFAULT_NONE,
        connect_timeout: ODVInput[float] = BaseRequest.DEFAULT_NONE,
        pool_timeout: ODVInput[float] = BaseRequest.DEFAULT_NONE,
    ) -> tuple[int, bytes]:
        """Post ``request_data``; ``read_timeout`` bounds the whole call. Raises ``Carried``."""
        timeout_s = float(read_timeout) if isinstance(read_timeout, int | float) else _TIMEOUT_S
        try:
            answer = await self._http.post(
                url, _form(request_data), timeout_s=timeout_s, before=_before.get()
            )
        except errors.TelegramError as error:
            raise Carried(error) from None
        if not 200 <= answer.status <= 299:
            raise Carried(
                errors.error_of(answer.status, answer.body, retry_after=answer.retry_after)
            )
        return answer.status, answer.body

    @staticmethod
    def parse_json_payload(payload: bytes) -> JSONDict:
        """The answer of a successful call. Raises ``Carried`` if it makes no sense."""
        try:
            answer = json.loads(payload)
        except (ValueError, RecursionError):
            answer = None
        if isinstance(answer, dict) and answer.get("ok") is True and "result" in answer:
            return answer
        raise Carried(errors.error_of(200, payload))


def new_bot(token: str, *, base_url: str, base_file_url: str, http: SharedHttp) -> RawBot:
    """A bot that does nothing by itself: no call is made until one is asked for."""
    request = Request(http)
    return RawBot(
        token,
        base_url=base_url,
        base_file_url=base_file_url,
        request=request,
        get_updates_request=request,
    )


def _form(data: RequestData | None) -> Any:
    if data is None:
        return None
    if not data.contains_files:
        return data.json_parameters
    form = aiohttp.FormData(default_to_multipart=True)
    for name, value in data.json_parameters.items():
        form.add_field(name, value)
    for name, (filename, content, kind) in data.multipart_data.items():
        form.add_field(name, content, filename=filename, content_type=kind)
    return form
