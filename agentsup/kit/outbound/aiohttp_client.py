"""aiohttp's client: bodies are unpacked by the library in bounded steps, and read within limits."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping
from functools import partial
from typing import Any

import aiohttp
from aiohttp import hdrs
from yarl import URL

from agentsup.kit.compute import compute
from agentsup.kit.outbound.limits import (
    ENCODING,
    AnswerLimits,
    LimitExceeded,
    check_size,
    values_in,
)
from agentsup.kit.outbound.proxy import proxy_of

Session = aiohttp.ClientSession

_CHUNK_BYTES = 64 * 1024
_IN_THREAD_BYTES = 256 * 1024


class Request(aiohttp.ClientRequest):
    """A request that goes through the proxy of its address, if there is one."""

    def __init__(self, method: str, url: URL, **options: Any) -> None:
        """Raises ``ProxyUnusable``."""
        proxy = proxy_of(str(url))
        super().__init__(method, url, **{**options, "proxy": URL(proxy) if proxy else None})


def new_session(
    limits: AnswerLimits,
    *,
    connector: aiohttp.BaseConnector | None = None,
    headers: Mapping[str, str] | None = None,
    response_class: type[aiohttp.ClientResponse] = aiohttp.ClientResponse,
    request_class: type[Request] = Request,
) -> Session:
    """A session that asks for plain bodies and keeps no cookies.

    Bodies must be read with ``pieces`` or ``whole``, since nothing else counts them. A request
    must pass ``allow_redirects=False``, or ``max_redirects=limits.redirects``.
    """
    kind: Any = response_class
    return aiohttp.ClientSession(
        connector=connector,
        headers={**(headers or {}), hdrs.ACCEPT_ENCODING: ENCODING},
        timeout=timeout(limits),
        cookie_jar=aiohttp.DummyCookieJar(),
        trust_env=False,
        max_line_size=limits.header_bytes // 4,
        max_field_size=limits.header_bytes // 4,
        response_class=kind,
        request_class=request_class,
    )


def timeout(limits: AnswerLimits) -> aiohttp.ClientTimeout:
    """The times of ``limits`` in aiohttp's form."""
    return aiohttp.ClientTimeout(
        total=limits.total_s,
        connect=limits.connect_s,
        sock_connect=limits.connect_s,
        sock_read=limits.idle_s,
    )


async def pieces(response: aiohttp.ClientResponse, limits: AnswerLimits) -> AsyncGenerator[bytes]:
    """The unpacked body in pieces, as it arrives. Raises ``LimitExceeded``, and what aiohttp
    raises."""
    check_size(response.content_length or 0, limits)
    size = 0
    async for piece in response.content.iter_chunked(_CHUNK_BYTES):
        size += len(piece)
        check_size(size, limits)
        yield piece


async def whole(response: aiohttp.ClientResponse, limits: AnswerLimits) -> bytes:
    """The whole unpacked body, with no more JSON values than ``limits`` allow. Raises like
    ``pieces``."""
    gathered = bytearray()
    async for piece in pieces(response, limits):
        gathered += piece
    body = bytes(gathered)
    del gathered
    if len(body) > _IN_THREAD_BYTES:
        await compute(partial(_check_values, body, limits), key="answers")
    else:
        _check_values(body, limits)
    return body


def _check_values(body: bytes, limits: AnswerLimits) -> None:
    if limits.values is not None and values_in(body, limits.values) > limits.values:
        raise LimitExceeded(
            "values", f"the answer has over {limits.values} JSON values at once, the limit"
        )
