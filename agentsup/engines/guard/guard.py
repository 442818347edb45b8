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
from agentsup.engines.failures import EndedSilently, EngineCrash
from agentsup.engines.guard import rules
from agentsup.engines.guard.rules import CallRepeats, SegmentAccount, SegmentLimits
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
from agentsup.model.tool import Effect, ReleasableSlot, ToolResult

T = TypeVar("T")
_log = get_logger(__name__)

PASSED_ON = (EngineCrash, ExitRequested, LeaseLost, StoreUnavailable)
"""Errors that are raised to the agent's stack unchanged: an exit that was asked for, a lost lease, a
store that can't be written."""

_QUEUE_SIZE = 64
_CLOSE_S = 1.0


async def open_guarded(
    engine: Engine,
    spec: EngineSpec,
    host: EngineHost,
    *,
    limits: SegmentLimits | None = None,
    clock: Clock | None = None,
) -> GuardedSession:
    """Open a session of ``engine`` under guard. ``clock`` tells how far away a named time is.

    Raises ``EngineFailed`` if the engine can't be opened (any error of its own is turned into
    one); ``PASSED_ON`` errors pass.
    """
    guarded_host = _GuardedHost(host, limits or SegmentLimits())
    try:
        session = await engine.open(spec, guarded_host)
    except (EngineFailed, *PASSED_ON):
        raise
    except Exception as error:  # supervision boundary: an engine is anyone's code
        _log.exception(f"engine {engine.name} could not be opened")
        raise EngineFailed(
            f"the engine {engine.name} can't be opened ({type(error).__name__}: {error})"
        ) from error
    return GuardedSession(engine.name, session, guarded_host, clock or SystemClock())


