"""Connections to the listener: who has said nothing costs nobody else anything."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator
from dataclasses import replace

import pytest

from agentsup.api.http import ApiLimits
from tests.component.api.conftest import LIMITS, OPERATOR_TOKEN, ApiFixture
from tests.support.bound import BOUND_S

MOST = 8
SEND = "/interagent/send"
HALF = "GET / HTTP/1.1\r\n"


@pytest.fixture
def limits() -> ApiLimits:
    return replace(LIMITS, connections=MOST)


def request(rig: ApiFixture, token: str) -> str:
    """A request whose body is still missing, so that it is under way until ``{}`` is sent."""
    return (
        f"POST {SEND} HTTP/1.1\r\nHost: 127.0.0.1:{rig.server.port}\r\n"
        f"Authorization: Bearer {token}\r\nContent-Type: application/json\r\n"
        "Content-Length: 2\r\n\r\n"
    )


@contextlib.asynccontextmanager
async def connected(
    rig: ApiFixture, *said: str
) -> AsyncIterator[list[tuple[asyncio.StreamReader, asyncio.StreamWriter]]]:
    """A connection for each text, which is sent, one after the other."""
    opened = list[tuple[asyncio.StreamReader, asyncio.StreamWriter]]()
    try:
        for text in said:
            opened.append(await asyncio.open_connection("127.0.0.1", rig.server.port))
            opened[-1][1].write(text.encode())
        yield opened
    finally:
        for _, writer in opened:
            writer.close()


async def line(reader: asyncio.StreamReader) -> bytes:
    """The first line of an answer; empty if the connection was closed."""
    async with asyncio.timeout(BOUND_S):
        try:
            return await reader.readline()
        except ConnectionError:
            return b""


async def test_a_crowd_that_says_nothing_keeps_nobody_out(rig: ApiFixture) -> None:
    async with connected(rig, *[HALF] * 60) as silent:
        for path in ("/healthz", "/interagent/agents"):
            assert (await rig.call("GET", path))[0] == 200
        oldest = silent[: 60 - MOST]
        assert {await line(reader) for reader, _ in oldest} == {b""}


async def test_a_request_with_a_token_is_never_cut_for_another(rig: ApiFixture) -> None:
    async with (
        connected(rig, request(rig, OPERATOR_TOKEN)) as [(reader, writer)],
        connected(rig, *[HALF] * 30),
    ):
        assert (await rig.call("GET", "/healthz"))[0] == 200
        writer.write(b"{}")
        assert (await line(reader)).startswith(b"HTTP/1.1 400")


async def test_an_idle_connection_with_a_token_stays_while_there_are_others(
    rig: ApiFixture,
) -> None:
    async with connected(rig, request(rig, OPERATOR_TOKEN) + "{}") as [(reader, writer)]:
        assert (await line(reader)).startswith(b"HTTP/1.1 400")
        async with connected(rig, *[HALF] * 30), asyncio.timeout(BOUND_S):
            await reader.readuntil(b'more)"}')
            writer.write((request(rig, OPERATOR_TOKEN) + "{}").encode())
            assert (await line(reader)).startswith(b"HTTP/1.1 400")


async def test_if_all_serve_operators_a_further_one_is_closed_and_the_log_says_so_once(
    rig: ApiFixture, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING)
    async with connected(rig, *[request(rig, OPERATOR_TOKEN)] * MOST) as busy:
        async with connected(rig, HALF, HALF) as more:
            assert [await line(reader) for reader, _ in more] == [b"", b""]
        for reader, writer in busy:
            writer.write(b"{}")
            assert (await line(reader)).startswith(b"HTTP/1.1 400")
    said = [each for each in caplog.records if f"all {MOST} connections" in each.message]
    assert len(said) == 1


async def test_an_agent_has_a_share_and_operators_keep_places(rig: ApiFixture) -> None:
    tokens = rig.agent_tokens
    async with connected(rig, *[request(rig, tokens["main"])] * 2):
        while rig.server.connections["connections"] < 2:
            await asyncio.sleep(0.01)
        status, document, _ = await rig.call("GET", "/interagent/agents", token=tokens["main"])
        assert (status, document["queue"]) == (429, "api.connections")
        for token in (tokens["worker"], OPERATOR_TOKEN):
            assert (await rig.call("GET", "/interagent/agents", token=token))[0] == 200
    while rig.server.connections["connections"]:
        await asyncio.sleep(0.01)
    assert (await rig.call("GET", "/interagent/agents", token=tokens["main"]))[0] == 200


class TestPatience:
    @pytest.fixture
    def limits(self) -> ApiLimits:
        return replace(LIMITS, idle_s=0.3)

    @pytest.mark.parametrize("said", ["", HALF, "GET / HTTP/1.1\r\n\r\nGET / HT"])
    async def test_who_sends_no_whole_header_is_closed(self, rig: ApiFixture, said: str) -> None:
        async with connected(rig, said) as [(reader, _)], asyncio.timeout(BOUND_S):
            await reader.read()
