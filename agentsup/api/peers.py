"""Who is connected to the listener: how many, for how long without a word, and who has to go.

A connection costs a descriptor before anybody has said who they are. So each has a time for a whole
header, for its next request and for what it sends without a token; and where all places are taken,
the oldest connection that nobody vouches for makes room. One with a token is never ended at work.
"""

from __future__ import annotations

import asyncio
import math
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager

from agentsup.api.ports import ApiLimits
from agentsup.model.control import TokenIdentity
from agentsup.model.errors import Overloaded

__all__ = ["Peer", "Peers"]


class Peer(asyncio.Protocol):
    """One connection, before the protocol that serves it."""

    def __init__(self, peers: Peers, served: asyncio.Protocol) -> None:
        self._peers = peers
        self._served = served
        self.transport: asyncio.Transport | None = None
        self.is_known = False
        """Somebody with a token, or signed in, has asked something."""
        self.is_busy = False
        self.since = 0.0
        self.ends_at = 0.0
        self._is_begun = True

    # -- what the transport says -------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport
        self.since = self._peers.now()
        self.ends_at = self.since + self._peers.limits.header_s
        self._peers.add(self)
        self._served.connection_made(transport)

    def data_received(self, data: bytes) -> None:
        if not self.is_busy and not self._is_begun:
            self._is_begun = True
            self.ends_at = self._peers.now() + self._peers.limits.header_s
        self._served.data_received(data)

    def eof_received(self) -> bool | None:
        return self._served.eof_received()

    def pause_writing(self) -> None:
        self._served.pause_writing()

    def resume_writing(self) -> None:
        self._served.resume_writing()

    def connection_lost(self, exc: Exception | None) -> None:
        self._peers.remove(self)
        self._served.connection_lost(exc)

    # -- what the gate says ------------------------------------------------------------------------

    def begin(self, *, is_known: bool) -> None:
        """A whole header is there, and who asks was looked up."""
        self.is_busy = True
        self.is_known = self.is_known or is_known
        self.since = self._peers.now()
        limit_s = math.inf if self.is_known else self._peers.limits.stranger_s
        self.ends_at = self.since + limit_s

    def end(self) -> None:
        """The answer is on its way."""
        self.is_busy = self._is_begun = False
        self.since = self._peers.now()
        limits = self._peers.limits
        self.ends_at = self.since + (limits.idle_s if self.is_known else limits.stranger_s)
        self._peers.look_again()

    @property
    def may_go(self) -> bool:
        """Whether it may be ended for another: nobody known asks or still reads."""
        if not self.is_known:
            return True
        assert self.transport is not None
        return not self.is_busy and not self.transport.get_write_buffer_size()

    def abort(self) -> None:
        """End it now, without a word."""
        if self.transport is not None:
            self.transport.abort()


class Peers:
    """The open connections of one listener."""

    def __init__(self, limits: ApiLimits) -> None:
        self.limits = limits
        self.most = limits.connections
        self._open: dict[asyncio.BaseTransport, Peer] = {}
        self._room = asyncio.Event()
        self._room.set()
        self._of: Counter[str] = Counter()
        """Requests under way, by who asks; operators' are not counted."""
        self.made_room = 0
        """Connections that were ended for another."""

    @property
    def count(self) -> int:
        """How many are open."""
        return len(self._open)

    def now(self) -> float:
        """The loop's time."""
        return asyncio.get_running_loop().time()

    def add(self, peer: Peer) -> None:
        assert peer.transport is not None
        self._open[peer.transport] = peer

    def remove(self, peer: Peer) -> None:
        if peer.transport is not None and self._open.pop(peer.transport, None) is not None:
            self.look_again()

    # -- room --------------------------------------------------------------------------------------

    async def room(self, patience_s: float) -> bool:
        """Wait until one more may connect; the oldest that nobody vouches for makes room. False
        where all are at work for somebody known and none has ended in that time."""
        try:
            async with asyncio.timeout(patience_s):
                while len(self._open) >= self.most:
                    self._room.clear()
                    if not self.make_room():
                        await self._room.wait()
        except TimeoutError:
            return False
        return True

    def look_again(self) -> None:
        """Whoever waits for room may find some."""
        self._room.set()

    def make_room(self) -> bool:
        """End the connection that is missed the least. False where each is at work."""
        leaving = min(
            (peer for peer in self._open.values() if peer.may_go),
            key=lambda peer: (peer.is_known, peer.is_busy, peer.since),
            default=None,
        )
        if leaving is None:
            return False
        self.made_room += 1
        self.remove(leaving)
        leaving.abort()
        return True

    def sweep(self) -> None:
        """End what has had its time."""
        now = self.now()
        for peer in [each for each in self._open.values() if each.ends_at <= now]:
            peer.abort()

    # -- requests ----------------------------------------------------------------------------------

    @contextmanager
    def serving(
        self, transport: asyncio.BaseTransport | None, identity: TokenIdentity | None
    ) -> Iterator[None]:
        """A request is served inside the block.

        Whoever is no operator has at most a quarter of the places with requests under way, and all
        of them together three quarters. Raises ``Overloaded``.
        """
        peer = self._open.get(transport) if transport is not None else None
        if peer is None:
            yield
            return
        peer.begin(is_known=identity is not None)
        try:
            with self._counted(identity):
                yield
        finally:
            peer.end()

    @contextmanager
    def _counted(self, identity: TokenIdentity | None) -> Iterator[None]:
        if identity is None or identity.principal.is_operator:
            yield
            return
        who = identity.agent_id or identity.principal.subject
        share, most = max(1, self.most // 4), max(1, self.most * 3 // 4)
        if self._of[who] >= share or self._of.total() >= most:
            raise Overloaded(
                f"{self._of[who]} requests of yours are under way, and the listener takes no more "
                "now; let one end, or try again later",
                queue="api.connections",
                size=self._of.total(),
                limit=share,
            )
        self._of[who] += 1
        try:
            yield
        finally:
            self._of[who] -= 1
            if not self._of[who]:
                del self._of[who]
