"""One group commit: run the functions of many callers in one transaction, in the writer's thread.

Each function has its own savepoint, so one that raises rolls back alone. Functions of one kind
that follow each other may be done jointly, by few statements in one savepoint; if that declines,
it is undone and each has its own again. If the commit fails, or a condition of the whole store
shows while a function runs, nobody's change stands and nobody is told otherwise. Serves P1.
"""

import asyncio
import inspect
import logging
import sqlite3
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from agentsup.kit import faults
from agentsup.kit.clock import Clock
from agentsup.model.errors import AgentsupError
from agentsup.store.failures import Trouble, condition_of, unavailable
from agentsup.store.reserve import DiskReserve
from agentsup.store.transaction import Tx

__all__ = ["BatchLimits", "BatchReport", "BatchRunner", "Job", "Joint"]

_JOINT_MOST = 32
"""Most functions done jointly: what is undone and repeated when one of them is no common case."""

_log = logging.getLogger(__name__)

Joint = Callable[[Tx, Sequence[Any]], Sequence[Any] | None]


class Job:
    """One caller's function on its way through the writer. No `repr`: it may carry message text."""

    __slots__ = (
        "callbacks",
        "error",
        "fn",
        "future",
        "item",
        "joint",
        "may_use_reserve",
        "name",
        "result",
        "topics",
    )

    def __init__(
        self,
        fn: Callable[[Tx], Any],
        name: str,
        future: "asyncio.Future[Any]",
        may_use_reserve: bool,
        joint: Joint | None = None,
        item: Any = None,
    ) -> None:
        """`future` belongs to the caller; only the loop's thread touches it. `joint` does the work
        of several jobs that share it, given their `item`s."""
        self.fn = fn
        self.name = name
        self.future = future
        self.may_use_reserve = may_use_reserve
        self.joint = joint
        self.item = item
        self.result: Any = None
        self.error: BaseException | None = None
        self.callbacks: Sequence[Callable[[], None]] = ()
        self.topics: Sequence[str] = ()


@dataclass(frozen=True, slots=True)
class BatchLimits:
    """How long one batch may hold the writer (a soft limit) and what counts as a slow function."""

    hold_ms: int
    slow_ms: int


@dataclass(slots=True)
class BatchReport:
    """What became of a batch. `ran` jobs from the front were run; the rest were not begun."""

    ran: int = 0
    failure: AgentsupError | None = None
    is_reserve_held: bool = True
    commit_ms: float = 0.0
    slow: list[tuple[str, float]] = field(default_factory=list)


