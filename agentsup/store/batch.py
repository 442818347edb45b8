"""One group commit: run the functions of many callers in one transaction, in the writer's thread.

Each function has its own savepoint, so one that raises rolls back alone; a function that is alone in
its batch needs none. If the commit fails, or a condition of the whole store occurs while a function
runs, no change is stored and every caller gets the error. Serves P1.

A batch waits a moment for callers that will write again: a flush costs as much as several functions,
and callers that got the result of one commit send their next write one by one. One caller, or a few,
never wait, and a wait in vain lowers the expected number. The idea is PostgreSQL's ``commit_delay``
with ``commit_siblings``, but the number of siblings is learnt.
"""

from __future__ import annotations

import asyncio
import inspect
import sqlite3
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from agentsup.kit import faults
from agentsup.kit.clock import Clock
from agentsup.kit.tasks import is_set_within
from agentsup.model.errors import AgentsupError, Overloaded
from agentsup.store.failures import StoreFault, condition_of, unavailable
from agentsup.store.options import StoreOptions
from agentsup.store.reserve import DiskReserve
from agentsup.store.transaction import Tx


@dataclass(slots=True, eq=False, repr=False)
class Job:
    """One caller's function in the writer's queue. No ``repr``: it may carry message text.

    ``future`` belongs to the caller; only the loop's thread touches it.
    """

    fn: Callable[[Tx], Any]
    name: str
    future: asyncio.Future[Any]
    may_use_reserve: bool
    result: Any = None
    error: BaseException | None = None
    callbacks: Sequence[Callable[[], None]] = ()
    topics: Mapping[str, Callable[[], Any] | None] = field(default_factory=dict)

    def answer(self, error: BaseException | None) -> None:
        """Give the caller the result, or this error; in the loop's thread."""
        if self.future.done():
            return  # the caller was cancelled meanwhile
        if error is None:
            self.future.set_result(self.result)
        else:
            self.future.set_exception(error)


@dataclass(slots=True)
class BatchReport:
    """The result of a batch. The first ``ran`` jobs were run; the rest were not begun."""

    ran: int = 0
    failure: AgentsupError | None = None
    is_reserve_there: bool = True
    slow: list[tuple[str, float]] = field(default_factory=list)


class BatchRunner:
    """Runs batches on the writer's connection; called in the writer's thread only."""

    def __init__(
        self,
        path: Path,
        identity: tuple[int, int],
        *,
        clock: Clock,
        options: StoreOptions,
        reserve: DiskReserve,
        last_good: Callable[[], Path | None],
    ) -> None:
        """``identity`` is (device, inode) of the file at ``path`` when it was opened."""
        self._path = path
        self._identity = identity
        self._clock = clock
        self._options = options
        self._reserve = reserve
        self._last_good = last_good
        self._written: list[Tx] = []

    def run(self, jobs: Sequence[Job], connection: sqlite3.Connection) -> BatchReport:
        """Run ``jobs`` in order and commit once. Fills in each job's result or error."""
        report = BatchReport()
        try:
            self._check_file()
            report.is_reserve_there = self._reserve.allocate()
            connection.execute("BEGIN IMMEDIATE")
            self._run_jobs(jobs, connection, report)
            if len(jobs) > 1 or jobs[0].error is None:
                faults.point("store.before_commit")
                connection.execute("COMMIT")
                faults.point("store.after_commit")
        except AgentsupError as failure:
            report.failure = failure
        except sqlite3.Error as error:
            report.failure = condition_of(error, self._path, self._last_good) or unavailable(
                StoreFault.BROKEN_BATCH, self._path, str(error)
            )
        finally:
            if connection.in_transaction:
                connection.execute("ROLLBACK")  # if even this fails, the writer must stop
            written, self._written = self._written, []
        if report.failure is not None:
            for tx in reversed(written):
                tx.undo()
            report.ran = len(jobs)
            if report.failure.facts.get("reason") == StoreFault.FULL:
                self._reserve.free()
                report.is_reserve_there = self._reserve.is_allocated
        return report

    def _check_file(self) -> None:
        """Raise if the file was removed or replaced: confirmed rows would be lost without any
        error."""
        try:
            stat = self._path.stat()
        except OSError as error:
            raise unavailable(StoreFault.REPLACED, self._path, str(error.strerror)) from error
        if (stat.st_dev, stat.st_ino) != self._identity:
            raise unavailable(StoreFault.REPLACED, self._path)

    def _run_jobs(
        self, jobs: Sequence[Job], connection: sqlite3.Connection, report: BatchReport
    ) -> None:
        batch_began_at = began_at = self._clock.monotonic()
        while report.ran < len(jobs):
            if report.ran and (began_at - batch_began_at) * 1000 >= self._options.batch_hold_ms:
                return
            job = jobs[report.ran]
            report.ran += 1
            if not (report.is_reserve_there or job.may_use_reserve):
                job.error = unavailable(StoreFault.FULL, self._path)
                continue
            self._run_one(job, connection, is_alone=len(jobs) == 1)
            ended_at = self._clock.monotonic()
            elapsed_ms = (ended_at - began_at) * 1000
            if elapsed_ms > self._options.slow_ms:
                report.slow.append((job.name, elapsed_ms))
            began_at = ended_at

    def _begin(self, connection: sqlite3.Connection) -> Tx:
        tx = Tx(connection)
        self._written.append(tx)
        return tx

    def _run_one(self, job: Job, connection: sqlite3.Connection, *, is_alone: bool) -> None:
        """Run one function in its savepoint; one that ``is_alone`` has the transaction for itself.

        Raises only what ends the whole batch.
        """
        tx = self._begin(connection)
        if not is_alone:
            connection.execute("SAVEPOINT fn")
        try:
            job.result = job.fn(tx)
            if inspect.iscoroutine(job.result):
                job.result.close()
                raise TypeError(f"{job.name} is async; the writer runs plain functions only")
        except BaseException as error:
            # supervision boundary: an error of one caller's function concerns that caller only
            condition = condition_of(error, self._path, self._last_good)
            if condition is not None:
                raise condition from error
            job.error = _settable(error)
        finally:
            tx.end()
        self._check_open(connection, job.name, job.error)
        if job.error is not None:
            connection.execute("ROLLBACK" if is_alone else "ROLLBACK TO fn")
            tx.undo()
        else:
            job.callbacks = tx.callbacks
            job.topics = tx.topics
        if not is_alone:
            connection.execute("RELEASE fn")

    def _check_open(
        self, connection: sqlite3.Connection, name: str, error: BaseException | None
    ) -> None:
        """SQLite ends the transaction itself on some errors (full disk, ON CONFLICT ROLLBACK)."""
        if not connection.in_transaction:
            detail = f"in {name}" + (f": {error}" if error else "")
            raise unavailable(StoreFault.BROKEN_BATCH, self._path, detail) from error


