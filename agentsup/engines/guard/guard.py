"""The guard around every engine: whatever the engine does, a run ends once and within its limits.

The engine's generator runs in a task of its own, so that one that ignores cancellation can be
left behind, and so that it is opened, stepped and closed by one and the same task. The rules are in
``engines.guard.rules``; this module waits and stops.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any, TypeVar

from agentsup.engines.clean import clean, clean_event, clean_value
from agentsup.engines.event_queue import EventQueue
from agentsup.engines.failures import EndedSilently, EngineCrash, EngineTimedOut
from agentsup.engines.guard import rules
from agentsup.engines.guard.rules import CallRepeats, RunAccount, RunLimits
from agentsup.kit.clock import Clock, SystemClock
from agentsup.kit.log import get_logger
from agentsup.kit.tasks import TaskOwner, stop_task, time_limit
from agentsup.model.engine import (
    Engine,
    EngineDone,
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
from agentsup.model.tool import Effect, ReleasableSlot, Tool, ToolResult

T = TypeVar("T")
_log = get_logger(__name__)

ESCAPING = (EngineCrash, ExitRequested, LeaseLost, StoreUnavailable)
"""Errors that the stack must get: its own end, a lost lease, a store that can't be written."""

_CHANNEL_SIZE = 64
_CLOSE_S = 1.0


async def open_guarded(
    engine: Engine,
    spec: EngineSpec,
    host: EngineHost,
    *,
    limits: RunLimits | None = None,
    clock: Clock | None = None,
) -> GuardedSession:
    """Open a session of ``engine`` under guard. ``clock`` tells how far away a named time is.

    Raises ``EngineFailed`` if the engine can't be opened (any error of its own is turned into
    one); ``ESCAPING`` errors pass.
    """
    guarded_host = _GuardedHost(host, limits or RunLimits())
    try:
        session = await engine.open(spec, guarded_host)
    except (EngineFailed, *ESCAPING):
        raise
    except Exception as error:  # supervision boundary: an engine is anyone's code
        _log.exception(f"engine {engine.name} could not be opened")
        raise EngineFailed(
            f"the engine {engine.name} can't be opened ({type(error).__name__}: {error})"
        ) from error
    return GuardedSession(engine.name, session, guarded_host, clock or SystemClock())


Serve = Callable[
    [str, dict[str, Any], Callable[[], AbstractContextManager[None]]], Awaitable[ToolResult]
]
"""Makes a call. Its last argument gives a context manager that encloses the wait for a person."""


class GuardedSession:
    """An ``EngineSession`` whose ``run`` keeps the promises of the port.

    Made by ``open_guarded``; runs one segment at a time.
    """

    def __init__(self, name: str, session: EngineSession, host: _GuardedHost, clock: Clock) -> None:
        self._name = name
        self._clock = clock
        self._session = session
        self._host = host
        self._limits = host.limits
        self._owner = TaskOwner(f"engine {name}", on_error=self._late_error)
        self._cancel_s = host.limits.cancel_s

    def cancel(self, *, within_s: float | None = None) -> None:
        """End the running segment with ``EngineDone(cancelled)`` and the text so far.

        The engine gets ``within_s`` seconds (default: the limit) to stop. Cancelling the consuming
        task instead also works; then there is no ``EngineDone``.
        """
        if within_s is not None:
            self._cancel_s = within_s
        self._host.end(None)

    async def serve(self, name: str, args: dict[str, Any], serve: Serve) -> ToolResult:
        """Make a call that the engine's program sends from outside, guarded like the run's own."""
        return await self._host.serve(name, args, serve)

    async def run(self, segment: Segment) -> AsyncGenerator[EngineEvent]:
        """Yield the events of one segment; the last is the only ``EngineDone`` or ``Suspended``.

        Close it (``contextlib.aclosing``) when not read to its end. Raises only ``ESCAPING``.
        """
        account = RunAccount(self._limits, self._host.is_poll)
        self._host.begin()
        channel = self._host.channel
        pump = self._owner.spawn(
            _pump(self._session, segment, channel), name=f"engine:{segment.message_id}"
        )
        hard_at = asyncio.get_running_loop().time() + self._limits.hard_s
        end: EngineDone | Suspended | None = None
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
            async with time_limit(_CLOSE_S):
                await self._session.close()
        except TimeoutError:
            self._abandoned("close")
        except Exception:  # noqa: BLE001 - supervision boundary: closing must not keep the turn
            _log.exception(f"closing a session of engine {self._name} failed")
        try:
            await self._owner.close(_CLOSE_S)
        finally:
            # A task that ignored every cancellation so far may obey this one. Otherwise it would
            # work on beside the turn that gets the slot.
            for task in self._owner.tasks:
                task.cancel()

    # -- inside ------------------------------------------------------------------------------------

    async def _next(self, account: RunAccount, hard_at: float) -> EngineEvent | BaseException:
        """Return the engine's next event or exception, or our own end."""
        host, channel = self._host, self._host.channel
        while True:
            if host.is_ended:
                return host.fatal or rules.cancelled(account.text)
            if channel.items:
                return channel.take()
            # Time that the turn spends waiting for a person or other agents does not count.
            left_s = max(0.0, hard_at + host.rested_s - asyncio.get_running_loop().time())
            signs = host.signs
            try:
                wait_s = self._limits.idle_s if host.rests else min(left_s, self._limits.idle_s)
                async with asyncio.timeout(wait_s):
                    await channel.news()
            except TimeoutError:
                if left_s <= self._limits.idle_s and not host.rests:
                    return _timed_out(f"took over {self._limits.hard_s:g} s")
                # A call that is open, began or ended meanwhile is a sign of life.
                if host.signs == signs and not (account.in_call or host.open_calls):
                    return _timed_out(f"said nothing for {self._limits.idle_s:g} s")

    def _judge(
        self, item: EngineEvent | BaseException, account: RunAccount
    ) -> tuple[EngineEvent | None, EngineDone | Suspended | None]:
        """Return the event to pass on, and the end if ``item`` is one. Raises ``ESCAPING``."""
        if isinstance(item, ESCAPING):
            raise item
        if isinstance(item, EngineDone | Suspended):
            end = account.end(item)
            return None, end if isinstance(end, Suspended) else rules.used_up_answer(end, self._now)
        if isinstance(item, EngineFailed):
            return None, rules.failure(rules.used_up_failure(item, self._now), account.text)
        if isinstance(item, asyncio.CancelledError):
            return None, rules.cancelled(account.text)
        if isinstance(item, BaseException):
            _log.error(f"engine {self._name} broke", exc_info=item)
            return None, rules.crash(item, account.text)
        try:
            event = account.note(item)
        except EngineFailed as error:
            return None, rules.failure(error, account.text)
        return event, EngineDone("ok", text=account.text) if account.runaway else None

    def _now(self) -> datetime:
        """The time in the zone of this machine, which its programs use."""
        return datetime.fromtimestamp(self._clock.now_ms() / 1000, tz=UTC).astimezone()

    async def _stop(self, pump: asyncio.Task[None], segment: Segment, *, by_itself: bool) -> None:
        """End the pump within its limit, or leave it behind and report that."""
        if by_itself and not pump.done():
            await asyncio.wait({pump}, timeout=self._cancel_s)
        if not await stop_task(pump, timeout_s=self._cancel_s):
            self._abandoned(f"message {segment.message_id}")

    def _abandoned(self, what: str) -> None:
        _log.error(f"engine {self._name} did not stop in time and was left behind: {what}")

    def _late_error(self, task: asyncio.Task[Any], error: BaseException) -> None:
        _log.error(f"engine {self._name} failed after its end", exc_info=error)


