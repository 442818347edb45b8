"""The connections of the listener: their number, their time limits, and which is closed first.

A connection costs a descriptor before its client has shown a token. So each has a time limit for a
whole header, for its next request, and for a request without a token. If the most connections are
open, the oldest one without a token is closed for a new one. A connection with a token is never
closed while it serves a request.
"""

from __future__ import annotations

import asyncio
import math
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager

from agentsup.api.http.dependencies import ApiLimits
from agentsup.model.control import TokenIdentity
from agentsup.model.errors import Overloaded


class Peer(asyncio.Protocol):
    """One connection: passes everything on to the protocol that serves it, and holds its times."""

    def __init__(self, peers: Peers, served: asyncio.Protocol) -> None:
        self._peers = peers
        self._served = served
        self.transport: asyncio.Transport | None = None
        self.is_known = False
        """A request with a valid token or session has come on this connection."""
        self.is_busy = False
        self.since = 0.0
        self.ends_at = 0.0
        self._is_begun = True

    # -- called by the transport -------------------------------------------------------------------

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

    # -- called by the gate ------------------------------------------------------------------------

    def begin(self, *, is_known: bool) -> None:
        """A whole header has come, and its token or session was looked up."""
        self.is_busy = True
        self.is_known = self.is_known or is_known
        self.since = self._peers.now()
        limit_s = math.inf if self.is_known else self._peers.limits.stranger_s
        self.ends_at = self.since + limit_s

    def end(self) -> None:
        """The request was handled, and its answer is being sent."""
        self.is_busy = self._is_begun = False
        self.since = self._peers.now()
        limits = self._peers.limits
        self.ends_at = self.since + (limits.idle_s if self.is_known else limits.stranger_s)
        self._peers.check_again()

    @property
    def may_go(self) -> bool:
        """Whether it may be closed for another: no known client has a request or still reads."""
        if not self.is_known:
            return True
        assert self.transport is not None
        return not self.is_busy and not self.transport.get_write_buffer_size()

    def abort(self) -> None:
        """Close the connection at once."""
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
        """Requests under way by agent or person; those of operators are not counted."""
        self.made_room = 0
        """Connections that were closed for another."""

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
            self.check_again()

    # -- room --------------------------------------------------------------------------------------

    async def room(self, patience_s: float) -> bool:
        """Wait until one more may connect; close another one for it if possible (``make_room``).

        Returns False if all serve known clients and none has ended within ``patience_s`` seconds.
        """
        try:
            async with asyncio.timeout(patience_s):
                while len(self._open) >= self.most:
                    self._room.clear()
                    if not self.make_room():
                        await self._room.wait()
        except TimeoutError:
            return False
        return True

    def check_again(self) -> None:
        """Let ``room`` check again."""
        self._room.set()

    def make_room(self) -> bool:
        """Close one connection: an unknown client's before a known one's, then an idle one's, then
        the oldest. Returns False if each serves a known client."""
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
        """Close the connections whose time limit is over."""
        now = self.now()
        for peer in [each for each in self._open.values() if each.ends_at <= now]:
            peer.abort()

    # -- requests ----------------------------------------------------------------------------------

    @contextmanager
    def serving(
        self, transport: asyncio.BaseTransport | None, identity: TokenIdentity | None
    ) -> Iterator[None]:
        """Serve a request inside the block.

        An agent or person that is no operator may have requests under way on a quarter of the most
        connections, all of them together on three quarters. Raises ``Overloaded`` beyond that.
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
