"""python-telegram-bot over our own HTTP session. Imported only by ``client.library``.

Answers become our typed errors here, where status and body are known. They pass through the library
wrapped in one of its own errors.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any

import aiohttp
from telegram._files.inputfile import InputFile
from telegram.error import TelegramError
from telegram.request._baserequest import BaseRequest
from telegram.request._requestdata import RequestData
from telegram.request._requestparameter import RequestParameter

from agentsup.channels.core.errors import PlatformError
from agentsup.channels.core.receiving.raw import object_in
from agentsup.channels.core.sending.http import BeforeSending, HttpRequest
from agentsup.channels.telegram.client import SERVER, SharedHttp
from agentsup.channels.telegram.errors import error_of

if TYPE_CHECKING:
    from telegram._utils.types import JSONDict, ODVInput


_TIMEOUT_S = 20.0
_CONFLICT = 409
"""After it the next poll must use another connection."""
# The library is between a call and its request and passes no argument of ours on.
_before: ContextVar[BeforeSending | None] = ContextVar("telegram before sending", default=None)


@contextmanager
def sending(before: BeforeSending | None) -> Iterator[None]:
    """Let the call made in the block await ``before`` immediately before its request is sent."""
    mine = _before.set(before)
    try:
        yield
    finally:
        _before.reset(mine)


class WrappedError(TelegramError):
    """Wraps one of our errors to pass it through the library."""

    def __init__(self, error: PlatformError) -> None:
        super().__init__(error.message)
        self.error = error


class Request(BaseRequest):
    """One bot's requests over the shared session."""

    def __init__(self, http: SharedHttp) -> None:
        self._http = http

    async def call(self, url: str, fields: Mapping[str, Any], timeout_s: float) -> Any:
        """Post ``fields``, without those that are None, and return the raw result."""
        given = [
            RequestParameter.from_input(*each) for each in fields.items() if each[1] is not None
        ]
        return await self.post(url, RequestData(given), read_timeout=timeout_s)

    @property
    def read_timeout(self) -> float | None:
        return _TIMEOUT_S

    async def initialize(self) -> None:
        """Do nothing: the session is opened at first use."""

    async def shutdown(self) -> None:
        """Do nothing: the session belongs to all bots."""

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
        """Post ``request_data``; ``read_timeout`` bounds the call. Raises ``WrappedError``."""
        timeout_s = float(read_timeout) if isinstance(read_timeout, int | float) else _TIMEOUT_S
        try:
            wanted = HttpRequest(
                "POST", url, SERVER, timeout_s, data=_form(request_data), before=_before.get()
            )
            answer = await self._http.pool.request(wanted, hang_up_after=_CONFLICT)
        except PlatformError as error:
            raise WrappedError(error) from None
        if not 200 <= answer.status <= 299:
            method, retry_after = url.rpartition("/")[2], answer.retry_after
            raise WrappedError(
                error_of(answer.status, answer.body, retry_after=retry_after, method=method)
            )
        return answer.status, answer.body

    @staticmethod
    def parse_json_payload(payload: bytes) -> JSONDict:
        """Parse the answer of a successful call. Raises ``WrappedError`` if it is malformed."""
        answer = object_in(payload)
        if answer.get("ok") is True and "result" in answer:
            return answer
        raise WrappedError(error_of(200, payload))


def input_file(handle: Any, name: str) -> InputFile:
    """An open file as a field of a call."""
    return InputFile(handle, filename=name, read_file_handle=False)


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
