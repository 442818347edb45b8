"""Blocking work in threads that can't be interrupted: bounded in number, in queue and in time.

The loop's default executor has a few threads for all work, waits for them at the end of the
process, and loses one of them for good to each file that does not answer. In a pool of this module
each key (an agent, a file) has a few slots of its own, a step that takes too long is given up and
costs its key alone, and threads are daemons, so that none keeps the process alive.
Serves P3, P5 and P9.
"""

from __future__ import annotations

import asyncio
import errno
import threading
from collections.abc import Callable
from concurrent.futures import Executor, Future
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from queue import Empty, SimpleQueue
from typing import Any, Final, TypeVar

from agentsup.kit.log import get_logger

T = TypeVar("T")
_log = get_logger(__name__)
_PROBE_S: Final = 4.0
"""Less than the time limit of the health probes."""
IDLE_S: Final = 1.0
"""Seconds that a thread waits for another step."""
IDLE: Final = "(idle)"
"""The end of the name of a thread that waits for one."""


class PoolTimeout(TimeoutError):
    """A step did not end in time, or would wait behind steps that hang.

    It is an ``OSError``, as for a disk that does not answer. The step's thread may still run; its
    result is then undone.
    """


class PoolFull(BlockingIOError):
    """The pool's queue is full; try again later."""


class NoThread(BlockingIOError):
    """The system can't start a thread now; try again later."""


class BoundedPool:
    """Runs blocking steps, each in a daemon thread, with a limit on concurrent steps.

    A step that nobody waits for any more releases its slot of the pool and keeps that of its key:
    other keys go on, and the same key is refused at once while all its slots hang.
    """

    def __init__(
        self,
        name: str,
        *,
        threads: int = 8,
        per_key: int = 2,
        queued: int = 1000,
        limit_s: float = 10.0,
    ) -> None:
        """``threads`` steps run at a time, ``per_key`` of them for one key; ``queued`` may wait.
        ``limit_s`` is for one step, and also for the wait before it."""
        self.name = name
        self._slots = asyncio.Semaphore(threads)
        self._per_key = per_key
        self._queued = queued
        self._limit_s = limit_s
        self._keys: dict[str, _Key] = {}
        self._waiting = 0
        self._threads = _Threads(name)

    @property
    def stuck(self) -> dict[str, int]:
        """Steps over their limit that have not ended, by key."""
        return {name: key.stuck for name, key in self._keys.items() if key.stuck}

    async def run(
        self,
        step: Callable[[], T],
        *,
        key: str = "",
        limit_s: float | None = None,
        undo: Callable[[T], object] | None = None,
    ) -> T:
        """The result or the exception of ``step``.

        Raises ``PoolTimeout`` if it takes longer than ``limit_s`` (default: the pool's limit),
        ``PoolFull`` and ``NoThread``. A cancelled caller does not wait for the step. A step that
        has begun runs on in its thread then, and ``undo`` is called in a thread with its result,
        since nobody else gets it.
        """
        limit_s = self._limit_s if limit_s is None else limit_s
        its = self._keys.setdefault(key, _Key(asyncio.Semaphore(self._per_key)))
        its.users += 1
        try:
            await self._enter(its, limit_s)
        except BaseException:
            self._forget(key, its)
            raise
        asked = _Asked(
            partial(self._forget, key, its), its, self._slots, partial(self._take_back, undo)
        )
        try:
            running = asyncio.get_running_loop().run_in_executor(self._threads, step)
        except BaseException:
            asked.release()
            raise
        running.add_done_callback(asked.ended)
        try:
            done, _ = await asyncio.wait({running}, timeout=limit_s)
        except asyncio.CancelledError:
            asked.give_up(is_stuck=False)
            raise
        if not done:
            asked.give_up(is_stuck=True)
            raise PoolTimeout(f"no answer within {limit_s:g} s")
        return running.result()

    def submit(self, step: Callable[[], object]) -> None:
        """Run ``step`` in a thread without a slot; nobody waits for it. Only for what must not be
        lost with its caller, such as the end of a file."""
        with suppress(NoThread):
            self._threads.submit(step)

    async def probe(self) -> str | None:
        """Why the pool does not work, or None: an empty step must get through."""
        try:
            await self.run(lambda: None, key="(probe)", limit_s=_PROBE_S)
        except OSError as error:
            return f"{self.name}: {error}; {sum(self.stuck.values())} steps hang"
        return None

    async def _enter(self, key: _Key, limit_s: float) -> None:
        """Wait for a slot of the key, then for one of the pool; both are held afterwards."""
        if key.stuck >= self._per_key:
            raise PoolTimeout(f"no answer: {key.stuck} earlier steps still hang")
        if self._waiting >= self._queued:
            raise PoolFull(0, f"{self.name} has {self._waiting} steps waiting; try again later")
        self._waiting += 1
        try:
            async with asyncio.timeout(limit_s):
                await key.slots.acquire()
                try:
                    await self._slots.acquire()
                except BaseException:
                    key.slots.release()
                    raise
        except TimeoutError:
            raise PoolTimeout(f"no answer: waited {limit_s:g} s behind other steps") from None
        finally:
            self._waiting -= 1

    def _take_back(self, undo: Callable[[T], object] | None, made: T) -> None:
        if undo is not None:
            self.submit(partial(undo, made))

    def _forget(self, name: str, key: _Key) -> None:
        key.users -= 1
        if not key.users:
            del self._keys[name]


@dataclass(slots=True)
class _Key:
    """The slots of one key, how many of its steps hang, and how many use it or wait for it."""

    slots: asyncio.Semaphore
    stuck: int = 0
    users: int = 0


