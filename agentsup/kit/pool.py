"""Blocking work in threads that can't be interrupted: bounded in number, in queue and in time.

The loop's default executor has a few threads for all work, waits for them at the end of the
process, and loses one of them for good to each file that does not answer. A pool of this module
contains such failures: each key (an agent, a file) has a few slots of its own, a step that takes
too long is abandoned and reported, and threads are daemons, so that none keeps the process alive.
Serves P3, P5 and P9.
"""

from __future__ import annotations

import asyncio
import errno
import threading
from collections.abc import Callable, Generator
from concurrent.futures import Executor, Future
from contextlib import contextmanager
from functools import partial
from queue import Empty, SimpleQueue
from typing import Any, Final, TypeVar

from agentsup.kit.clock import SystemClock
from agentsup.kit.log import get_logger

T = TypeVar("T")
_log = get_logger(__name__)
_PROBE: Final = "(probe)"
_PROBE_S: Final = 4.0
"""Less than the time limit of the health probes."""
IDLE_S: Final = 1.0
"""Seconds that a thread waits for another step."""
IDLE: Final = "(idle)"
"""The end of the name of a thread that waits for one."""
_PAUSE_S: Final = 0.2
"""The pause before another attempt to start a thread."""


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

    A step that exceeds its time limit releases its slot of the pool but keeps that of its key:
    other keys go on, and the same key is refused at once while such steps hold all its slots.
    """

    def __init__(
        self,
        name: str,
        *,
        threads: int = 8,
        per_key: int = 2,
        queued: int = 1000,
        limit_s: float = 10.0,
        stuck: int = 64,
    ) -> None:
        """``threads`` steps run at a time, ``per_key`` of them for one key; ``queued`` may wait.

        ``limit_s`` is for one step, and also for the wait before it. With more than ``stuck``
        abandoned steps no more slots are released early, and ``probe`` reports that.
        """
        self.name = name
        self._slots = asyncio.Semaphore(threads)
        self._per_key = per_key
        self._queued = queued
        self._limit_s = limit_s
        self._most_stuck = stuck
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
        has begun runs on in its thread then, and ``undo`` is called there with its result, since
        nobody else gets it.
        """
        limit_s = self._limit_s if limit_s is None else limit_s
        entry = self._keys.setdefault(key, _Key(asyncio.Semaphore(self._per_key)))
        with self._user(key, entry):
            await self._enter(key, entry, limit_s)
        asked = _Asked(step, undo)
        loop = asyncio.get_running_loop()
        try:
            running: asyncio.Future[T] = await self._started(asked)
        except BaseException:
            self._release(key, entry, asked)
            raise
        running.add_done_callback(partial(self._ended, key, entry, asked))
        try:
            done, _ = await asyncio.wait({running}, timeout=limit_s)
        except asyncio.CancelledError:
            self._give_up(asked)
            # Nobody waits for it, but it must still be counted if it hangs.
            loop.call_later(limit_s, self._left_behind, entry, asked)
            raise
        if done:
            return running.result()
        self._give_up(asked)
        self._left_behind(entry, asked)
        raise PoolTimeout(f"no answer within {limit_s:g} s")

    async def probe(self) -> str | None:
        """Why the pool does not work, or None: an empty step must get through."""
        try:
            await self.run(_nothing, key=_PROBE, limit_s=_PROBE_S)
        except OSError as error:
            return f"{self.name}: {error}; {self._log_hang()}"
        return None

    def _log_hang(self) -> str:
        stuck = self.stuck
        most = sorted(stuck, key=lambda name: -stuck[name])[:5]
        return f"{sum(stuck.values())} steps hang" + (f" ({', '.join(most)})" if most else "")

    async def _enter(self, key: str, entry: _Key, limit_s: float) -> None:
        """Wait for a slot of the key, then for one of the pool; both are held afterwards."""
        if entry.stuck >= self._per_key:
            raise PoolTimeout(f"no answer: {entry.stuck} earlier steps still hang")
        if self._waiting >= self._queued:
            raise PoolFull(0, f"{self.name} has {self._waiting} steps waiting; try again later")
        if not (entry.slots.locked() or self._slots.locked()):
            await entry.slots.acquire()  # neither of them waits
            await self._slots.acquire()
            entry.users += 1
            return
        self._waiting += 1
        try:
            async with asyncio.timeout(limit_s):
                await entry.slots.acquire()
                try:
                    await self._slots.acquire()
                except BaseException:
                    entry.slots.release()
                    raise
        except TimeoutError:
            raise PoolTimeout(f"no answer: waited {limit_s:g} s behind other steps") from None
        finally:
            self._waiting -= 1
        entry.users += 1

    async def _started(self, asked: _Asked) -> asyncio.Future[Any]:
        loop = asyncio.get_running_loop()
        try:
            return loop.run_in_executor(self._threads, asked)
        except NoThread:
            await SystemClock().sleep(_PAUSE_S)
        return loop.run_in_executor(self._threads, asked)

    def _give_up(self, asked: _Asked) -> None:
        if asked.give_up():
            self._take_back(asked)

    def _take_back(self, asked: _Asked) -> None:
        loop = asyncio.get_running_loop()
        try:
            undoing = loop.run_in_executor(self._threads, asked.take_back)
        except NoThread:
            loop.call_later(_PAUSE_S, self._take_back, asked)
        else:
            undoing.add_done_callback(_report)

    def _left_behind(self, entry: _Key, asked: _Asked) -> None:
        if asked.has_ended:
            return
        entry.stuck += 1
        asked.is_stuck = True
        if sum(self.stuck.values()) <= self._most_stuck:
            asked.has_slot = False
            self._slots.release()

    def _ended(self, key: str, entry: _Key, asked: _Asked, running: asyncio.Future[Any]) -> None:
        _report(running)
        asked.has_ended = True
        if asked.is_stuck:
            entry.stuck -= 1
        self._release(key, entry, asked)

    def _release(self, key: str, entry: _Key, asked: _Asked) -> None:
        """Release the slots that ``_enter`` acquired."""
        if asked.has_slot:
            self._slots.release()
        entry.slots.release()
        entry.users -= 1
        self._forget(key, entry)

    @contextmanager
    def _user(self, key: str, entry: _Key) -> Generator[None]:
        entry.users += 1
        try:
            yield
        finally:
            entry.users -= 1
            self._forget(key, entry)

    def _forget(self, key: str, entry: _Key) -> None:
        if not entry.users and self._keys.get(key) is entry:
            del self._keys[key]