GuardedServe = Callable[
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

    async def serve(self, name: str, args: dict[str, Any], serve: GuardedServe) -> ToolResult:
        """Make a call that the engine's program sends from outside, guarded like the run's own."""
        return await self._host.serve(name, args, serve)

    async def run(self, segment: Segment) -> AsyncGenerator[EngineEvent]:
        """Yield the events of one segment; the last is the only ``EngineDone`` or ``Suspended``.

        Close it (``contextlib.aclosing``) when not read to its end. Raises only ``PASSED_ON``.
        """
        account = SegmentAccount(self._limits, self._host.is_poll)
        self._host.begin()
        queue = self._host.queue
        stepping = self._owner.spawn(
            _step_engine(self._session, segment, queue), name=f"engine:{segment.message_id}"
        )
        hard_at = asyncio.get_running_loop().time() + self._limits.hard_s
        end: EngineDone | Suspended | None = None
        try:
            with self._host.paused_with_slot():
                while end is None:
                    event, end = self._judge(await self._next(account, hard_at), account)
                    if event is not None:
                        yield event
        finally:
            await self._stop(stepping, segment, by_itself=queue.has_ended)
        for left in queue.items:
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

    async def _next(self, account: SegmentAccount, hard_at: float) -> EngineEvent | BaseException:
        """Return the engine's next event or exception, or the end that was set meanwhile."""
        host, queue = self._host, self._host.queue
        while True:
            if host.is_ended:
                return host.fatal or rules.cancelled(account.text)
            if queue.items:
                return queue.take()
            # Time that the turn spends waiting for a person or other agents does not count.
            left_s = max(0.0, hard_at + host.paused_s - asyncio.get_running_loop().time())
            call_events = host.call_events
            is_hard = left_s <= self._limits.idle_s and not host.is_paused
            wait_s = left_s if is_hard else self._limits.idle_s
            try:
                async with asyncio.timeout(wait_s):
                    await queue.news()
            except TimeoutError:
                if is_hard and not host.is_paused:
                    return rules.timed_out(f"took over {self._limits.hard_s:g} s")
                # A call that is open, began or ended meanwhile is a sign of life.
                if host.call_events == call_events and not (account.in_call or host.open_calls):
                    return rules.timed_out(f"said nothing for {self._limits.idle_s:g} s")

    def _judge(
        self, item: EngineEvent | BaseException, account: SegmentAccount
    ) -> tuple[EngineEvent | None, EngineDone | Suspended | None]:
        """Return the event to pass on, and the end if ``item`` is one. Raises ``PASSED_ON``."""
        if isinstance(item, PASSED_ON):
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

    async def _stop(
        self, stepping: asyncio.Task[None], segment: Segment, *, by_itself: bool
    ) -> None:
        """End the engine's task within twice ``cancel_s``, or leave it behind and report that."""
        if by_itself and not stepping.done():
            await asyncio.wait({stepping}, timeout=self._cancel_s)
        if not await stop_task(stepping, timeout_s=self._cancel_s):
            self._abandoned(f"message {segment.message_id}")

    def _abandoned(self, what: str) -> None:
        _log.error(f"engine {self._name} did not stop in time and was left behind: {what}")

    def _late_error(self, task: asyncio.Task[Any], error: BaseException) -> None:
        _log.error(f"engine {self._name} failed after its end", exc_info=error)


class _Events(EventQueue[EngineEvent | BaseException]):
    """The queue from the engine's task to the consumer."""

    has_ended = False
    """Whether the engine's own end was read."""

    def take(self) -> EngineEvent | BaseException:
        item = super().take()
        self.has_ended = isinstance(item, EngineDone | Suspended)
        return item


async def _step_engine(session: EngineSession, segment: Segment, queue: _Events) -> None:
    """Step the engine's generator and close it, all in this task; its events go to ``queue``."""
    has_ended = False
    error: BaseException | None = None
    try:
        events = session.run(segment)
        try:
            async for event in events:
                await queue.put(clean_event(event))
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
        await queue.put(silent if error is None else error)
    elif error is not None:
        _log.error("an engine failed after its end, which stands", exc_info=error)


class _GuardedHost:
    """The stack's host under guard: equal calls are counted, and fatal errors end the run. Polling
    does not count as a loop as long as time passes or the result changes."""

    def __init__(self, inner: EngineHost, limits: SegmentLimits) -> None:
        self.limits = limits
        self._inner = inner
        # These need no guard.
        self.tools, self.spawned, self.reaped = inner.tools, inner.spawned, inner.reaped
        self.begin()

    def begin(self) -> None:
        """Reset the state for a new run."""
        self.queue = _Events(_QUEUE_SIZE)
        self.is_ended = False
        self.fatal: Exception | None = None
        self.open_calls = 0
        self.call_events = 0
        """How many calls began and ended; an increase is a sign of life."""
        self._repeats = CallRepeats()
        self._polls = CallRepeats()
        self._poll_names: frozenset[str] | None = None
        self._pauses = 0
        self._paused_since = 0.0
        self._paused_s = 0.0

    @property
    def is_paused(self) -> bool:
        """Whether a person is asked for a permission, or the turn waits without its slot."""
        return self._pauses > 0

    @property
    def paused_s(self) -> float:
        """Seconds in this run for which ``is_paused`` was true, until now."""
        if not self._pauses:
            return self._paused_s
        return self._paused_s + asyncio.get_running_loop().time() - self._paused_since

    def paused_with_slot(self) -> AbstractContextManager[None]:
        """Inside the block, stop the run's time while its turn waits without a slot."""
        slot = self._inner.slot
        return nullcontext() if slot is None else slot.watched(self._pause, self._resume)

    def end(self, error: Exception | None) -> None:
        """End the run with ``error``, or as cancelled (None). Only the first call counts."""
        if not self.is_ended:
            self.is_ended, self.fatal = True, error
            self.queue.ring()

    async def call(self, name: str, args: dict[str, Any]) -> ToolResult:
        name, args = clean(name), clean_value(args)
        return await self._counted(name, args, lambda: self._inner.call(name, args))

    async def serve(self, name: str, args: dict[str, Any], serve: GuardedServe) -> ToolResult:
        name, args = clean(name), clean_value(args)
        return await self._counted(name, args, lambda: serve(name, args, self._decision))

    def is_poll(self, name: str) -> bool:
        """Whether the tool (by the host's or a program's name) reports what changes by itself."""
        if self._poll_names is None:
            self._poll_names = frozenset(tool.name for tool in self.tools() if tool.is_poll)
        return rules.bare_name(name) in self._poll_names

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
        self._pause()
        try:
            yield
        finally:
            self._resume()

    def _pause(self) -> None:
        if not self._pauses:
            self._paused_since = asyncio.get_running_loop().time()
        self._pauses += 1

    def _resume(self) -> None:
        if self._pauses == 1:
            self._paused_s = self.paused_s
        self._pauses -= 1
        self.queue.ring()

    @property
    def slot(self) -> ReleasableSlot | None:
        return self._inner.slot

    async def _watch(self, work: Awaitable[T]) -> T:
        self.open_calls += 1
        self.call_events += 1
        try:
            return await work
        except PASSED_ON as error:
            # Whatever the engine makes of it, the run is over.
            self.end(error)
            raise
        finally:
            self.open_calls -= 1
            self.call_events += 1
