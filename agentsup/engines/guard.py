"""The guard around every engine: whatever the engine does, a run ends once, in time and in bounds.

The engine's generator runs in a task of its own, so that one that ignores cancellation can be
left behind, and so that it is opened, stepped and closed by one and the same task. What is decided
is in ``guard_rules``; here are the waiting and the stopping.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import replace
from typing import Any, TypeVar

from agentsup.engines import guard_rules
from agentsup.engines.clean import clean, clean_event, clean_value
from agentsup.engines.failures import EngineCrash
from agentsup.engines.guard_rules import Account, CallRepeats, PollRepeats, RunLimits
from agentsup.kit.tasks import TaskOwner, stop_task
from agentsup.model.engine import (
    Done,
    Engine,
    EngineEvent,
    EngineHost,
    EngineSession,
    EngineSpec,
    Permission,
    PermissionRequest,
    Segment,
    Suspended,
    Usage,
)
from agentsup.model.errors import EngineFailed, ExitRequested, LeaseLost, StoreUnavailable
from agentsup.model.tool import Effect, Tool, ToolResult, TurnPlace

__all__ = ["GuardedSession", "RunLimits", "open_guarded"]

T = TypeVar("T")
_log = logging.getLogger(__name__)

ESCAPING = (EngineCrash, ExitRequested, LeaseLost, StoreUnavailable)
"""What the stack must see itself: its own end, a lost lease, a store that can't be written."""

_CHANNEL_SIZE = 64
_CLOSE_S = 1.0


async def open_guarded(
    engine: Engine,
    spec: EngineSpec,
    host: EngineHost,
    *,
    limits: RunLimits | None = None,
    on_abandoned: Callable[[str], None] | None = None,
) -> GuardedSession:
    """Open a session of ``engine`` under guard.

    ``on_abandoned(what)`` hears of an engine that did not obey in time; it is logged in any case.
    Raises ``EngineFailed`` where the engine can't be opened (any error of its own is turned into
    one); ``ESCAPING`` errors pass.
    """
    guarded_host = _GuardedHost(host, limits or RunLimits())
    try:
        session = await engine.open(spec, guarded_host)
    except (EngineFailed, *ESCAPING):
        raise
    except Exception as error:  # supervision boundary: an engine is anyone's code
        _log.exception("engine %s could not be opened", engine.name)
        raise EngineFailed(
            f"the engine {engine.name} can't be opened ({type(error).__name__}: {error})"
        ) from error
    return GuardedSession(engine.name, session, guarded_host, on_abandoned)


Serve = Callable[
    [str, dict[str, Any], Callable[[], AbstractContextManager[None]]], Awaitable[ToolResult]
]
"""Carries a call out; what it is given last stands around the wait for a person."""


