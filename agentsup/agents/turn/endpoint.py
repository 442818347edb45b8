"""The endpoints at which engine programs call our tools over HTTP, found by the token of the turn.

An endpoint is open exactly as long as its segment. Closing it stops the calls that still run, so
nothing is done in the name of a turn that has ended.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from typing import Any

from agentsup.kit.tasks import OwnerClosed, TaskOwner
from agentsup.model.errors import Unauthorised
from agentsup.model.tool import Tool, ToolResult

CLOSE_S = 2.0
"""Seconds in which a call must obey when its turn ends."""

ServeCall = Callable[[str, dict[str, Any]], Coroutine[Any, Any, ToolResult]]


class TurnEndpoint:
    """The open endpoint of one segment. ``tools()`` returns the tools that its program is offered,
    ``serve`` answers a call."""

    def __init__(self, tools: Callable[[], tuple[Tool, ...]], serve: ServeCall) -> None:
        self.tools = tools
        self._serve = serve
        self._owner = TaskOwner("tools", on_error=lambda task, error: None)  # ``call`` raises it
        self._under_way: dict[str, asyncio.Task[ToolResult]] = {}

    async def call(self, name: str, args: dict[str, Any], request_id: str) -> ToolResult:
        """Call a tool through the pipeline. If a person is asked first, the call waits.

        ``request_id`` is the program's own id, for ``cancel``. Raises ``Unauthorised`` if the turn
        has ended or ends meanwhile, or the call is cancelled, and what the pipeline raises.
        """
        try:
            task = self._owner.spawn(self._serve(name, args), name=f"tools:{name[:64]}")
        except OwnerClosed:
            raise _ended() from None
        self._under_way[request_id] = task
        try:
            await asyncio.wait({task})
        finally:
            task.cancel()
            if self._under_way.get(request_id) is task:
                del self._under_way[request_id]
        if task.cancelled():
            raise _ended()
        return task.result()

    def cancel(self, request_id: str) -> None:
        """Cancel a call that the program gave up."""
        task = self._under_way.get(request_id)
        if task is not None:
            task.cancel()

    async def close(self) -> None:
        """Stop the running calls, within ``CLOSE_S``, and accept no more."""
        await self._owner.close(CLOSE_S)


class TurnEndpoints:
    """The open endpoints by the digests of their tokens; the tokens are not held."""

    def __init__(self) -> None:
        self._open: dict[bytes, TurnEndpoint] = {}

    @asynccontextmanager
    async def serving(
        self, token: str, tools: Callable[[], tuple[Tool, ...]], serve: ServeCall
    ) -> AsyncIterator[None]:
        """Calls with ``token`` go to ``serve`` inside the block, and nowhere after it."""
        key, turn = _digest(token), TurnEndpoint(tools, serve)
        self._open[key] = turn
        try:
            yield
        finally:
            del self._open[key]
            await turn.close()

    def find(self, token: str) -> TurnEndpoint | None:
        """The running turn for which a token was issued, or None."""
        return self._open.get(_digest(token))


def _digest(token: str) -> bytes:
    return hashlib.sha256(token.encode()).digest()


def _ended() -> Unauthorised:
    return Unauthorised(
        "the turn that this token was made for has ended, or the call was cancelled"
    )
