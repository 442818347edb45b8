"""The thread in which child programs are forked, so that the event loop does not wait for them.

Between fork and ``exec`` a child sets its limits and enters its fence, and the thread that forks it
waits until it has. On a busy machine that takes tens of milliseconds, because the child competes
with the programs that were started before. The loop competes with them too. So programs are started
one after the other, each after a rest that lasts until a processor is free again.

The kernel takes the forking thread for the child's parent: the child dies with that thread
(``PR_SET_PDEATHSIG``). So these threads never end, except with the process. Serves P3 and P9.
"""

from __future__ import annotations

import asyncio
import errno
import threading
from collections.abc import Callable
from concurrent.futures import Future
from functools import partial
from queue import SimpleQueue
from typing import Any, Final, TypeVar

from agentsup.kit.clock import SystemClock
from agentsup.kit.pool import IDLE, NoThread, carry_out

T = TypeVar("T")

_NAME: Final = "starter"
_STUCK_S: Final = 10.0
_LIMIT_S: Final = 60.0
_UNDO_S: Final = 2.0
_MOST: Final = 8
_RESTS: Final = 5
_REST_S: Final = 0.01
_LATE_S: Final = 0.001


def rest() -> None:
    """Wait until a short pause ends on time, which shows that a processor is free; at most 50 ms on
    a machine that is busy all the time."""
    clock, pause = SystemClock(), threading.Event()
    for _ in range(_RESTS):
        due_s = clock.monotonic() + _REST_S
        pause.wait(_REST_S)
        if clock.monotonic() - due_s < _LATE_S:
            return


class ProgramStarter:
    """Carries out the steps that fork a program, one at a time. One for a process."""

    def __init__(
        self,
        *,
        rest: Callable[[], None] = rest,
        stuck_s: float = _STUCK_S,
        limit_s: float = _LIMIT_S,
        undo_s: float = _UNDO_S,
    ) -> None:
        """``rest`` is called in the thread after each step. A step that hangs for ``stuck_s``
        seconds, as in a folder on a disk that does not answer, keeps its thread; another thread
        goes on, up to eight. Each caller waits ``limit_s`` seconds at most, and ``undo_s`` more for
        the end of a step that nobody wants any more."""
        self._rest = rest
        self._stuck_s = stuck_s
        self._limit_s = limit_s
        self._undo_s = undo_s
        self._steps: SimpleQueue[tuple[Future[Any], Callable[[], Any]]] = SimpleQueue()
        self._lock = threading.Lock()
        self._threads: list[threading.Thread] = []
        self._begun_s: dict[threading.Thread, float] = {}
        """When each thread began the step that it carries out now."""

    async def run(self, step: Callable[[], T], *, undo: Callable[[T], object]) -> T:
        """The result or the exception of ``step``.

        If the caller is cancelled, a step that has not begun is left out. One that has begun is
        waited for, and ``undo`` is called on the loop with its result, also if that comes too late
        for the caller. Raises ``TimeoutError`` after ``limit_s`` and ``NoThread``.
        """
        forking: Future[T] = Future()
        self._give(forking, step)
        arriving = asyncio.wrap_future(forking)
        try:
            async with asyncio.timeout(self._limit_s):
                while not arriving.done():
                    await asyncio.wait({arriving}, timeout=self._stuck_s)
                    self._relieve()
        except (asyncio.CancelledError, TimeoutError) as error:
            forking.cancel()
            arriving.add_done_callback(partial(_undo, undo))
            await asyncio.wait({arriving}, timeout=self._undo_s)
            if isinstance(error, TimeoutError):
                text = f"it has not started within {self._limit_s:g} s"
                raise TimeoutError(errno.ETIMEDOUT, text) from None
            raise
        return arriving.result()

    # -- inside ------------------------------------------------------------------------------------

    def _give(self, forking: Future[T], step: Callable[[], T]) -> None:
        with self._lock:
            # None is alive in a process that was itself forked.
            if not any(thread.is_alive() for thread in self._threads):
                self._threads, self._begun_s = [], {}
                self._add_thread()
        self._steps.put((forking, step))

    def _relieve(self) -> None:
        """Start another thread if all of them hang."""
        with self._lock:
            hung_s = SystemClock().monotonic() - self._stuck_s
            begun_s = [self._begun_s.get(thread, hung_s + 1) for thread in self._threads]
            if max(begun_s) <= hung_s and len(begun_s) < _MOST:
                self._add_thread()

    def _add_thread(self) -> None:
        thread = threading.Thread(target=self._work, name=f"{_NAME} {IDLE}", daemon=True)
        try:
            thread.start()
        except RuntimeError:
            text = "no thread can be started now; try again later"
            raise NoThread(errno.EAGAIN, text) from None
        self._threads.append(thread)

    def _work(self) -> None:
        thread = threading.current_thread()
        while True:
            forking, step = self._steps.get()
            thread.name = _NAME
            self._begun_s[thread] = SystemClock().monotonic()
            carry_out(forking, step)
            thread.name = f"{_NAME} {IDLE}"
            del self._begun_s[thread]
            is_left_out = forking.cancelled()
            del forking, step  # a thread that waits keeps no result
            if not is_left_out:
                self._rest()


def _undo(undo: Callable[[T], object], arriving: asyncio.Future[T]) -> None:
    if not arriving.cancelled() and arriving.exception() is None:
        undo(arriving.result())