class BatchRunner:
    """Runs batches on the writer's connection; called in the writer's thread only."""

    def __init__(
        self,
        path: Path,
        identity: tuple[int, int],
        *,
        clock: Clock,
        limits: BatchLimits,
        reserve: DiskReserve,
        last_good: Callable[[], Path | None],
    ) -> None:
        """`identity` is (device, inode) of the file at `path` when it was opened."""
        self._path = path
        self._identity = identity
        self._clock = clock
        self._limits = limits
        self._reserve = reserve
        self._last_good = last_good
        self._written: list[Tx] = []

    def run(self, jobs: Sequence[Job], connection: sqlite3.Connection) -> BatchReport:
        """Run `jobs` in order and commit once. Fills in each job's result or error."""
        report = BatchReport()
        try:
            self._check_file()
            report.is_reserve_held = self._reserve.hold()
            connection.execute("BEGIN IMMEDIATE")
            self._run_jobs(jobs, connection, report)
            started_at = self._clock.monotonic()
            faults.point("store.before_commit")
            connection.execute("COMMIT")
            faults.point("store.after_commit")
            report.commit_ms = (self._clock.monotonic() - started_at) * 1000
        except AgentsupError as failure:
            report.failure = failure
        except sqlite3.Error as error:
            report.failure = condition_of(error, self._path, self._last_good) or unavailable(
                Trouble.BROKEN_BATCH, self._path, str(error)
            )
        finally:
            if connection.in_transaction:
                connection.execute("ROLLBACK")  # if even this fails, the writer must stop
            written, self._written = self._written, []
        if report.failure is not None:
            for tx in reversed(written):
                tx.undo()
            report.ran = len(jobs)
            if report.failure.facts.get("reason") == Trouble.FULL:
                self._reserve.free()
                report.is_reserve_held = self._reserve.is_held
        return report

    def _check_file(self) -> None:
        """A file removed under us would take confirmed rows with it, without any error."""
        try:
            stat = self._path.stat()
        except OSError as error:
            raise unavailable(Trouble.REPLACED, self._path, str(error.strerror)) from error
        if (stat.st_dev, stat.st_ino) != self._identity:
            raise unavailable(Trouble.REPLACED, self._path)

    def _run_jobs(
        self, jobs: Sequence[Job], connection: sqlite3.Connection, report: BatchReport
    ) -> None:
        batch_began_at = began_at = self._clock.monotonic()
        apart_until = 0
        while report.ran < len(jobs):
            if report.ran and (began_at - batch_began_at) * 1000 >= self._limits.hold_ms:
                return
            job = jobs[report.ran]
            if report.ran >= apart_until and job.joint is not None and report.is_reserve_held:
                group = _group(jobs, report.ran)
                if len(group) == 1 or not self._run_jointly(group, job.joint, connection):
                    apart_until = report.ran + len(group)
                    continue
                report.ran += len(group)
            else:
                report.ran += 1
                if not (report.is_reserve_held or job.may_use_reserve):
                    job.error = unavailable(Trouble.FULL, self._path)
                    continue
                self._run_one(job, connection)
            ended_at = self._clock.monotonic()
            elapsed_ms = (ended_at - began_at) * 1000
            if elapsed_ms > self._limits.slow_ms:
                report.slow.append((job.name, elapsed_ms))
            began_at = ended_at

    def _begin(self, connection: sqlite3.Connection) -> Tx:
        tx = Tx(connection)
        self._written.append(tx)
        return tx

    def _run_one(self, job: Job, connection: sqlite3.Connection) -> None:
        """Run one function in its savepoint. Raises only what ends the whole batch."""
        tx = self._begin(connection)
        connection.execute("SAVEPOINT fn")
        try:
            job.result = job.fn(tx)
            if inspect.iscoroutine(job.result):
                job.result.close()
                raise TypeError(f"{job.name} is async; the writer runs plain functions only")
        except BaseException as error:
            # supervision boundary: whatever one caller's function raises is that caller's alone
            condition = condition_of(error, self._path, self._last_good)
            if condition is not None:
                raise condition from error
            job.error = _settable(error)
        finally:
            tx.end()
        self._check_open(connection, job.name, job.error)
        if job.error is not None:
            connection.execute("ROLLBACK TO fn")
            tx.undo()
        else:
            job.callbacks = tx.callbacks
            job.topics = tx.topics
        connection.execute("RELEASE fn")

    def _run_jointly(
        self, jobs: Sequence[Job], joint: Joint, connection: sqlite3.Connection
    ) -> bool:
        """Do the work of `jobs` in one savepoint; False if nothing was done.

        Raises only what ends the whole batch.
        """
        tx = self._begin(connection)
        results: Sequence[Any] | None = None
        failure: BaseException | None = None
        connection.execute("SAVEPOINT fn")
        try:
            results = joint(tx, [job.item for job in jobs])
            if results is not None and len(results) != len(jobs):
                raise TypeError(f"{len(results)} results for {len(jobs)} functions")
        except BaseException as error:
            # supervision boundary: each function says by itself what is wrong with it
            condition = condition_of(error, self._path, self._last_good)
            if condition is not None:
                raise condition from error
            if not isinstance(error, AgentsupError | sqlite3.IntegrityError):
                _log.exception("%s can't be done jointly", jobs[0].name)
            failure = error
        finally:
            tx.end()
        self._check_open(connection, jobs[0].name, failure)
        if failure is not None or results is None:
            connection.execute("ROLLBACK TO fn")
            connection.execute("RELEASE fn")
            tx.undo()
            return False
        connection.execute("RELEASE fn")
        for job, result in zip(jobs, results, strict=True):
            job.result = result
        jobs[0].callbacks = tx.callbacks
        jobs[0].topics = tx.topics
        return True

    def _check_open(
        self, connection: sqlite3.Connection, name: str, error: BaseException | None
    ) -> None:
        """SQLite ends the transaction itself on some errors (full disk, ON CONFLICT ROLLBACK)."""
        if not connection.in_transaction:
            detail = f"in {name}" + (f": {error}" if error else "")
            raise unavailable(Trouble.BROKEN_BATCH, self._path, detail) from error


def _group(jobs: Sequence[Job], first: int) -> Sequence[Job]:
    """The jobs from `first` on that share its way to be done jointly."""
    joint = jobs[first].joint
    end = first + 1
    most = min(len(jobs), first + _JOINT_MOST)
    while end < most and jobs[end].joint is joint:
        end += 1
    return jobs[first:end]


def _settable(error: BaseException) -> BaseException:
    """`error`, or a stand-in for the one type that a future refuses."""
    if isinstance(error, StopIteration):
        stand_in = RuntimeError("a function in the writer raised StopIteration")
        stand_in.__cause__ = error
        return stand_in
    return error