class GuardedSession:
    """An ``EngineSession`` whose ``run`` keeps the promises of the port.

    Made by ``open_guarded``; runs one segment at a time.
    """

    def __init__(
        self,
        name: str,
        session: EngineSession,
        host: _GuardedHost,
        on_abandoned: Callable[[str], None] | None,
    ) -> None:
        self._name = name
        self._session = session
        self._host = host
        self._limits = host.limits
        self._on_abandoned = on_abandoned
        self._owner = TaskOwner(f"engine {name}", on_error=self._late_error)
        self._cancel_s = host.limits.cancel_s

    def cancel(self, *, within_s: float | None = None) -> None:
        """End the running segment with ``Done(cancelled)`` and the text so far.

        The engine gets ``within_s`` seconds (default: the limit) to obey. Cancelling the consuming
        task instead also works; then there is no ``Done``.
        """
        if within_s is not None:
            self._cancel_s = within_s
        self._host.end(None)

    async def serve(self, name: str, args: dict[str, Any], serve: Serve) -> ToolResult:
        """A call that the engine's program makes from outside: watched like those of the run."""
        return await self._host.serve(name, args, serve)

    async def run(self, segment: Segment) -> AsyncGenerator[EngineEvent]:
        """Yield the events of one segment and exactly one ``Done`` or ``Suspended``, the last.

        Close it (``contextlib.aclosing``) when not read to its end. Raises only ``ESCAPING``.
        """
        account = Account(self._limits, self._host.is_poll)
        self._host.begin()
        channel = self._host.channel
        pump = self._owner.spawn(
            _pump(self._session, segment, channel), name=f"engine:{segment.message_id}"
        )
        hard_at = asyncio.get_running_loop().time() + self._limits.hard_s
        end: Done | Suspended | None = None
        try:
            with self._host.resting_with_slot():
                while end is None:
                    event, end = self._judge(await self._next(account, hard_at), account)
                    if event is not None:
                        yield event
        finally:
            await self._stop(pump, segment, by_itself=channel.has_ended)
        for left in channel.items:
            if isinstance(left, Usage):
                yield left
        yield end

    async def close(self) -> None:
        """Release the engine's session and whatever still runs in it, within a second or two."""
        try:
            async with asyncio.timeout(_CLOSE_S):
                await self._session.close()
        except TimeoutError:
            self._abandoned("close")
        except Exception:  # noqa: BLE001 - supervision boundary: closing must not keep the turn
            _log.exception("closing a session of engine %s failed", self._name)
        try:
            await self._owner.close(_CLOSE_S)
        finally:
            # What ignored each request so far may listen by now: without this one it would work
            # on beside the turn that is given its slot.
            for task in self._owner.tasks:
                task.cancel()

    # -- inside ------------------------------------------------------------------------------------

    async def _next(self, account: Account, hard_at: float) -> EngineEvent | BaseException | None:
        """The engine's next event, its exception, None for a silent end; or an end of our own."""
        host, channel = self._host, self._host.channel
        while True:
            if host.is_ended:
                return host.fatal or guard_rules.cancelled(account.text)
            if channel.items:
                return channel.take()
            # Time that others take, a person or the agents that it waits for, is not the turn's.
            left_s = max(0.0, hard_at + host.rested_s - asyncio.get_running_loop().time())
            signs = host.signs
            try:
                wait_s = self._limits.idle_s if host.rests else min(left_s, self._limits.idle_s)
                async with asyncio.timeout(wait_s):
                    await channel.news()
            except TimeoutError:
                if left_s <= self._limits.idle_s and not host.rests:
                    return guard_rules.timed_out(account.text, "hard", self._limits.hard_s)
                # A call that is open, began or ended meanwhile is a sign of life.
                if host.signs == signs and not (account.in_call or host.open_calls):
                    return guard_rules.timed_out(account.text, "idle", self._limits.idle_s)

    def _judge(
        self, item: EngineEvent | BaseException | None, account: Account
    ) -> tuple[EngineEvent | None, Done | Suspended | None]:
        """What to pass on, and the end if this is it. Raises what the stack must see itself."""
        if isinstance(item, ESCAPING):
            raise item
        if isinstance(item, Done | Suspended):
            return None, account.end(item)
        if item is None:
            return None, guard_rules.silent_end(account.text)
        if isinstance(item, EngineFailed):
            return None, guard_rules.failure(item, account.text)
        if isinstance(item, asyncio.CancelledError):
            return None, guard_rules.cancelled(account.text)
        if isinstance(item, BaseException):
            _log.error("engine %s broke", self._name, exc_info=item)
            return None, guard_rules.crash(item, account.text)
        try:
            event = account.note(item)
        except EngineFailed as error:
            return None, guard_rules.failure(error, account.text)
        return event, Done("ok", text=account.text) if account.runaway else None

    async def _stop(self, pump: asyncio.Task[None], segment: Segment, *, by_itself: bool) -> None:
        """End the pump within its limit, or leave it behind and say so."""
        if by_itself and not pump.done():
            await asyncio.wait({pump}, timeout=self._cancel_s)
        if not await stop_task(pump, timeout_s=self._cancel_s):
            self._abandoned(f"message {segment.message_id}")

    def _abandoned(self, what: str) -> None:
        _log.error("engine %s did not stop in time and was left behind: %s", self._name, what)
        if self._on_abandoned is not None:
            self._on_abandoned(f"engine {self._name}: {what}")

    def _late_error(self, task: asyncio.Task[Any], error: BaseException) -> None:
        _log.error("engine %s failed after its end", self._name, exc_info=error)


class _Channel:
    """Events on their way from the engine's task to the consumer; bounded, single reader."""

    def __init__(self) -> None:
        self.items: deque[EngineEvent | BaseException | None] = deque()
        self.has_ended = False
        """The engine's own end was taken."""
        self._news = asyncio.Event()
        self._room = asyncio.Event()

    async def put(self, item: EngineEvent | BaseException | None) -> None:
        while len(self.items) >= _CHANNEL_SIZE:
            self._room.clear()
            await self._room.wait()
        self.items.append(item)
        self._news.set()

    def take(self) -> EngineEvent | BaseException | None:
        self._room.set()
        item = self.items.popleft()
        self.has_ended = isinstance(item, Done | Suspended)
        return item

    def ring(self) -> None:
        """Wake the reader without an item."""
        self._news.set()

    async def news(self) -> None:
        """Return when something was put or the bell was rung since the last return."""
        await self._news.wait()
        self._news.clear()


async def _pump(session: EngineSession, segment: Segment, channel: _Channel) -> None:
    """Step the engine's generator and close it, all in this task; what it gives goes to ``channel``."""
    has_ended = False
    error: BaseException | None = None
    try:
        events = session.run(segment)
        try:
            async for event in events:
                await channel.put(clean_event(event))
                if isinstance(event, Done | Suspended):
                    has_ended = True
                    break
        finally:
            close = getattr(events, "aclose", None)
            if close is not None:
                await close()
    except asyncio.CancelledError as cancelled:
        task = asyncio.current_task()
        if task is not None and task.cancelling():
            raise
        error = cancelled  # the engine cancelled itself; nobody cancelled us
    except Exception as raised:  # noqa: BLE001 - supervision boundary: passed on to the guard
        error = raised
    if not has_ended:
        await channel.put(error)
    elif error is not None:
        _log.error("an engine failed after its end, which stands", exc_info=error)