class _Asked:
    """One step under way: the slots that it holds, and whether anybody waits for it."""

    def __init__(
        self,
        forget: Callable[[], None],
        key: _Key,
        slots: asyncio.Semaphore,
        undo: Callable[[Any], None],
    ) -> None:
        self._forget = forget
        self._key = key
        self._slots = slots
        self._undo = undo
        self._is_given_up = self._is_stuck = False
        self._ended: asyncio.Future[Any] | None = None

    def release(self) -> None:
        """Release the slots."""
        self._key.slots.release()
        self._key.stuck -= self._is_stuck
        if not self._is_given_up:
            self._slots.release()
        self._forget()

    def give_up(self, *, is_stuck: bool) -> None:
        """Note that nobody waits any more; what the step has made, or makes later, is undone."""
        if self._ended is not None:
            self._drop(self._ended)
            return
        self._is_given_up, self._is_stuck = True, is_stuck
        self._key.stuck += is_stuck
        self._slots.release()

    def ended(self, running: asyncio.Future[Any]) -> None:
        """Note the end of the step."""
        self._ended = running
        self.release()
        if self._is_given_up:
            self._drop(running)

    def _drop(self, running: asyncio.Future[Any]) -> None:
        if running.cancelled():
            return
        if (error := running.exception()) is not None:
            _log.debug(f"a step in a thread failed: {error}")
        else:
            self._undo(running.result())


def in_time(step: Callable[[], T], limit_s: float) -> T:
    """The result or the exception of ``step``, for code that is not on an event loop.

    Blocks for ``limit_s`` at most. Then it raises ``PoolTimeout``, and the step's thread is
    abandoned. Raises ``NoThread``.
    """
    return TimedSteps("in-time").run(step, limit_s, key="")


class TimedSteps:
    """``in_time`` by key: while a key's step hangs, the key is refused at once. A file that does
    not answer costs one thread and one wait, however many callers ask for it. Thread-safe."""

    def __init__(self, name: str, *, stuck: int = 64) -> None:
        """With ``stuck`` abandoned steps, no other is begun."""
        self._threads = _Threads(name)
        self._most_stuck = stuck
        self._left: dict[str, Future[Any]] = {}
        self._lock = threading.Lock()

    def run(self, step: Callable[[], T], limit_s: float, *, key: str) -> T:
        """The result or the exception of ``step``. Blocks for ``limit_s`` at most; then it raises
        ``PoolTimeout``. Raises ``NoThread``."""
        with self._lock:
            self._left = {each: one for each, one in self._left.items() if not one.done()}
            if key in self._left or len(self._left) >= self._most_stuck:
                raise PoolTimeout("no answer: an earlier step still hangs")
        future = self._threads.submit(step)
        try:
            return future.result(limit_s)
        except TimeoutError:
            if future.done():
                raise  # raised by the step itself
            with self._lock:
                self._left[key] = future
            raise PoolTimeout(f"no answer within {limit_s:g} s") from None


class _Threads(Executor):
    """Daemon threads, as many as there are steps at a time; the process waits for none at its end.

    A thread that has carried out a step takes another one within ``IDLE_S``, because its start
    costs several times what a small step costs.
    """

    def __init__(self, name: str) -> None:
        self._name = name
        self._idle = 0
        """Number of threads that wait for a step; each step that is queued for one is counted
        off."""
        self._lock = threading.Lock()
        self._steps: SimpleQueue[Callable[[], None]] = SimpleQueue()

    def submit(  # type: ignore[override]  # called by the loop alone, with a function and no arguments
        self, step: Callable[[], T], /
    ) -> Future[T]:
        future: Future[T] = Future()
        asked = partial(carry_out, future, step, ended=self._ended)
        with self._lock:
            is_taken = self._idle > 0
            self._idle -= is_taken
        if is_taken:
            self._steps.put(asked)
            return future
        thread = threading.Thread(
            target=self._work, args=([asked],), name=f"pool:{self._name}", daemon=True
        )
        try:
            thread.start()
        except RuntimeError:
            text = f"{self._name}: no thread can be started now; try again later"
            raise NoThread(errno.EAGAIN, text) from None
        return future

    def _work(self, first: list[Callable[[], None]]) -> None:
        # Taken out of the list: a thread holds its arguments, and with them the result, to its end.
        step: Callable[[], None] | None = first.pop()
        thread = threading.current_thread()
        busy, idle = thread.name, f"{thread.name} {IDLE}"
        while step is not None:
            step()
            thread.name, step = idle, None
            step = self._next()
            thread.name = busy

    def _ended(self) -> None:
        """Count the thread as idle, before the waiter of its step asks for another one."""
        with self._lock:
            self._idle += 1

    def _next(self) -> Callable[[], None] | None:
        """The next step, or None if there was none for a while."""
        try:
            return self._steps.get(timeout=IDLE_S)
        except Empty:
            with self._lock:
                if self._idle > 0:
                    self._idle -= 1
                    return None
        return self._steps.get()  # one was put down for this thread just now


def carry_out(
    future: Future[T], step: Callable[[], T], *, ended: Callable[[], None] = lambda: None
) -> None:
    """Give ``future`` the result or the exception of ``step``, unless it was cancelled before.

    ``ended`` is called in any case, before the future is given anything.
    """
    if not future.set_running_or_notify_cancel():
        ended()
        return
    try:
        found = step()
    except BaseException as error:  # noqa: BLE001 - supervision boundary: it goes to the waiter
        ended()
        future.set_exception(error)
    else:
        ended()
        future.set_result(found)
