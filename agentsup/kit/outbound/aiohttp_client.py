"""aiohttp's client: sessions that unpack nothing automatically, and bodies read within limits."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping
from typing import Any

import aiohttp
from aiohttp import hdrs
from yarl import URL

from agentsup.kit.outbound.decoding import ENCODING, Decoder, check_body
from agentsup.kit.outbound.limits import AnswerLimits, AnswerMeter, LimitExceeded
from agentsup.kit.outbound.proxy import proxy_of

Session = aiohttp.ClientSession

_CHUNK_BYTES = 64 * 1024


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

    Bodies must be read with ``pieces`` or ``whole``, since nothing else unpacks and counts them. A
    request must pass ``allow_redirects=False``, or ``max_redirects=limits.redirects``.
    """
    kind: Any = response_class
    return aiohttp.ClientSession(
        connector=connector,
        headers={**(headers or {}), hdrs.ACCEPT_ENCODING: ENCODING},
        timeout=timeout(limits),
        cookie_jar=aiohttp.DummyCookieJar(),
        trust_env=False,
        auto_decompress=False,
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
    meter = AnswerMeter(limits)
    declared = response.content_length or 0
    if declared > limits.body_bytes:
        raise LimitExceeded("bytes", f"the answer is over the limit of {limits.body_bytes} bytes")
    decoder = Decoder(response.headers.get(hdrs.CONTENT_ENCODING, ""))
    async for chunk in response.content.iter_chunked(_CHUNK_BYTES):
        for piece in decoder.decode(chunk):
            meter.add(len(piece))
            yield piece
    decoder.end()


async def whole(response: aiohttp.ClientResponse, limits: AnswerLimits) -> bytes:
    """The whole unpacked body, with no more JSON values than ``limits`` allow. Raises like
    ``pieces``."""
    gathered = bytearray()
    async for piece in pieces(response, limits):
        gathered += piece
    body = bytes(gathered)
    del gathered
    await check_body(body, limits)
    return body