def _settable(error: BaseException) -> BaseException:
    """``error``, or a replacement for ``StopIteration``, which a future refuses."""
    if isinstance(error, StopIteration):
        replacement = RuntimeError("a function in the writer raised StopIteration")
        replacement.__cause__ = error
        return replacement
    return error


class WriteQueue:
    """The jobs that wait for the next batch, and the wait for callers that will write again."""

    def __init__(self, options: StoreOptions) -> None:
        """Begin with one expected caller."""
        self._options = options
        self._urgent: deque[Job] = deque()
        self._waiting: deque[Job] = deque()
        self._size = 1
        """The number of callers that were seen to write concurrently."""
        self._enough: asyncio.Event | None = None

    def add(self, job: Job, *, urgent: bool) -> None:
        """Add a job; an urgent one comes before all others, and ends the wait for more.

        Raises ``Overloaded`` if the queue is full.
        """
        queue = self._urgent if urgent else self._waiting
        if len(queue) >= self._options.write_queue_max:
            raise Overloaded(
                f"{len(queue)} writes are waiting for the disk, the most allowed; try again later.",
                queue="store.write",
                size=len(queue),
                limit=self._options.write_queue_max,
            )
        queue.append(job)
        if self._enough is not None and (urgent or len(self._waiting) >= self._size):
            self._enough.set()

    async def gather(self) -> None:
        """Wait until as many callers are queued as were seen at once, or until the limit."""
        if self._urgent or not 0 < len(self._waiting) < self._size:
            return
        if self._size >= self._options.gather_from and self._options.gather_ms > 0:
            self._enough = asyncio.Event()
            try:  # at the limit, the queued callers go
                await is_set_within(self._enough, self._options.gather_ms / 1000)
            finally:
                self._enough = None
        self._size = max(1, len(self._waiting))

    def take(self) -> list[Job]:
        """The next batch: urgent writes first, without those whose callers were cancelled."""
        jobs: list[Job] = []
        for queue in (self._urgent, self._waiting):
            while queue and len(jobs) < self._options.batch_max:
                job = queue.popleft()
                if not job.future.done():
                    jobs.append(job)
        return jobs

    def was_run(self, jobs: Sequence[Job], ran: int) -> None:
        """Note that the first ``ran`` of a batch were run; the others are the next ones."""
        together = len(jobs) + len(self._waiting)
        self._size = min(max(self._size, together), self._options.batch_max)
        self._waiting.extendleft(reversed(jobs[ran:]))

    def clear(self) -> list[Job]:
        """Remove all jobs, and return them."""
        jobs = [*self._urgent, *self._waiting]
        self._urgent.clear()
        self._waiting.clear()
        return jobs
