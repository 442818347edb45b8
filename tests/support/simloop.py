"""Event loops on which time is a number: for component tests and for seeded simulation.

``VirtualLoop`` runs callbacks in their usual order and jumps its clock to the next timer whenever
nothing is left to do, so an hour of waiting costs microseconds. ``SeededLoop`` also draws, from a
seed, in which order ready callbacks run and which of them wait a round, so that one seed is one
interleaving and can be replayed. Executor jobs run in the loop's own thread.

Real sockets, pipes and threads have no place on these loops, because their time is not ours; a
loop that watches a real file descriptor refuses to jump. Shuffling also breaks the order that real
transports rely on. Such tests belong to ``tests/process``.

The loops lean on private names of asyncio; ``PRIVATE_NAMES`` lists them and a test pins them.
"""

from __future__ import annotations

import asyncio
import collections
import heapq
import itertools
import math
import os
import random
import selectors
import shlex
import sys
from collections.abc import Callable, Coroutine, Generator, Iterable, Iterator
from contextlib import contextmanager, suppress
from typing import Any, Final, TypeVar

T = TypeVar("T")

DAY_S: Final = 86_400.0

PRIVATE_NAMES: Final = (
    "_run_once",
    "_ready",
    "_scheduled",
    "_stopping",
    "_timer_cancelled_count",
    "_clock_resolution",
    "_selector",
)


class SimulationStuck(AssertionError):
    """Nothing is ready, no timer is set, and the awaited work is not finished: a deadlock."""


class BackgroundErrors(AssertionError):
    """The loop's exception handler was called: an error that nobody awaited."""


class Crashed(Exception):
    """The simulated process was ended by ``SeededLoop.crash()`` before its main work finished."""


class _Quiet(selectors.DefaultSelector):
    """Asks the system only if more is watched than the loop's own wake-up pipe, which matters to
    threads alone: a run passes here a thousand times and nothing ever comes."""

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        return super().select(timeout) if len(self.get_map()) > 1 else []