def _timed_out(why: str) -> EngineTimedOut:
    return EngineTimedOut(f"the turn {why} and was ended")


class _Channel(EventQueue[EngineEvent | BaseException]):
    """The queue from the engine's task to the consumer."""

    has_ended = False
    """Whether the engine's own end was read."""

    def take(self) -> EngineEvent | BaseException:
        item = super().take()
        self.has_ended = isinstance(item, EngineDone | Suspended)
        return item


async def _pump(session: EngineSession, segment: Segment, channel: _Channel) -> None:
    """Step the engine's generator and close it, all in this task; its events go to ``channel``."""
    has_ended = False
    error: BaseException | None = None
    try:
        events = session.run(segment)
        try:
            async for event in events:
                await channel.put(clean_event(event))
                if isinstance(event, EngineDone | Suspended):
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
        silent = EndedSilently("the engine stopped without finishing its answer")
        await channel.put(silent if error is None else error)
    elif error is not None:
        _log.error("an engine failed after its end, which stands", exc_info=error)


class _GuardedHost:
    """The stack's host under guard: equal calls are counted, and fatal errors end the run. Polling
    does not count as a loop as long as time passes or the result changes."""

    def __init__(self, inner: EngineHost, limits: RunLimits) -> None:
        self.limits = limits
        self._inner = inner
        self.begin()

    def begin(self) -> None:
        """Reset the state for a new run."""
        self.channel = _Channel(_CHANNEL_SIZE)
        self.is_ended = False
        self.fatal: Exception | None = None
        self.open_calls = 0
        self.signs = 0
        """The number of beginnings and ends of calls."""
        self._repeats = CallRepeats()
        self._polls = CallRepeats()
        self._resting = 0
        self._resting_since = 0.0
        self._rested_s = 0.0

    @property
    def rests(self) -> bool:
        """Whether a person is asked for a permission, or the turn waits without its slot."""
        return self._resting > 0

    @property
    def rested_s(self) -> float:
        """Seconds in this run for which ``rests`` was true, until now."""
        if not self._resting:
            return self._rested_s
        return self._rested_s + asyncio.get_running_loop().time() - self._resting_since

    def resting_with_slot(self) -> AbstractContextManager[None]:
        """Inside the block, stop the run's time while its turn waits without a slot."""
        slot = self._inner.slot
        return nullcontext() if slot is None else slot.watched(self._rest, self._wake)

    def end(self, error: Exception | None) -> None:
        """End the run with ``error``, or as cancelled (None). Only the first call counts."""
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
        """Whether the tool (by the host's or a program's name) reports what changes by itself."""
        bare = rules.bare_name(name)
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
        if count >= rules.POLLS * self.limits.identical_calls:
            raise self._loop(name, count)
        return result

    def _loop(self, name: str, count: int) -> Exception:
        error = rules.loop_error(name, count)
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
        """Stop the run's time while a person is asked inside the block."""
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
    def slot(self) -> ReleasableSlot | None:
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
