"""A bench for supervised children: a board, dice that always fall in the middle, scripted lives."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from typing import Any

from agentsup.model.errors import ExitRequested
from agentsup.model.health import AgentState
from agentsup.supervision import Board, ChildContext, ChildSpec, Grace, SupervisedChild
from tests.support.loop_clock import LoopClock

Factory = Callable[[ChildContext], Awaitable[None]]


class MiddleDice:
    """Entropy whose jitter is none."""

    def new_id(self, prefix: str) -> str:
        raise NotImplementedError

    def token(self) -> str:
        raise NotImplementedError

    def uniform(self, low: float, high: float) -> float:
        return (low + high) / 2


class SupervisorFixture:
    """Everything a test of supervision needs at hand."""

    def __init__(self) -> None:
        self.clock = LoopClock(epoch_ms=0)
        self.board = Board()
        self.exits: list[int] = []
        self.states: list[tuple[str, AgentState]] = []
        self.release = asyncio.Event()
        self.board.listen(self._note)
        self.children: list[SupervisedChild] = []

    def _note(self, status: Any) -> None:
        if not self.states or self.states[-1] != (status.child_id, status.state):
            self.states.append((status.child_id, status.state))

    def child(self, factory: Factory, **options: Any) -> SupervisedChild:
        """A child, not started."""
        spec = ChildSpec(options.pop("child_id", "ada"), factory, **options)
        child = SupervisedChild(
            spec,
            clock=self.clock,
            entropy=MiddleDice(),
            record=self.board.record,
            on_exit=self.exits.append,
        )
        self.children.append(child)
        self.board.record(child.status)
        return child

    async def stop_all(self, grace: Grace | None = None) -> None:
        """Stop every child; none waits for another."""
        await asyncio.gather(*(child.stop(grace) for child in self.children))

    def seen(self, child_id: str = "ada") -> list[AgentState]:
        return [state for who, state in self.states if who == child_id]

    def now(self) -> float:
        return asyncio.get_running_loop().time()

    # -- scripted lives ------------------------------------------------------------------------

    async def obeys(self, ctx: ChildContext) -> None:
        """Works until asked to drain, then ends at once."""
        ctx.ready()
        await ctx.draining.wait()

    async def drains_slowly(self, ctx: ChildContext) -> None:
        """Needs 20 s to drain."""
        ctx.ready()
        await ctx.draining.wait()
        await asyncio.sleep(20)

    async def ignores_drain(self, ctx: ChildContext) -> None:
        """Ends only when cancelled."""
        ctx.ready()
        await asyncio.Event().wait()

    async def closes_slowly(self, ctx: ChildContext) -> None:
        """Needs 3 s after its cancellation."""
        ctx.ready()
        try:
            await asyncio.Event().wait()
        finally:
            await asyncio.sleep(3)

    async def swallows_cancel(self, ctx: ChildContext) -> None:
        """Ignores drain and every cancellation until the test releases it."""
        ctx.ready()
        while not self.release.is_set():
            with contextlib.suppress(asyncio.CancelledError):
                await self.release.wait()

    async def swallows_one_cancel(self, ctx: ChildContext) -> None:
        """Ignores the first cancellation, as code that cleans up without a bound."""
        ctx.ready()
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.Event().wait()
        await asyncio.Event().wait()


def after(delay_s: float, error: Exception | None, *, is_ready: bool = True) -> Factory:
    """A life that ends by itself after a while, with ``error`` or without."""

    async def life(ctx: ChildContext) -> None:
        if is_ready:
            ctx.ready()
        await asyncio.sleep(delay_s)
        if error is not None:
            raise type(error)(*error.args)

    return life


def asks(code: int, delay_s: float = 1.0) -> Factory:
    """A life that asks to end with ``code``."""

    async def life(ctx: ChildContext) -> None:
        ctx.ready()
        await asyncio.sleep(delay_s)
        raise ExitRequested(code)

    return life
