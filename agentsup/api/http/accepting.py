"""Accepts connections up to a limit, and pauses when the machine has no descriptor left.

asyncio's own servers accept without a limit, and without a free descriptor they log a traceback for
each attempt, hundreds per second.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable
from typing import Final

from agentsup.api.http.peers import Peer, Peers
from agentsup.kit.clock import Clock
from agentsup.kit.log import get_logger
from agentsup.kit.tasks import TaskOwner

_log = get_logger(__name__)
_BACKLOG: Final = 512
_SWEEP_S: Final = 1.0
_PATIENCE_S: Final = 5.0
_SHORTAGE_PAUSE_S: Final = 0.5
_SAY_EVERY_S: Final = 60.0


class AcceptLoop:
    """The listening sockets, and the tasks that accept from them."""

    def __init__(
        self, peers: Peers, serve: Callable[[], asyncio.Protocol], *, clock: Clock
    ) -> None:
        """``serve`` makes the protocol of a connection."""
        self._peers = peers
        self._serve = serve
        self._clock = clock
        self._sockets: list[socket.socket] = []
        self._owner = TaskOwner("listener")
        self._said_at = -_SAY_EVERY_S

    async def bind(self, host: str, port: int) -> tuple[tuple[str, ...], int]:
        """Bind ``port`` at every address of ``host``; returns the addresses and the port.

        Clients that connect wait until ``accept``. Raises ``OSError`` if one can't be bound.
        """
        loop = asyncio.get_running_loop()
        found = await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        try:
            for family, _, _, _, address in dict.fromkeys(found):
                wanted = (address[0], port, *address[2:])
                bound = socket.create_server(wanted, family=family, backlog=_BACKLOG)
                bound.setblocking(False)
                self._sockets.append(bound)
                port = int(bound.getsockname()[1])
        except OSError:
            await self.close()
            raise
        return tuple(str(each.getsockname()[0]) for each in self._sockets), port

    def accept(self) -> None:
        """Start to accept connections, and to close those whose time is over."""
        for each in self._sockets:
            self._owner.spawn(self._accept(each), name=f"accept:{each.getsockname()[1]}")
        self._owner.spawn(self._sweep(), name="accept:sweep")

    async def close(self) -> None:
        """Stop accepting; open connections stay open."""
        await self._owner.close(1.0)
        sockets, self._sockets = self._sockets, []
        for each in sockets:
            each.close()

    # -- inside ------------------------------------------------------------------------------------

    async def _accept(self, listening: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        while True:
            try:
                connection, _ = await loop.sock_accept(listening)
            except OSError as error:
                self._say(f"no connection can be accepted: {error.strerror or error}")
                self._peers.make_room()
                await self._clock.sleep(_SHORTAGE_PAUSE_S)
                continue
            try:
                await self._admit(connection)
            except OSError:
                connection.close()  # the client has gone already
            except asyncio.CancelledError:
                connection.close()
                raise

    async def _admit(self, connection: socket.socket) -> None:
        connection.setblocking(False)
        if not await self._peers.room(_PATIENCE_S):
            self._say(f"all {self._peers.most} connections are at work; further ones are refused")
            connection.close()
            return
        loop = asyncio.get_running_loop()
        await loop.connect_accepted_socket(lambda: Peer(self._peers, self._serve()), connection)

    async def _sweep(self) -> None:
        while True:
            await self._clock.sleep(_SWEEP_S)
            self._peers.sweep()

    def _say(self, what: str) -> None:
        now = self._clock.monotonic()
        if now - self._said_at >= _SAY_EVERY_S:
            self._said_at = now
            _log.warning(f"{what} (said once a minute)")
