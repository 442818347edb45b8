"""Work that blocks, in threads that nobody can interrupt: bounded in number, in queue and in time.

The loop's default executor has a few threads for everybody, waits for them at the end of the
process, and one file that does not answer takes one of them for good. A pool of this module keeps
such trouble where it comes from: each key (an agent, a file) has a few places of its own, a step
that takes too long is left behind and told, and threads are daemons, so that none keeps the process.
Serves P3, P5 and P9.
"""

import asyncio
import errno
import logging
import threading
from collections.abc import Callable, Generator
from concurrent.futures import Executor, Future
from contextlib import contextmanager
from functools import partial
from typing import Any, Final, TypeVar

from agentsup.kit.clock import SystemClock

__all__ = ["BoundedPool", "NoAnswer", "NoThread", "PoolFull", "TimedSteps", "in_time"]

T = TypeVar("T")
_log = logging.getLogger(__name__)
_PROBE: Final = "(probe)"
_PROBE_S: Final = 4.0
"""Less than whoever asks the probes waits for an answer."""
_PAUSE_S: Final = 0.2
"""Before a thread that could not be started is tried again."""


class NoAnswer(TimeoutError):
    """A step did not end in time, or has to wait behind steps that don't end. An ``OSError``, as
    what a disk says; its thread may still be at it, and what it makes then is undone."""


class PoolFull(BlockingIOError):
    """More waits for the pool than it takes; try again later."""


class NoThread(BlockingIOError):
    """The system starts no thread now; try again later."""


