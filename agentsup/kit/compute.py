"""Long computations on foreign texts, in a few separate threads that serve keys in turn.

The duration of such a step depends on a text that an agent, a person or a server has chosen. In the
shared threads (``asyncio.to_thread``) enough of them would delay everything that needs a thread,
and every computing thread slows the event loop. So the process has two threads for them, since its
interpreter runs one thread at a time anyway, and at most one of them works for one key. Serves P3.

A step can't be interrupted, so the caller must bound its input.
"""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from collections.abc import Callable
from concurrent.futures import Executor, Future
from dataclasses import dataclass
from typing import Any, Final, Generic, TypeVar

from agentsup.kit.pool import carry_out

T = TypeVar("T")
_THREADS: Final = 2


@dataclass(frozen=True, slots=True)
class Step(Generic[T]):
    """The work and its key."""

    key: str
    do: Callable[[], T]

    def __call__(self) -> T:
        """Run the step."""
        return self.do()


class FairThreads(Executor):
    """Runs steps in a bounded number of daemon threads: keys take turns, one step each at a time.

    A thread ends when the queue is empty. The waiting callers bound the queue: a step whose future
    is cancelled before it starts is not run.
    """

    def __init__(self, name: str, threads: int) -> None:
        """``name`` is the name of the threads; ``threads`` is their greatest number."""
        self._name = name
        self._most = threads
        self._lock = threading.Lock()
        self._waiting: dict[str, deque[tuple[Future[Any], Step[Any]]]] = {}
        self._turns: deque[str] = deque()
        """Keys with a waiting step and no running one, in the order of their turns."""
        self._busy: set[str] = set()
        self._running = 0

    def submit(  # type: ignore[override]  # called with a step alone
        self, step: Step[T], /
    ) -> Future[T]:
        """A future for the result or the exception of ``step``. Raises ``RuntimeError`` if the
        system can't start a thread."""
        future: Future[T] = Future()
        with self._lock:
            is_first = step.key not in self._waiting and step.key not in self._busy
            is_new = is_first and self._running < self._most
            self._running += is_new
            self._waiting.setdefault(step.key, deque()).append((future, step))
            if is_first:
                self._turns.append(step.key)
        if is_new:
            try:
                threading.Thread(target=self._work, name=self._name, daemon=True).start()
            except RuntimeError:
                self._refuse(future, step)
        return future

    def _refuse(self, future: Future[T], step: Step[T]) -> None:
        """Handle a failed start of a thread: raise, unless another thread will run the step."""
        with self._lock:
            self._running -= 1
            if self._running or not future.cancel():
                return
            del self._waiting[step.key]
            self._turns.remove(step.key)
        raise RuntimeError("no thread can be started now; try again later")

    def _work(self) -> None:
        while (taken := self._next()) is not None:
            future, step = taken
            carry_out(future, step)
            self._done(step.key)
            del taken, future, step

    def _next(self) -> tuple[Future[Any], Step[Any]] | None:
        with self._lock:
            if not self._turns:
                self._running -= 1
                return None
            key = self._turns.popleft()
            steps = self._waiting[key]
            taken = steps.popleft()
            if not steps:
                del self._waiting[key]
            self._busy.add(key)
            return taken

    def _done(self, key: str) -> None:
        with self._lock:
            self._busy.discard(key)
            if key in self._waiting:
                self._turns.append(key)


_threads = FairThreads("compute", _THREADS)


async def compute(step: Callable[[], T], *, key: str) -> T:
    """The result or the exception of ``step``; ``key`` names the party that chose its duration.

    A cancelled caller does not wait for the step. Raises ``RuntimeError`` if the system can't start
    a thread.
    """
    found: T = await asyncio.get_running_loop().run_in_executor(_threads, Step(key, step))
    return found
