"""The open connections of the listener, and which one is closed when there are too many.

A connection costs a descriptor before its client has shown a token. So at the limit a new one
replaces the oldest connection without a token, else the longest unused one with a token. A
connection is never closed while it serves a request with a token.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from enum import IntEnum
from typing import Final

from agentsup.kit.log import get_logger

_log = get_logger(__name__)
_SAY_EVERY_S: Final = 60.0


class _Use(IntEnum):
    """What a connection is used for; the lowest is closed first."""

    STRANGER = 0
    IDLE = 1
    """It has served a request with a token, and serves none now."""
    SERVING = 2


class ConnectionTable:
    """The open connections of one listener, at most ``most``."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._open: dict[asyncio.Transport, _Use] = {}
        """In the order of their last change."""
        self._said_at = -_SAY_EVERY_S

    def add(self, transport: asyncio.Transport) -> None:
        """Count a new connection; at the limit, close another one for it, or itself."""
        if len(self._open) >= self._most:
            leaving = min(
                filter(self._may_go, self._open), key=self._open.__getitem__, default=None
            )
            if leaving is None:
                self._say_full()
                transport.abort()
                return
            del self._open[leaving]
            leaving.abort()
        self._open[transport] = _Use.STRANGER

    def remove(self, transport: asyncio.Transport) -> None:
        """Forget a connection that has ended."""
        self._open.pop(transport, None)

    @contextmanager
    def serving(self, transport: asyncio.BaseTransport | None) -> Iterator[None]:
        """Serve a request with a valid token or session inside the block."""
        if transport not in self._open:  # closed meanwhile, or of another server
            yield
            return
        assert isinstance(transport, asyncio.Transport)
        self._change(transport, _Use.SERVING)
        try:
            yield
        finally:
            if transport in self._open:
                self._change(transport, _Use.IDLE)

    def _change(self, transport: asyncio.Transport, use: _Use) -> None:
        del self._open[transport]
        self._open[transport] = use

    def _may_go(self, transport: asyncio.Transport) -> bool:
        use = self._open[transport]
        is_read = use is _Use.STRANGER or not transport.get_write_buffer_size()
        return use is not _Use.SERVING and is_read

    def _say_full(self) -> None:
        now = asyncio.get_running_loop().time()
        if now - self._said_at >= _SAY_EVERY_S:
            self._said_at = now
            _log.warning(
                f"all {self._most} connections serve requests; further ones are refused "
                "(said once a minute)"
            )