class BoundedPool:
    """Runs blocking steps, each in a daemon thread, at most so many at a time.

    A step that exceeds its limit gives its place in the pool back and keeps its key's: others go
    on, and the same key is refused at once while all its places are held by such steps.
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
        ``limit_s`` is for one step, and for the wait before it. With ``stuck`` steps left behind no
        more places are given back, and ``probe`` says so."""
        self.name = name
        self._places = asyncio.Semaphore(threads)
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
        """What ``step`` returns or raises.

        Raises ``NoAnswer`` when it takes longer than ``limit_s`` (the pool's limit by default),
        ``PoolFull`` and ``NoThread``. A cancelled caller does not wait for the step. Where it was
        begun, the step runs on in its thread, and ``undo`` is called there with what it returns: nobody will know of it.
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
            self._leave(key, entry, asked)
            raise
        running.add_done_callback(partial(self._ended, key, entry, asked))
        try:
            done, _ = await asyncio.wait({running}, timeout=limit_s)
        except asyncio.CancelledError:
            self._give_up(asked)
            # Nobody waits, but whether it hangs is still to be known.
            loop.call_later(limit_s, self._left_behind, entry, asked)
            raise
        if done:
            return running.result()
        self._give_up(asked)
        self._left_behind(entry, asked)
        raise NoAnswer(f"no answer within {limit_s:g} s")

    async def probe(self) -> str | None:
        """What is wrong with the pool, or None: a step of no work must get through."""
        try:
            await self.run(_nothing, key=_PROBE, limit_s=_PROBE_S)
        except OSError as error:
            return f"{self.name}: {error}; {self._told()}"
        return None

    def _told(self) -> str:
        stuck = self.stuck
        most = sorted(stuck, key=lambda name: -stuck[name])[:5]
        return f"{sum(stuck.values())} steps hang" + (f" ({', '.join(most)})" if most else "")

    async def _enter(self, key: str, entry: "_Key", limit_s: float) -> None:
        """Wait for a place of the key, then for one of the pool; both are held afterwards."""
        if entry.stuck >= self._per_key:
            raise NoAnswer(f"no answer: {entry.stuck} earlier steps still hang")
        if self._waiting >= self._queued:
            raise PoolFull(0, f"{self.name} has {self._waiting} steps waiting; try again later")
        self._waiting += 1
        try:
            async with asyncio.timeout(limit_s):
                await entry.places.acquire()
                try:
                    await self._places.acquire()
                except BaseException:
                    entry.places.release()
                    raise
        except TimeoutError:
            raise NoAnswer(f"no answer: waited {limit_s:g} s behind other steps") from None
        finally:
            self._waiting -= 1
        entry.users += 1

    async def _started(self, asked: "_Asked") -> "asyncio.Future[Any]":
        loop = asyncio.get_running_loop()
        try:
            return loop.run_in_executor(self._threads, asked)
        except NoThread:
            await SystemClock().sleep(_PAUSE_S)
        return loop.run_in_executor(self._threads, asked)

    def _give_up(self, asked: "_Asked") -> None:
        if asked.give_up():
            self._take_back(asked)

    def _take_back(self, asked: "_Asked") -> None:
        loop = asyncio.get_running_loop()
        try:
            undoing = loop.run_in_executor(self._threads, asked.take_back)
        except NoThread:
            loop.call_later(_PAUSE_S, self._take_back, asked)
        else:
            undoing.add_done_callback(_report)

    def _left_behind(self, entry: "_Key", asked: "_Asked") -> None:
        if asked.has_ended:
            return
        entry.stuck += 1
        asked.is_stuck = True
        if sum(self.stuck.values()) <= self._most_stuck:
            asked.has_place = False
            self._places.release()

    def _ended(
        self, key: str, entry: "_Key", asked: "_Asked", running: "asyncio.Future[Any]"
    ) -> None:
        _report(running)
        asked.has_ended = True
        if asked.is_stuck:
            entry.stuck -= 1
        self._leave(key, entry, asked)

    def _leave(self, key: str, entry: "_Key", asked: "_Asked") -> None:
        """Give back what ``_enter`` took."""
        if asked.has_place:
            self._places.release()
        entry.places.release()
        entry.users -= 1
        self._forget(key, entry)

    @contextmanager
    def _user(self, key: str, entry: "_Key") -> Generator[None]:
        entry.users += 1
        try:
            yield
        finally:
            entry.users -= 1
            self._forget(key, entry)

    def _forget(self, key: str, entry: "_Key") -> None:
        if not entry.users and self._keys.get(key) is entry:
            del self._keys[key]


def in_time(step: Callable[[], T], limit_s: float) -> T:
    """What ``step`` returns or raises, for code that is not on an event loop. Blocks, but not for
    longer than ``limit_s``: then it raises ``NoAnswer``, and the step's thread is left behind. Raises
    ``NoThread``."""
    future = _Threads("in-time").submit(step)
    try:
        return future.result(limit_s)
    except TimeoutError:
        if future.done():
            raise  # the step's own
        raise NoAnswer(f"no answer within {limit_s:g} s") from None


class TimedSteps:
    """``in_time`` by key: while a key's step hangs, the key is refused at once. What does not answer
    costs one thread and one wait, however often it is asked for. Any thread may call it."""

    def __init__(self, name: str, *, stuck: int = 64) -> None:
        """With ``stuck`` steps left behind, none is begun."""
        self._threads = _Threads(name)
        self._most_stuck = stuck
        self._left: dict[str, Future[Any]] = {}
        self._lock = threading.Lock()

    def run(self, step: Callable[[], T], limit_s: float, *, key: str) -> T:
        """What ``step`` returns or raises. Blocks for ``limit_s`` at most; raises ``NoAnswer`` then,
        and ``NoThread``."""
        with self._lock:
            self._left = {each: one for each, one in self._left.items() if not one.done()}
            if key in self._left or len(self._left) >= self._most_stuck:
                raise NoAnswer("no answer: an earlier step still hangs")
        future = self._threads.submit(step)
        try:
            return future.result(limit_s)
        except TimeoutError:
            if future.done():
                raise  # the step's own
            with self._lock:
                self._left[key] = future
            raise NoAnswer(f"no answer within {limit_s:g} s") from None


class _Key:
    """The places of one key, and how many steps use or await one."""

    __slots__ = ("places", "stuck", "users")

    def __init__(self, places: asyncio.Semaphore) -> None:
        self.places = places
        self.stuck = 0
        self.users = 0


class _Asked:
    """One step, and whether somebody still waits for it. Called in its thread."""

    def __init__(self, step: Callable[[], Any], undo: Callable[[Any], object] | None) -> None:
        self.is_stuck = False
        self.has_ended = False
        self.has_place = True
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
        """Nobody waits any more: what it makes is undone. True if it has made it already."""
        with self._lock:
            self._is_given_up = True
            return bool(self._made)

    def take_back(self) -> None:
        """Undo what was made; blocks."""
        if self._undo is not None:
            self._undo(self._made[0])


class _Threads(Executor):
    """A daemon thread for each step. None idles, none is waited for at the end of the process."""

    def __init__(self, name: str) -> None:
        self._name = name

    def submit(  # type: ignore[override]  # called by the loop alone, with a function and no arguments
        self, step: Callable[[], T], /
    ) -> Future[T]:
        future: Future[T] = Future()
        thread = threading.Thread(
            target=_carry_out, args=(future, step), name=f"pool:{self._name}", daemon=True
        )
        try:
            thread.start()
        except RuntimeError:
            told = f"{self._name}: no thread can be started now; try again later"
            raise NoThread(errno.EAGAIN, told) from None
        return future


def _carry_out(future: "Future[T]", step: Callable[[], T]) -> None:
    if not future.set_running_or_notify_cancel():
        return
    try:
        found = step()
    except BaseException as error:  # noqa: BLE001 - supervision boundary: it is its waiter's
        future.set_exception(error)
    else:
        future.set_result(found)


def _report(running: "asyncio.Future[Any]") -> None:
    """Nobody may wait for it any more, so its error is asked for here."""
    if not running.cancelled() and (error := running.exception()) is not None:
        _log.debug("a step in a thread failed: %s", error)


def _nothing() -> None:
    """A step of no work."""
