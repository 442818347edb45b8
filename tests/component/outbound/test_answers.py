"""Limits of answers, by each library that asks: bytes, unpacked bytes, JSON values and time."""

from __future__ import annotations

import asyncio
import tracemalloc
import zlib
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import replace

import httpx2
import pytest
from aiohttp import web
from aiohttp.test_utils import RawTestServer

from agentsup.kit.outbound import aiohttp_client
from agentsup.kit.outbound.httpx_client import BoundedClient
from agentsup.kit.outbound.limits import MIB, AnswerLimits, LimitExceeded
from agentsup.kit.outbound.requests_client import new_session
from agentsup.kit.outbound.tls import loaded
from tests.support.hostile_server import HostileServer

LIMITS = AnswerLimits(body_bytes=MIB, values=100, headers_s=0.3, total_s=0.5)
Ask = Callable[[str, AnswerLimits], Awaitable[bytes]]


async def by_aiohttp(url: str, limits: AnswerLimits) -> bytes:
    async with (
        aiohttp_client.new_session(limits) as session,
        session.get(url, allow_redirects=False) as response,
    ):
        return await aiohttp_client.whole(response, limits)


async def by_httpx(url: str, limits: AnswerLimits) -> bytes:
    async with BoundedClient(limits, await loaded()) as client:
        return (await client.get(url)).content


BOTH = pytest.mark.parametrize("ask", [by_aiohttp, by_httpx])


@pytest.fixture
async def server() -> AsyncIterator[HostileServer]:
    async with HostileServer() as found:
        yield found


@BOTH
async def test_an_endless_answer_ends_at_its_limit(ask: Ask, server: HostileServer) -> None:
    with pytest.raises(LimitExceeded, match="over the limit of 1 MiB") as refused:
        await ask(server.url("endless body"), replace(LIMITS, total_s=None))
    assert refused.value.limit == "bytes"


@BOTH
async def test_an_answer_that_drips_ends_at_its_time(ask: Ask, server: HostileServer) -> None:
    with pytest.raises((TimeoutError, httpx2.ReadTimeout)):
        await ask(server.url("dripping body"), LIMITS)


async def test_headers_that_drip_end_at_their_time(server: HostileServer) -> None:
    with pytest.raises(httpx2.ReadTimeout, match=r"no answer within 0\.3 s"):
        await by_httpx(server.url("dripping headers"), LIMITS)


@pytest.mark.parametrize("trouble", ["gzip bomb", "deflate bomb"])
async def test_a_bomb_is_unpacked_in_steps_and_ends_at_the_limit(
    trouble: str, server: HostileServer
) -> None:
    tracemalloc.start()
    try:
        with pytest.raises(LimitExceeded, match="over the limit of 64 MiB"):
            await by_aiohttp(
                server.url(trouble), replace(LIMITS, body_bytes=64 * MIB, total_s=None)
            )
        # The answer itself is kept up to its limit, twice for a moment.
        assert tracemalloc.get_traced_memory()[1] < 3 * 64 * MIB
    finally:
        tracemalloc.stop()


@BOTH
@pytest.mark.parametrize(
    "encoding, wbits",
    [("gzip", zlib.MAX_WBITS | 16), ("deflate", zlib.MAX_WBITS), ("deflate", -zlib.MAX_WBITS)],
)
async def test_an_answer_that_is_compressed_anyway_is_read(
    ask: Ask, encoding: str, wbits: int
) -> None:
    packer = zlib.compressobj(9, zlib.DEFLATED, wbits)
    body = packer.compress(b"[" + b" " * 300_000 + b"]") + packer.flush()

    async def answer(request: web.BaseRequest) -> web.Response:
        return web.Response(body=body, headers={"Content-Encoding": encoding})

    async with RawTestServer(answer) as plain:
        assert len(await ask(str(plain.make_url("/")), LIMITS)) == 300_002


async def test_json_with_too_many_values_is_not_parsed(server: HostileServer) -> None:
    with pytest.raises(LimitExceeded, match="over 100 JSON values"):
        await by_aiohttp(server.url("many values"), replace(LIMITS, body_bytes=8 * MIB))


async def test_of_an_answer_to_traces_the_beginning_is_read(server: HostileServer) -> None:
    def post() -> int:
        with new_session() as session:
            return len(session.post(server.url("endless text"), data=b"{}", timeout=5).content)

    assert await asyncio.to_thread(post) == MIB