class _GuardedHost:
    """The stack's host, watched: equal calls are counted and fatal errors end the run. To look again
    at what others do is no loop as long as time passes, or it tells something new."""

    def __init__(self, inner: EngineHost, limits: RunLimits) -> None:
        self.limits = limits
        self._inner = inner
        self.begin()

    def begin(self) -> None:
        """Open the books of a run."""
        self.channel = _Channel()
        self.is_ended = False
        self.fatal: Exception | None = None
        self.open_calls = 0
        self.signs = 0
        """Grows with each beginning and end of a call."""
        self._repeats = CallRepeats()
        self._polls = PollRepeats()
        self._resting = 0
        self._resting_since = 0.0
        self._rested_s = 0.0

    @property
    def rests(self) -> bool:
        """Somebody is asked whether a call may be made, or the turn's slot is given back."""
        return self._resting > 0

    @property
    def rested_s(self) -> float:
        """For how long that was so in this run, until now."""
        if not self._resting:
            return self._rested_s
        return self._rested_s + asyncio.get_running_loop().time() - self._resting_since

    def resting_with_slot(self) -> AbstractContextManager[None]:
        """Inside the block the run's time stands still while its turn waits without a slot."""
        slot = self._inner.slot
        return nullcontext() if slot is None else slot.watched(self._rest, self._wake)

    def end(self, error: Exception | None) -> None:
        """The run is over, with ``error`` or because it was cancelled; the first reason stands."""
        if not self.is_ended:
            self.is_ended, self.fatal = True, error
            self.channel.ring()

    def tools(self) -> tuple[Tool, ...]:
        return self._inner.tools()

    async def call(self, name: str, args: dict[str, Any]) -> ToolResult:
        name, args = clean(name), clean_value(args)
        return await self._counted(name, args, lambda: self._inner.call(name, args))

    async def serve(self, name: str, args: dict[str, Any], serve: Serve) -> ToolResult:
        name, args = clean(name), clean_value(args)
        return await self._counted(name, args, lambda: serve(name, args, self._decision))

    def is_poll(self, name: str) -> bool:
        """Whether a tool, as the host or a program calls it, tells what changes by itself."""
        bare = guard_rules.bare_name(name)
        return any(tool.is_poll for tool in self._inner.tools() if tool.name == bare)

    async def _counted(
        self, name: str, args: dict[str, Any], work: Callable[[], Awaitable[ToolResult]]
    ) -> ToolResult:
        if not self.is_poll(name):
            count = self._repeats.add(name, args)
            if count >= self.limits.identical_calls:
                raise self._loop(name, count)
            return await self._watch(work())
        result = await self._watch(work())
        count = self._polls.add(name, args, result.text, asyncio.get_running_loop().time())
        if count >= guard_rules.POLLS * self.limits.identical_calls:
            raise self._loop(name, count)
        return result

    def _loop(self, name: str, count: int) -> Exception:
        error = guard_rules.loop_error(name, count)
        self.end(error)
        return error

    async def perform(
        self, name: str, effect: Effect, args: dict[str, Any], run: Callable[[], Awaitable[str]]
    ) -> ToolResult:
        return await self._watch(self._inner.perform(clean(name), effect, clean_value(args), run))

    async def permit(self, request: PermissionRequest) -> Permission:
        request = replace(
            request,
            tool=clean(request.tool),
            args=clean_value(request.args),
            title=clean(request.title),
        )
        with self._decision():
            return await self._watch(self._inner.permit(request))

    @contextmanager
    def _decision(self) -> Iterator[None]:
        """Somebody is asked inside the block; the run's time stands still."""
        self._rest()
        try:
            yield
        finally:
            self._wake()

    def _rest(self) -> None:
        if not self._resting:
            self._resting_since = asyncio.get_running_loop().time()
        self._resting += 1

    def _wake(self) -> None:
        if self._resting == 1:
            self._rested_s = self.rested_s
        self._resting -= 1
        self.channel.ring()

    async def spawned(self, pgid: int, started_ticks: int, argv0: str) -> None:
        await self._inner.spawned(pgid, started_ticks, argv0)

    async def reaped(self, pgid: int) -> None:
        await self._inner.reaped(pgid)

    @property
    def slot(self) -> TurnPlace | None:
        return self._inner.slot

    async def _watch(self, work: Awaitable[T]) -> T:
        self.open_calls += 1
        self.signs += 1
        try:
            return await work
        except ESCAPING as error:
            # Whatever the engine makes of it, the run is over.
            self.end(error)
            raise
        finally:
            self.open_calls -= 1
            self.signs += 1
