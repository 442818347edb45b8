"""The database: one writer with group commit, a few readers, and errors that callers can act on.

A transaction is one function. Functions that arrive during a commit go into the next one together;
a lone function is not delayed. ``write`` returns only after its commit is durable (P1). An error
goes to every caller it concerns and to no other.
"""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, Self, TypeVar, TypeVarTuple

from agentsup.kit.clock import Clock
from agentsup.kit.log import get_logger
from agentsup.kit.tasks import TaskOwner
from agentsup.model.errors import AgentsupError, Overloaded
from agentsup.store import backup, migrate
from agentsup.store.batch import BatchReport, BatchRunner, Job, WriteQueue
from agentsup.store.connection import connect_reader, connect_writer
from agentsup.store.failures import StoreFault, again, condition_of, corrupt, of_system, unavailable
from agentsup.store.identity import StoreRecord, describe
from agentsup.store.options import StoreOptions, StoreStats
from agentsup.store.reserve import DiskReserve
from agentsup.store.runner import Runner, RunnerDead, ThreadRunner
from agentsup.store.topics import Topics
from agentsup.store.transaction import Reader, Tx

T = TypeVar("T")
Args = TypeVarTuple("Args")
_log = get_logger(__name__)
_MOST_BACKUPS = 7


class Database:
    """The open store. Created by ``open``; used from one event loop."""

    def __init__(
        self,
        path: Path,
        *,
        clock: Clock,
        runner: Runner,
        options: StoreOptions,
        record: StoreRecord | None = None,
    ) -> None:
        """For ``open`` only: a database made directly has no connection yet."""
        self.path = path
        self._record = record
        self.options, self.stats = options, StoreStats()
        self.backups = path.parent / "backups"
        self._clock = clock
        self._runner = runner
        self._reserve = DiskReserve(path.with_name(path.name + "-reserve"), options.reserve_bytes)
        self._queue = WriteQueue(options)
        self._reads_open = 0
        self._wake = asyncio.Event()
        self._owner = TaskOwner("store")
        self._topics = Topics()
        self._pump: asyncio.Task[None] | None = None
        self._ended: AgentsupError | None = None
        self._is_unchecked = False
        self._check: asyncio.Task[None] | None = None

    # -- life ------------------------------------------------------------------------------------

    @classmethod
    async def open(
        cls,
        path: Path,
        *,
        clock: Clock,
        runner: Runner | None = None,
        migrations: Path | None = None,
        options: StoreOptions | None = None,
        record: StoreRecord | None = None,
    ) -> Self:
        """Open or create the database at ``path``, check it and bring its schema up to date.

        ``migrations`` is a directory of ``NNNN_name.sql`` files (default: those of this version).
        Backups lie in ``backups/`` beside the file. ``record`` is the store's identity outside the
        file; without one, a missing or older file is not noticed. Raises ``StoreUnavailable``,
        ``StoreCorrupt`` (with the last good backup), ``StoreLost`` or ``SchemaTooNew``; then
        nothing is left open.
        """
        options = options or StoreOptions()
        runner = runner or ThreadRunner(options.readers)
        database = cls(path, clock=clock, runner=runner, options=options, record=record)
        steps = migrate.packaged() if migrations is None else migrate.load(migrations)
        try:
            await database._start(steps)
        except BaseException as error:
            await runner.close()
            if isinstance(error, OSError):
                raise of_system(error, path, StoreFault.NOT_OPENED) from error
            condition = condition_of(error, path, database._last_good)
            if condition is not None:
                raise condition from error
            raise
        return database

    async def _start(self, steps: tuple[migrate.Migration, ...]) -> None:
        await self._runner.open_writer(self._connect_writer)
        identity = await self._runner.write(partial(self._prepare, steps))
        await self._runner.open_readers(self._connect_reader)
        batches = BatchRunner(
            self.path,
            identity,
            clock=self._clock,
            options=self.options,
            reserve=self._reserve,
            last_good=self._last_good,
        )
        self._pump = self._owner.spawn(self._write_batches(batches), name="store:writer")
        if self._is_unchecked:
            self._check = self._owner.spawn(self._check_late(), name="store:check")

    async def _check_late(self) -> None:
        """Check a large file while it is already in use; damage closes the store."""
        try:
            complaint = await self._runner.aside(self._connect_reader, migrate.findings)
        except sqlite3.DatabaseError as error:
            complaint = str(error)
        self._is_unchecked = bool(complaint)
        if complaint and self._ended is None:
            damage = corrupt(self.path, complaint, self._last_good())
            _log.critical(str(damage))
            self._give_up([], damage)
            self._wake.set()

    def _connect_writer(self) -> sqlite3.Connection:
        if self._record is not None:
            self._record.begin()
        return connect_writer(self.path, busy_timeout_ms=self.options.busy_timeout_ms)

    def _connect_reader(self) -> sqlite3.Connection:
        return connect_reader(self.path, busy_timeout_ms=self.options.busy_timeout_ms)

    def _prepare(
        self, steps: tuple[migrate.Migration, ...], connection: sqlite3.Connection
    ) -> tuple[int, int]:
        """Check, back up before a change of schema, migrate; returns device and inode."""
        version = migrate.refuse_unknown(connection, self.path, len(steps))
        if not migrate.is_clean(connection):
            if self.path.stat().st_size <= self.options.check_at_once_bytes:
                migrate.check(connection, self.path, self._last_good())
            else:
                self._is_unchecked = True
        if 0 < version < len(steps):
            self._copy(connection)
        migrate.migrate(connection, steps, now_ms=self._clock.now_ms)
        migrate.mark(connection, clean=False)
        if self._record is not None:
            self._record.opened(connection)
        self._reserve.allocate()
        stat = self.path.stat()
        return stat.st_dev, stat.st_ino

    async def close(self) -> None:
        """Write what is queued, mark the file as cleanly closed and close it; may be repeated.

        Later calls of ``write`` and ``read`` raise ``StoreUnavailable``. Waits for the disk: a
        caller with a time limit must set its own timeout.
        """
        if self._ended is None:
            self._ended = unavailable(StoreFault.CLOSED, self.path)
        self._wake.set()
        sequence: int | None = None
        try:
            if self._pump is not None:
                await asyncio.wait({self._pump})
                self._pump = None
                sequence = await self._mark_clean()
                await self._owner.close(timeout_s=1.0)
        finally:
            await self._runner.close()
        if self._record is not None:
            await asyncio.to_thread(self._record.closed, sequence)

    async def _mark_clean(self) -> int | None:
        """Mark the file as cleanly closed; returns its last event number, None on failure."""
        if self._ended is None or self._ended.facts.get("reason") != StoreFault.CLOSED:
            return None
        if self._is_unchecked:
            return None  # the next start must check it
        try:
            return await self._runner.write(self._retire)
        except (sqlite3.Error, RunnerDead) as error:
            _log.warning(f"{self.path} could not be marked as closed in order: {error}")
            return None

    def _retire(self, connection: sqlite3.Connection) -> int:
        self._reserve.free()  # so that there is room for the mark and the record
        migrate.mark(connection, clean=True)
        return describe(connection).sequence

    def _last_good(self) -> Path | None:
        return backup.latest(self.backups)

    # -- writing ---------------------------------------------------------------------------------

    async def write(
        self,
        fn: Callable[[Tx, *Args], T],
        *args: *Args,
        name: str = "",
        urgent: bool = False,
        closing: bool = False,
    ) -> T:
        """Run ``fn(tx, *args)`` in the writer and return its result once the commit is durable.

        ``fn`` is a plain function; if it raises, only its change is rolled back and the
        exception is raised here. ``name`` is used in logs. ``urgent`` puts it before all other
        queued writes. ``closing`` marks a write that ends work (a completion, a release): it may
        use the disk reserve when the disk is full; urgent writes may too.

        If the caller is cancelled before the batch began, ``fn`` never runs; if later, the commit
        decides, and ``Tx.after_commit`` callbacks still run. Raises ``StoreUnavailable`` (fact
        ``reason``) if nothing could be stored and ``Overloaded`` if the queue is full.
        """
        if self._ended is not None:
            raise again(self._ended)
        future: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        step = partial(_called, fn, args) if args else fn
        try:
            self._queue.add(
                Job(step, name or _name_of(fn), future, urgent or closing), urgent=urgent
            )
        except Overloaded:
            self.stats.refused += 1
            raise
        self._wake.set()
        return await future

    async def _write_batches(self, batches: BatchRunner) -> None:
        """The writer's task: batch after batch until the store is closed and the queue is empty."""
        jobs: list[Job] = []
        try:
            while True:
                if self._ended is None:
                    await self._queue.gather()
                jobs = self._queue.take()
                if jobs:
                    report = await self._runner.write(partial(batches.run, jobs))
                    self._queue.was_run(jobs, report.ran)
                    self._settle(jobs, report)
                elif self._ended is not None:
                    return
                else:
                    self._wake.clear()
                    await self._wake.wait()
        except RunnerDead as dead:
            self._give_up(jobs, dead)
        except BaseException as error:
            # supervision boundary: if the writer ends, no caller may wait for ever
            stopped = unavailable(StoreFault.STOPPED, self.path, type(error).__name__)
            stopped.__cause__ = error
            self._give_up(jobs, stopped)
            raise

    def _settle(self, jobs: list[Job], report: BatchReport) -> None:
        """Give every caller of the batch its result; in the loop's thread."""
        self.stats.is_disk_low = not report.is_reserve_there
        self._note_slow(report.slow)
        if report.failure is not None:
            self.stats.failed_commits += 1
            _log.error(f"nothing was stored for {len(jobs)} callers: {report.failure}")
            for job in jobs:
                job.answer(again(report.failure))
            return
        self.stats.commits += 1
        for job in jobs[: report.ran]:
            self._run_callbacks(job)
            job.answer(job.error)
            self.stats.functions += job.error is None
            self.stats.rolled_back += job.error is not None
        self._topics.announce(job.topics for job in jobs[: report.ran])

    def _run_callbacks(self, job: Job) -> None:
        for callback in job.callbacks:
            try:
                callback()
            except Exception:  # noqa: BLE001
                # supervision boundary: the change is durable, so its caller must get the result
                _log.exception(f"a callback after the commit of {job.name} failed")

    def _give_up(self, jobs: list[Job], error: AgentsupError) -> None:
        self._ended = error
        for job in (*jobs, *self._queue.clear()):
            job.answer(again(error))

    def listen(self, topic: str, callback: Callable[[], None]) -> Callable[[], None]:
        """Call ``callback`` once after each batch in which a function touched ``topic``.

        It runs in the loop's thread after the commit is durable and must not block. Returns a
        callable that stops listening.
        """
        return self._topics.listen(topic, callback)

    def expect(self, topic: str) -> asyncio.Future[Any]:
        """The value with which a commit touches ``topic`` next. Cancel it to expect no more."""
        return self._topics.expect(topic)

    # -- reading ---------------------------------------------------------------------------------

    async def read(self, fn: Callable[[Reader, *Args], T], *args: *Args, name: str = "") -> T:
        """Run ``fn(reader, *args)`` on a read-only connection over one snapshot.

        It sees every commit that was confirmed before the call. Raises ``StoreUnavailable`` if the
        file can't be read and ``Overloaded`` if too many reads wait.
        """
        if self._ended is not None:
            raise again(self._ended)
        if self._reads_open >= self.options.read_queue_max:
            self.stats.refused += 1
            raise Overloaded(
                f"{self._reads_open} reads are waiting for the database, the most allowed; "
                "try again later.",
                queue="store.read",
                size=self._reads_open,
                limit=self.options.read_queue_max,
            )
        self._reads_open += 1
        try:
            result, elapsed_ms = await self._runner.read(partial(self._read_one, fn, args))
        except sqlite3.Error as error:
            condition = condition_of(error, self.path, self._last_good)
            if condition is None or condition.facts.get("reason") == StoreFault.READ_ONLY:
                raise  # the function's own error, such as a write in a read
            raise condition from error
        finally:
            self._reads_open -= 1
        self.stats.reads += 1
        if elapsed_ms > self.options.slow_ms:
            self._note_slow([(name or _name_of(fn), elapsed_ms)])
        return result

    def _read_one(
        self, fn: Callable[[Reader, *Args], T], args: tuple[*Args], connection: sqlite3.Connection
    ) -> tuple[T, float]:
        began_at = self._clock.monotonic()
        reader = Reader(connection)
        connection.execute("BEGIN")
        try:
            result = fn(reader, *args)
        finally:
            reader.end()
            if connection.in_transaction:
                connection.execute("ROLLBACK")
        return result, (self._clock.monotonic() - began_at) * 1000

    # -- backups and record ----------------------------------------------------------------------

    async def back_up(self, keep: int = _MOST_BACKUPS) -> Path:
        """Write a checked backup, remove all but the newest ``keep``, and return its path.

        Runs beside reads and writes. Raises ``StoreUnavailable`` or ``StoreCorrupt``; then the
        older backups stay.
        """
        return await self._aside(partial(self._copy, keep=keep))

    async def record_last_event(self) -> None:
        """Record the last event number, if there is a record. Raises ``StoreUnavailable``."""
        if self._record is not None:
            await self._aside(self._record.note)

    async def _aside(self, work: Callable[[sqlite3.Connection], T]) -> T:
        if self._ended is not None:
            raise again(self._ended)
        try:
            return await self._runner.aside(self._connect_reader, work)
        except OSError as error:
            raise of_system(error, self.path) from error
        except sqlite3.Error as error:
            raise condition_of(error, self.path, self._last_good) or error from error

    def _copy(self, connection: sqlite3.Connection, *, keep: int = _MOST_BACKUPS) -> Path:
        at = self._clock.now_ms()
        return backup.copy_into(connection, self.path, self.backups, at_ms=at, keep=keep)

    def _note_slow(self, slow: list[tuple[str, float]]) -> None:
        for name, elapsed_ms in slow:
            self.stats.slow_functions += 1
            _log.warning(f"{name} held a database connection for {elapsed_ms:.0f} ms")


def _called(fn: Callable[[Tx, *Args], T], args: tuple[*Args], tx: Tx) -> T:
    return fn(tx, *args)


def _name_of(fn: Callable[..., Any]) -> str:
    """A readable name of ``fn`` for the log."""
    return str(getattr(fn, "__qualname__", type(fn).__name__))
