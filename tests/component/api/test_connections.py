"""Connections to the listener: who has said nothing costs nobody else anything."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import logging
import socket
from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Any

import pytest

from agentsup.api.http.accepting import AcceptLoop
from agentsup.api.http.dependencies import ApiLimits
from agentsup.api.http.peers import Peers
from agentsup.kit.clock import SystemClock
from agentsup.model.control import TokenIdentity
from agentsup.model.errors import Overloaded
from agentsup.model.principal import OPERATOR, Principal, PrincipalKind
from tests.support.bound import BOUND_S

LIMITS = ApiLimits(connections=8, header_s=0.3, idle_s=60.0, stranger_s=0.6)
WHOLE = b"GET / HTTP/1.1\r\n\r\n"


def agent(number: int) -> TokenIdentity:
    return TokenIdentity(Principal(PrincipalKind.AGENT, f"agt_{number}"), agent_id=f"agt_{number}")


class Served(asyncio.Protocol):
    """Takes "whole headers" as a request of whoever it says, and answers when it is told to."""

    def __init__(self, rig: Rig) -> None:
        self._rig = rig
        self.transport: Any = None
        self.lost = asyncio.Event()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = transport
        self._rig.served.append(self)
        self._rig.news.set()

    def data_received(self, data: bytes) -> None:
        if data.endswith(b"\r\n\r\n"):
            self._rig.tasks.add(asyncio.ensure_future(self._answer(data)))

    async def _answer(self, data: bytes) -> None:
        identity = TokenIdentity(OPERATOR) if b"operator" in data else None
        with self._rig.peers.serving(self.transport, identity):
            if b"wait" in data:
                await self._rig.go_on.wait()
        self.transport.write(b"answered")

    def connection_lost(self, exc: Exception | None) -> None:
        self.lost.set()


class Rig:
    def __init__(self, limits: ApiLimits) -> None:
        self.peers = Peers(limits)
        self.served: list[Served] = []
        self.tasks: set[asyncio.Future[None]] = set()
        self.news, self.go_on = asyncio.Event(), asyncio.Event()
        self.listener = AcceptLoop(self.peers, lambda: Served(self), clock=SystemClock())
        self.port = 0

    async def connect(self, said: bytes = b"") -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        opened = await asyncio.open_connection("127.0.0.1", self.port)
        opened[1].write(said)
        return opened

    async def asks(self, said: bytes = WHOLE) -> bytes:
        reader, writer = await self.connect(said)
        try:
            async with asyncio.timeout(BOUND_S):
                return await reader.read(100)
        finally:
            writer.close()


@contextlib.asynccontextmanager
async def listening(limits: ApiLimits = LIMITS) -> AsyncIterator[Rig]:
    rig = Rig(limits)
    _, rig.port = await rig.listener.bind("127.0.0.1", 0)
    rig.listener.accept()
    try:
        yield rig
    finally:
        rig.go_on.set()
        await rig.listener.close()
        for each in rig.served:
            each.transport.abort()
        await asyncio.gather(*(each.lost.wait() for each in rig.served), *rig.tasks)


async def ends(reader: asyncio.StreamReader) -> None:
    async with asyncio.timeout(BOUND_S):
        with contextlib.suppress(ConnectionError):
            while await reader.read(1000):
                pass


@pytest.mark.parametrize("said", [b"", b"GET / HTTP/1.1\r\nHost: a", WHOLE + b"GET / HT"])
async def test_who_sends_no_whole_header_is_closed(said: bytes) -> None:
    async with listening() as rig:
        reader, writer = await rig.connect(said)
        await ends(reader)
        writer.close()
        assert rig.peers.count == 0


async def test_a_crowd_that_says_nothing_keeps_nobody_out() -> None:
    limits = replace(LIMITS, header_s=60.0)
    async with listening(limits) as rig:
        crowd = [await rig.connect(b"GET / HTTP/1.1\r\n") for _ in range(60)]
        assert await rig.asks() == b"answered"
        assert await rig.asks(b"operator\r\n\r\n") == b"answered"
        assert rig.peers.count <= limits.connections
        assert rig.peers.made_room >= 50
        for _, writer in crowd:
            writer.close()


async def test_who_is_at_work_with_a_token_is_never_ended_for_another() -> None:
    async with listening(replace(LIMITS, header_s=60.0)) as rig:
        reader, writer = await rig.connect(b"operator wait\r\n\r\n")
        strangers = [await rig.connect(b"wait\r\n\r\n") for _ in range(7)]
        crowd = [await rig.connect() for _ in range(30)]
        assert await rig.asks() == b"answered"
        rig.go_on.set()
        async with asyncio.timeout(BOUND_S):
            assert await reader.read(100) == b"answered"
        for _, each in [(reader, writer), *strangers, *crowd]:
            each.close()


async def test_where_all_work_for_somebody_known_one_more_waits_for_its_place() -> None:
    async with listening() as rig:
        known = [await rig.connect(b"operator wait\r\n\r\n") for _ in range(8)]
        async with asyncio.timeout(BOUND_S):
            while len(rig.tasks) < 8:
                await asyncio.sleep(0.01)
        asking = asyncio.ensure_future(rig.asks())
        done, _ = await asyncio.wait({asking}, timeout=0.2)
        assert not done
        rig.go_on.set()
        assert await asking == b"answered"
        for _, writer in known:
            writer.close()


async def test_a_stranger_who_does_not_read_is_closed_and_a_friend_is_not() -> None:
    async with listening() as rig:
        stranger, a = await rig.connect(WHOLE)
        friend, b = await rig.connect(b"operator\r\n\r\n")
        assert await stranger.read(100) == b"answered"
        await ends(stranger)
        assert rig.peers.count == 1
        assert await friend.read(100) == b"answered"
        a.close()
        b.close()


async def test_one_agent_has_a_share_and_all_of_them_leave_room_for_operators() -> None:
    peers = Peers(replace(LIMITS, connections=8))
    transports = [asyncio.Transport() for _ in range(9)]

    class Open:
        ends_at = since = 0.0
        is_known = is_busy = False

        def begin(self, *, is_known: bool) -> None: ...

        def end(self) -> None: ...

    for each in transports:
        peers._open[each] = Open()  # type: ignore[assignment]
    with contextlib.ExitStack() as stack:
        for number, transport in zip((1, 1, 2, 2, 3, 3), transports, strict=False):
            stack.enter_context(peers.serving(transport, agent(number)))
        for number in (1, 4):
            with pytest.raises(Overloaded), peers.serving(transports[7], agent(number)):
                pass
        stack.enter_context(peers.serving(transports[8], TokenIdentity(OPERATOR)))
    with peers.serving(transports[0], agent(1)):
        assert peers._of.total() == 1


async def test_a_missing_descriptor_is_said_once_and_gives_way(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING)
    loop, calls, made = asyncio.get_running_loop(), 0, list[Rig]()
    real = type(loop).sock_accept

    async def accept(self: Any, sock: socket.socket) -> Any:
        nonlocal calls
        calls += 1
        # The first connection has the last descriptor; it takes a while until its own is free.
        if calls > 1 and (calls <= 3 or not made[0].peers.made_room):
            raise OSError(errno.EMFILE, "Too many open files")
        return await real(self, sock)

    monkeypatch.setattr(type(loop), "sock_accept", accept)
    async with listening(replace(LIMITS, header_s=60.0)) as rig:
        made.append(rig)
        first, writer = await rig.connect()
        await ends(first)
        second, other = await rig.connect(WHOLE)
        async with asyncio.timeout(BOUND_S):
            assert await second.read(100) == b"answered"
        writer.close()
        other.close()
    said = [record for record in caplog.records if "Too many open files" in record.message]
    assert len(said) == 1
    assert said[0].exc_info is None
