"""The owner of asyncio tasks: they are held, named, and stopped within a limit.

The event loop refers to tasks weakly and forgets their exceptions. An owner holds them, gives each
a name of the form ``kind:subject``, reports escaping exceptions, and can always be closed in
bounded time. Serves P3 and P5.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from typing import Any, TypeVar

from agentsup.kit.log import get_logger

T = TypeVar("T")
_log = get_logger(__name__)


class OwnerClosed(RuntimeError):
    """``TaskOwner.spawn`` was called after ``close`` began; the coroutine was not started."""


class TaskOwner:
    """Holds the tasks of one component and ends them together."""

    def __init__(
        self,
        name: str,
        *,
        on_error: Callable[[asyncio.Task[Any], BaseException], None] | None = None,
    ) -> None:
        """``on_error(task, exception)`` gets escaping exceptions; default: they are logged.

        ``name`` appears in log lines and in refusals.
        """
        self.name = name
        self._on_error = on_error
        self._tasks: set[asyncio.Task[Any]] = set()
        self._is_closed = False

    @property
    def tasks(self) -> frozenset[asyncio.Task[Any]]:
        """The tasks that have not ended yet."""
        return frozenset(self._tasks)

    def spawn(self, coro: Coroutine[Any, Any, T], *, name: str) -> asyncio.Task[T]:
        """Start ``coro`` as a task called ``name`` (``kind:subject``) and hold it until it ends.

        Raises ``OwnerClosed`` once closing has begun.
        """
        if self._is_closed:
            coro.close()
            raise OwnerClosed(f"{self.name} is closed and starts no task {name!r}")
        task = asyncio.get_running_loop().create_task(coro, name=name)
        self._tasks.add(task)
        task.add_done_callback(self._ended)
        return task

    async def close(self, timeout_s: float) -> list[str]:
        """Cancel every task and wait up to ``timeout_s`` seconds for all of them together.

        Returns the names of the tasks that did not end: they are abandoned, still held, and never
        waited for again. Called from one of its own tasks, it does not cancel that one.
        """
        self._is_closed = True
        if not self._tasks:
            return []  # as at the end of nearly every turn
        ending = self._tasks - {asyncio.current_task()}
        for task in ending:
            task.cancel()
        if ending:
            await asyncio.wait(ending, timeout=timeout_s)
        return sorted(task.get_name() for task in ending if not task.done())

    def _ended(self, task: asyncio.Task[Any]) -> None:
        self._tasks.discard(task)
        if task.cancelled():
            return
        error = task.exception()
        if error is None:
            return
        if self._on_error is not None:
            self._on_error(task, error)
        else:
            _log.error(f"task {task.get_name()} of {self.name} ended with an error", exc_info=error)


async def stop_task(task: asyncio.Task[Any], *, timeout_s: float) -> bool:
    """Cancel ``task`` and wait up to ``timeout_s`` seconds; True if it has ended.

    The task itself is never awaited, so its exception is not raised here, and a cancellation of the
    caller affects only the caller. Raises ``RuntimeError`` if a task tries to stop itself this way.
    """
    if task is asyncio.current_task():
        raise RuntimeError(f"task {task.get_name()!r} cannot wait for its own end")
    if not task.done():
        task.cancel()
        await asyncio.wait({task}, timeout=timeout_s)
    return task.done()


@asynccontextmanager
async def time_limit(timeout_s: float | None) -> AsyncIterator[None]:
    """``asyncio.timeout`` for work that cleans up after a cancellation.

    Before Python 3.11.4, ``asyncio.timeout`` raises ``CancelledError`` instead of ``TimeoutError``
    in a task that was cancelled before, and what follows in the clean-up is skipped.
    """
    task = asyncio.current_task()
    assert task is not None, "used in a task"
    cancelling = task.cancelling()
    limit = asyncio.timeout(timeout_s)
    try:
        async with limit:
            yield
    except asyncio.CancelledError:
        if limit.expired() and task.cancelling() <= cancelling:
            raise TimeoutError from None
        raise


async def is_set_within(event: asyncio.Event, timeout_s: float | None) -> bool:
    """Wait until ``event`` is set, at most ``timeout_s`` seconds (None: for ever); whether it is."""
    if event.is_set():
        return True
    try:
        async with time_limit(timeout_s):
            await event.wait()
    except TimeoutError:
        # It may have been set in the same round as the deadline.
        return event.is_set()
    return True


async def call_after(event: asyncio.Event, callback: Callable[[], object]) -> None:
    """Call ``callback`` once ``event`` is set."""
    await event.wait()
    callback()


class CooperativeYield:
    """Pauses for a loop over data that is already there, which would not let other tasks run.

    ``await turns.rest()`` between two pieces lets others run once 5 ms have passed.
    """

    def __init__(self, turn_s: float = 0.005) -> None:
        self._turn_s = turn_s
        self._rested_at = asyncio.get_running_loop().time()

    async def rest(self, seconds: float = 0.0) -> None:
        """Let others run if ``turn_s`` is over; ``seconds`` are always waited for."""
        loop = asyncio.get_running_loop()
        if seconds > 0 or loop.time() - self._rested_at > self._turn_s:
            await asyncio.sleep(seconds)
            self._rested_at = loop.time()