class VirtualLoop(asyncio.SelectorEventLoop):
    """A loop whose ``time()`` moves only by jumping to the next timer when nothing is ready.

    ``start_s`` is where time begins; ``horizon_s`` is how much virtual time one run may use before it
    is taken for an endless wait on something that never comes.
    """

    def __init__(self, *, start_s: float = 0.0, horizon_s: float = 30 * DAY_S) -> None:
        self._now_s = start_s
        self._horizon_at_s = start_s + horizon_s
        self.errors: list[dict[str, Any]] = []
        self.failed = False  # tasks left by a failed run are its consequence, not a leak
        super().__init__(_Quiet())
        # At large times one nanosecond is below a float's precision and a due timer never fires.
        self._clock_resolution = 1e-6
        self.set_exception_handler(self._record_error)

    def time(self) -> float:
        """Virtual seconds."""
        return self._now_s

    def idle_s(self) -> float:
        """Seconds in which nothing can happen: until the next timer, 0 while a callback is ready."""
        if self._ready:
            return 0.0
        return max(0.0, self._scheduled[0]._when - self._now_s) if self._scheduled else math.inf

    def run_in_executor(  # type: ignore[override]  # a future on every path, as awaiting code expects
        self, executor: Any, func: Callable[..., Any], *args: Any
    ) -> asyncio.Future[Any]:
        """Run ``func`` in the loop's thread, in a turn of its own."""
        future: asyncio.Future[Any] = self.create_future()
        self.call_soon(self._run_job, future, func, args)
        return future

    def raise_background_errors(self) -> None:
        """Raise ``BackgroundErrors`` if an error reached the exception handler."""
        if self.errors:
            told = "; ".join(f"{e.get('message')}: {e.get('exception')!r}" for e in self.errors)
            raise BackgroundErrors(told)

    @staticmethod
    def _run_job(
        future: asyncio.Future[Any], func: Callable[..., Any], args: tuple[Any, ...]
    ) -> None:
        try:
            result = func(*args)
        except (SystemExit, KeyboardInterrupt):
            raise
        except BaseException as error:  # noqa: BLE001 - the job's error belongs to its future
            if not future.done():
                future.set_exception(error)
        else:
            # A thread's job runs on when its waiter is cancelled; so does this one.
            if not future.done():
                future.set_result(result)

    def _record_error(self, _loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        self.errors.append(context)
        self.default_exception_handler(context)

    def _run_once(self) -> None:
        self._drop_cancelled_timers()
        if not self._ready and not self._stopping:
            self._jump()
        self._collect_due()
        self._arrange()
        super()._run_once()  # type: ignore[misc]  # private, pinned by a test

    def _drop_cancelled_timers(self) -> None:
        while self._scheduled and self._scheduled[0]._cancelled:
            self._timer_cancelled_count -= 1
            heapq.heappop(self._scheduled)._scheduled = False

    def _jump(self) -> None:
        if len(self._selector.get_map()) > 1:  # the loop's own wake-up pipe is one
            raise RuntimeError(
                "a real file descriptor is watched in virtual time; "
                "run this test on a real loop, or put the descriptor behind a port"
            )
        if not self._scheduled:
            raise SimulationStuck(
                f"nothing can ever happen at {self._now_s:.3f} s; waiting: {self._waiting()}"
            )
        self._now_s = max(self._now_s, self._scheduled[0]._when)
        if self._now_s > self._horizon_at_s:
            raise SimulationStuck(
                f"the run passed its horizon of virtual time; waiting: {self._waiting()}"
            )

    def _collect_due(self) -> None:
        # Done here, and not left to the stock loop, so that due timers take part in the shuffle.
        end = self._now_s + self._clock_resolution
        while self._scheduled and self._scheduled[0]._when < end:
            handle = heapq.heappop(self._scheduled)
            handle._scheduled = False
            if handle._cancelled:
                self._timer_cancelled_count -= 1
            else:
                self._ready.append(handle)

    def _arrange(self) -> None:
        """Change the order of what is ready; the plain virtual loop keeps it."""

    def _waiting(self) -> str:
        return "; ".join(sorted(_where(task) for task in asyncio.all_tasks(self))) or "no task"

    # Private attributes of the stock loop, named for the type checker.
    _ready: collections.deque[asyncio.Handle]
    _scheduled: list[Any]
    _stopping: bool
    _timer_cancelled_count: int
    _clock_resolution: float
    _selector: Any


class _NumberedTask(asyncio.Task[Any]):
    """Its place in a set follows from its number, as its address differs from run to run."""

    def __init__(self, *arguments: Any, number: int, **keywords: Any) -> None:
        self._number = number
        super().__init__(*arguments, **keywords)

    def __hash__(self) -> int:
        return self._number


class _NumberedFuture(asyncio.Future[Any]):
    """The same of a future."""

    def __init__(self, loop: asyncio.AbstractEventLoop, number: int) -> None:
        self._number = number
        super().__init__(loop=loop)

    def __hash__(self) -> int:
        return self._number


class SeededLoop(VirtualLoop):
    """A virtual loop that draws the order of ready callbacks from a seed.

    Each round a random part of what is ready runs, in random order; the rest waits, so one task may
    take several steps while another stands still. Executor jobs are delayed by up to
    ``job_delay_s`` virtual seconds. Sets of tasks and futures are iterated in an order that is the
    same in each run.
    """

    def __init__(
        self,
        seed: int | str,
        *,
        start_s: float = 0.0,
        horizon_s: float = 30 * DAY_S,
        job_delay_s: float = 0.01,
    ) -> None:
        self._rng = random.Random(f"schedule:{seed}")
        self._job_delay_s = job_delay_s
        self._held: list[asyncio.Handle] = []
        self._graves: set[asyncio.Task[Any]] = set()
        self.crashed = False
        self._numbers = itertools.count(1)
        super().__init__(start_s=start_s, horizon_s=horizon_s)
        self.set_task_factory(self._new_task)

    def create_future(self) -> asyncio.Future[Any]:
        """A future with a number."""
        return _NumberedFuture(self, next(self._numbers))

    def _new_task(
        self,
        loop: asyncio.AbstractEventLoop,
        coro: Coroutine[Any, Any, Any] | Generator[Any, None, Any],
        **keywords: Any,
    ) -> asyncio.Task[Any]:
        return _NumberedTask(coro, loop=loop, number=next(self._numbers), **keywords)

    def run_in_executor(  # type: ignore[override]  # see VirtualLoop
        self, executor: Any, func: Callable[..., Any], *args: Any
    ) -> asyncio.Future[Any]:
        future: asyncio.Future[Any] = self.create_future()
        self.call_later(self._rng.uniform(0, self._job_delay_s), self._run_job, future, func, args)
        return future

    def crash(self) -> None:
        """End this life as ``kill -9`` would: no task takes another step, no handler runs.

        The code that calls it runs on to its next wait and then never resumes; put the store's
        runner to death first. The tasks stay referenced until ``bury()``, because dropping a
        suspended coroutine runs its ``finally`` blocks.
        """
        self.crashed = True
        self._graves = set(asyncio.all_tasks(self))
        for handle in [*self._ready, *self._scheduled, *self._held]:
            handle.cancel()
        super().stop()

    def bury(self) -> None:
        """Close what a crash left suspended, silently; call it when the run is over."""
        for task in self._graves:
            task._log_destroy_pending = False  # type: ignore[attr-defined]  # as asyncio itself does
            coro = task.get_coro()
            with suppress(BaseException):
                coro.close()
        self._graves.clear()

    def _run_once(self) -> None:
        super()._run_once()
        # What waited a round goes back; the next round shuffles all of it.
        self._ready.extend(self._held)
        self._held.clear()
        if self.crashed:
            for handle in [*self._ready, *self._scheduled]:
                handle.cancel()

    def _arrange(self) -> None:
        if self._stopping or len(self._ready) < 2:
            return
        order = self._rng.sample(list(self._ready), len(self._ready))
        running = self._rng.randint(1, len(order))
        self._held = order[running:]
        self._ready.clear()
        self._ready.extend(order[:running])


class SimRun:
    """One seed's run: its chance, its clock across lives, and the loops it used.

    ``rng`` is for the scenario (what happens when); the loops draw from streams of their own, so a
    changed scenario does not change how unrelated steps interleave.
    """

    def __init__(self, seed: int) -> None:
        self.seed = seed
        self.rng = random.Random(f"scenario:{seed}")
        self.now_s = 0.0
        self.lives = 0
        self._loops: list[SeededLoop] = []

    def life(self, main: Callable[[SeededLoop], Coroutine[Any, Any, T]]) -> T:
        """Run ``main(loop)`` to its end on a fresh loop that continues this run's time.

        Raises ``Crashed`` if the loop's ``crash()`` ended it, ``SimulationStuck`` on a deadlock, and
        ``BackgroundErrors`` if an error was left unawaited.
        """
        self.lives += 1
        loop = SeededLoop(f"{self.seed}:{self.lives}", start_s=self.now_s)
        self._loops.append(loop)
        try:
            return _run(loop, main(loop))
        finally:
            self.now_s = loop.time()

    def bury(self) -> None:
        """Close what crashed lives left suspended."""
        for loop in self._loops:
            loop.bury()
        self._loops.clear()


def run_virtual(
    coro: Coroutine[Any, Any, T], *, start_s: float = 0.0, horizon_s: float = 30 * DAY_S
) -> T:
    """Run ``coro`` on a ``VirtualLoop`` and return its result.

    Raises ``SimulationStuck`` where a real loop would hang, ``BackgroundErrors`` if an error was left
    unawaited.
    """
    return _run(VirtualLoop(start_s=start_s, horizon_s=horizon_s), coro)


def run_seeded(seed: int, factory: Callable[[SimRun], Coroutine[Any, Any, T]]) -> T:
    """Run one life, ``factory(run)``, under ``seed``; a failure carries the command that replays it."""
    return run_lives(seed, lambda run: run.life(lambda _loop: factory(run)))


def run_lives(seed: int, scenario: Callable[[SimRun], T]) -> T:
    """Run ``scenario(run)``, which may start several lives with ``run.life(...)``, under ``seed``.

    A failure carries the command that replays it.
    """
    run = SimRun(seed)
    try:
        with replay_note(seed):
            return scenario(run)
    finally:
        run.bury()


def seeds(default: int, *, corpus: Iterable[int] = ()) -> Iterator[int]:
    """The seeds to run: past failures first, then 0, 1, 2, ….

    ``TEST_SIM_SEED`` names a single seed to replay; ``TEST_SIM_SEEDS`` is how many to run in
    place of ``default``.
    """
    single = os.environ.get("TEST_SIM_SEED")
    if single is not None:
        yield int(single)
        return
    past = tuple(dict.fromkeys(corpus))
    yield from past
    count = int(os.environ.get("TEST_SIM_SEEDS") or default)
    yield from (seed for seed in range(count) if seed not in past)


def replay_command(seed: int) -> str:
    """The shell command that runs the current test with this seed alone."""
    test = os.environ.get("PYTEST_CURRENT_TEST", "tests/simulation").rsplit(" (", 1)[0]
    # Sets of strings iterate in an order that depends on this, and so may the run.
    hash_seed = os.environ.get("PYTHONHASHSEED", "0")
    return (
        f"PYTHONHASHSEED={hash_seed} TEST_SIM_SEED={seed} "
        f".venv/bin/pytest -p no:randomly {shlex.quote(test)}"
    )


@contextmanager
def replay_note(seed: int) -> Iterator[None]:
    """Add to any failure inside, and print, the seed and the command that replays it."""
    try:
        yield
    except Exception as error:
        told = f"seed {seed} failed; replay with:\n  {replay_command(seed)}"
        error.add_note(told)
        print(told, file=sys.stderr)  # must reach the terminal even if the note does not
        raise


def _run(loop: VirtualLoop, coro: Coroutine[Any, Any, T]) -> T:
    runner = asyncio.Runner(loop_factory=lambda: loop)
    try:
        result = runner.run(coro)
    except RuntimeError:
        if _is_crashed(loop):
            raise Crashed(f"crashed at {loop.time():.3f} s") from None
        loop.failed = True
        raise
    except BaseException:
        loop.failed = True
        raise
    finally:
        if _is_crashed(loop):
            loop.close()  # without the runner's cleanup: the dead run nothing
        else:
            runner.close()
    if _is_crashed(loop):
        raise Crashed(f"crashed at {loop.time():.3f} s")
    loop.raise_background_errors()
    return result


def _is_crashed(loop: VirtualLoop) -> bool:
    return isinstance(loop, SeededLoop) and loop.crashed


def _where(task: asyncio.Task[Any]) -> str:
    frames = task.get_stack(limit=1)
    if not frames:
        return task.get_name()
    return f"{task.get_name()} at {frames[-1].f_code.co_filename}:{frames[-1].f_lineno}"
