"""Turns whose engine's program calls our tools from outside, over HTTP: found by their run's token.

A door is open exactly as long as the segment: closing it stops the calls that are still under way,
so nothing is done in the name of a turn that has ended.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, Protocol

from agentsup.agents.host import TurnHost
from agentsup.engines.guard import GuardedSession
from agentsup.kit.tasks import OwnerClosed, TaskOwner
from agentsup.model.errors import Unauthorised
from agentsup.model.tool import Tool, ToolResult

CLOSE_S = 2.0
"""How long a call may take to obey when its turn ends."""


class Served(Protocol):
    """What a turn lends to a program outside."""

    def served(self) -> tuple[Tool, ...]: ...

    async def serve(self, name: str, args: dict[str, Any]) -> ToolResult: ...


class Door:
    """A turn's host, reached from outside; its engine's guard watches these calls too."""

    def __init__(self, host: TurnHost, session: GuardedSession) -> None:
        self._host = host
        self._session = session

    def served(self) -> tuple[Tool, ...]:
        return self._host.served()

    async def serve(self, name: str, args: dict[str, Any]) -> ToolResult:
        return await self._session.serve(name, args, self._host.serve)


class ServedTurn:
    """The open door of one segment."""

    def __init__(self, host: Served) -> None:
        self._host = host
        self._owner = TaskOwner("served", on_error=lambda task, error: None)  # the caller hears it
        self._under_way: dict[str, asyncio.Task[ToolResult]] = {}

    def tools(self) -> tuple[Tool, ...]:
        """What the program is offered."""
        return self._host.served()

    async def call(self, name: str, args: dict[str, Any], request_id: str) -> ToolResult:
        """Call a tool through the pipeline. Where a person is asked first, it waits.

        ``request_id`` is the program's own, for ``cancel``. Raises ``Unauthorised`` once the turn
        has ended, also when it ends meanwhile, and what the pipeline raises.
        """
        try:
            task = self._owner.spawn(self._host.serve(name, args), name=f"served:{name[:64]}")
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
        """The program has given up on this call."""
        task = self._under_way.get(request_id)
        if task is not None:
            task.cancel()

    async def close(self) -> None:
        """Stop what is under way, in bounded time; nothing begins any more."""
        await self._owner.close(CLOSE_S)


class ServedTurns:
    """The open doors by their tokens, of which only digests are held."""

    def __init__(self) -> None:
        self._open: dict[bytes, ServedTurn] = {}

    @asynccontextmanager
    async def serving(self, token: str, host: Served) -> AsyncIterator[None]:
        """Calls with ``token`` go to ``host`` inside the block, and nowhere after it."""
        key, turn = _digest(token), ServedTurn(host)
        self._open[key] = turn
        try:
            yield
        finally:
            del self._open[key]
            await turn.close()

    def find(self, token: str) -> ServedTurn | None:
        """The running turn that a token was made for."""
        return self._open.get(_digest(token))


def _digest(token: str) -> bytes:
    return hashlib.sha256(token.encode()).digest()


def _ended() -> Unauthorised:
    return Unauthorised(
        "the turn that this token was made for has ended, or the call was cancelled"
    )