def in_time(step: Callable[[], T], limit_s: float) -> T:
    """The result or the exception of ``step``, for code that is not on an event loop.

    Blocks for ``limit_s`` at most. Then it raises ``PoolTimeout``, and the step's thread is
    abandoned. Raises ``NoThread``.
    """
    return _answer(_Threads("in-time").submit(step), limit_s)


def _answer(future: Future[T], limit_s: float) -> T:
    try:
        return future.result(limit_s)
    except TimeoutError:
        if future.done():
            raise  # raised by the step itself
        raise PoolTimeout(f"no answer within {limit_s:g} s") from None


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
            return _answer(future, limit_s)
        finally:
            if not future.done():
                with self._lock:
                    self._left[key] = future


class _Key:
    """The slots of one key, and how many steps use or await one."""

    __slots__ = ("slots", "stuck", "users")

    def __init__(self, slots: asyncio.Semaphore) -> None:
        self.slots = slots
        self.stuck = 0
        self.users = 0


class _Asked:
    """One step, and whether its caller still waits for it. Called in its thread."""

    def __init__(self, step: Callable[[], Any], undo: Callable[[Any], object] | None) -> None:
        self.is_stuck = False
        self.has_ended = False
        self.has_slot = True
        self._step = step
        self._undo = undo
        self._lock = threading.Lock()
        self._is_given_up = False
        self._made: list[Any] = []

    def __call__(self) -> Any:
        found = self._step()
        with self._lock:
            self._made.append(found)
            is_late = self._is_given_up
        if is_late:
            self.take_back()
        return found

    def give_up(self) -> bool:
        """Note that nobody waits any more, so the result is undone. True if there is a result
        already."""
        with self._lock:
            self._is_given_up = True
            return bool(self._made)

    def take_back(self) -> None:
        """Undo the result; blocks."""
        if self._undo is not None:
            self._undo(self._made[0])


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


def _report(running: asyncio.Future[Any]) -> None:
    """Read the step's exception here, since no caller may wait for it any more."""
    if not running.cancelled() and (error := running.exception()) is not None:
        _log.debug(f"a step in a thread failed: {error}")


def _nothing() -> None:
    """The empty step."""
