"""The scheduler: each occurrence of each schedule is run once or recorded as skipped.

One transaction decides about all occurrences of a task that have come, and advances its next time:
a kill leaves both or neither. The scheduler sleeps until the earliest next time, and is woken by
the topic ``schedules``. Because the wall clock may jump and a machine may sleep, it also reads the
clock every half a minute.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Container
from dataclasses import dataclass
from functools import partial

from agentsup.kit import faults
from agentsup.kit.clock import Clock
from agentsup.kit.log import get_logger
from agentsup.kit.tasks import TaskOwner, call_after, is_set_within
from agentsup.model.errors import AgentsupError, Overloaded, RightsLost, StoreUnavailable
from agentsup.model.task import WORKING, OccurrenceSkipReason, Overlap, Schedule, SkippedOccurrence
from agentsup.store import Database, Reader, Tx, is_over
from agentsup.tasks import occurrences, rows, schedules
from agentsup.tasks.starting import Starter

_log = get_logger(__name__)

NET_S = 30.0
"""The longest pause between reads of the wall clock. It is shorter than the grace of an occurrence, so
that an occurrence that comes while the machine sleeps is not missed because of the pause."""
BEHIND_MAX = 100
"""The most open runs of one task, if its schedule lets runs queue."""
BATCH = 64
"""Tasks settled concurrently; they share commits."""
PUT_OFF_S = 60.0
STORE_PAUSE_S = 5.0
BACK_MS = 2_000
FAILURES_MAX = 3
"""Runs of a schedule that failed one after the other for want of something that only a person can
mend, such as a key. Then it is paused."""
_LATE_MS = 60_000
"""For how long after its end the end of a run is looked for. It is twice the longest time between
two reads."""
_CLOSE_S = 1.0


@dataclass(frozen=True, slots=True)
class _Refusal:
    """The first occurrence from which on runs are refused, and why."""

    from_occurrence: int
    why: SkippedOccurrence
    pauses: bool = False
    """Later occurrences would be refused too until a person acts, so the schedule is paused."""


class _OccurrenceRefused(AgentsupError):
    """The run of an occurrence was refused; its transaction is rolled back and repeated without it."""

    code = "occurrence_refused"

    def __init__(self, occurrence: int, error: AgentsupError) -> None:
        super().__init__(error.message)
        why = SkippedOccurrence(OccurrenceSkipReason.REFUSED, {"text": error.message})
        if isinstance(error, RightsLost):
            facts = {"rights": error.facts["reason"], "who": error.facts["who"]}
            why = SkippedOccurrence(OccurrenceSkipReason.RIGHTS, facts)
        self.refusal = _Refusal(occurrence, why, pauses=isinstance(error, RightsLost))


# -- one task's occurrences, in one transaction ------------------------------------------------


def settle_tx(
    tx: Tx, starter: Starter, task_id: str, *, now: int, refusal: _Refusal | None = None
) -> None:
    """Run or skip every occurrence of the task up to ``now`` (wall ms), and advance its next time.

    Raises ``_OccurrenceRefused`` if a run is refused, so that the whole transaction is rolled back.
    """
    schedule = schedules.get(tx, task_id)
    if schedule is None or schedule.is_paused:
        return
    due = occurrences.due(schedule, now)
    if due.last_at is None:
        return
    # Occurrences that were decided before can come again only after the clock was put back by hours.
    known = schedules.decided(tx, task_id, schedule.next_at or 0, due.last_at)
    skip = partial(schedules.skip_tx, tx, schedule, starter=starter, at=now)
    if due.range_at is not None and due.range_at not in known:
        skip(due.range_at, SkippedOccurrence(OccurrenceSkipReason.MANY), until=due.range_end)
    for occurrence in due.skipped_at:
        if occurrence not in known:
            skip(occurrence, _why_missed(schedule, occurrence, now))
    for occurrence in due.run_at:
        if occurrence not in known:
            why = _start_tx(tx, starter, schedule, occurrence, due.is_made_up, refusal)
            if why is not None:
                skip(occurrence, why)
    schedules.advance_tx(tx, task_id, next_at=due.next_at, last_at=due.last_at)
    if refusal is not None and refusal.pauses and due.next_at is not None:
        schedules.pause_tx(tx, task_id, starter, is_paused=True, at=now)
    tx.after_commit(partial(faults.point, "schedule.after_commit"))
    faults.point("schedule.before_commit")


def _start_tx(
    tx: Tx,
    starter: Starter,
    schedule: Schedule,
    occurrence: int,
    is_made_up: bool,
    refusal: _Refusal | None,
) -> SkippedOccurrence | None:
    """Start the run of an occurrence, or return why it is passed over."""
    if refusal is not None and occurrence >= refusal.from_occurrence:
        return refusal.why
    # Missed occurrences that are made up are each wanted, so their runs are queued.
    if schedule.overlap is Overlap.SKIP and not is_made_up:
        state = tx.scalar("SELECT state FROM tasks WHERE task_id = ?", (schedule.task_id,))
        if state in WORKING:
            return SkippedOccurrence(OccurrenceSkipReason.OVERLAP)
    elif len(rows.open_runs(tx, schedule.task_id)) >= BEHIND_MAX:
        # The agent's queue must keep room for people's messages.
        return SkippedOccurrence(OccurrenceSkipReason.BEHIND, {"count": BEHIND_MAX})
    try:
        starter.start_occurrence_tx(tx, schedule.task_id, occurrence)
    except StoreUnavailable:
        raise
    except AgentsupError as error:
        raise _OccurrenceRefused(occurrence, error) from error
    return None


def _why_missed(schedule: Schedule, occurrence: int, now: int) -> SkippedOccurrence:
    later = occurrences.next_after(schedule, occurrence)
    if later is not None and later <= now:
        return SkippedOccurrence(OccurrenceSkipReason.LATER)
    return SkippedOccurrence(OccurrenceSkipReason.LATE, {"seconds": (now - occurrence) // 1000})


@dataclass(frozen=True, slots=True)
class _Hopeless:
    """A schedule whose last runs failed for a reason that stays until a person acts."""

    task_id: str
    run_id: str
    why: SkippedOccurrence


def _hopeless(reader: Reader, since_at: int, lasting: Container[str]) -> list[_Hopeless]:
    """The schedules that had a run fail since then, the last of several for a ``lasting`` reason."""
    found = []
    for task_id in schedules.failed_since(reader, since_at):
        past = [run for run in rows.runs_of(reader, task_id) if not run.skipped][:FAILURES_MAX]
        if len(past) == FAILURES_MAX and all(run.error_code in lasting for run in past):
            facts = {"count": FAILURES_MAX, "text": past[0].error_text}
            why = SkippedOccurrence(OccurrenceSkipReason.SETUP, facts)
            found.append(_Hopeless(task_id, past[0].run_id, why))
    return found


# -- the service -----------------------------------------------------------------------------------


class Scheduler:
    """Runs all schedules. ``run`` is the body of a supervised child."""

    def __init__(
        self,
        database: Database,
        clock: Clock,
        starter: Starter,
        tell: Callable[[str, SkippedOccurrence], Awaitable[None]],
        lasting: Container[str],
    ) -> None:
        """``starter`` makes the runs.

        ``tell(task_id, why)`` notifies the operators that a schedule is paused; it may raise
        ``StoreUnavailable`` and ``Overloaded``. ``lasting`` are the error codes of runs after which
        the next one fails too, until a person acts.
        """
        self._lasting = lasting
        self._began_at: int | None = None
        """The first look of this life (wall ms). Runs that failed before it pause no schedule: the
        cause may be repaired."""
        self._given_up: set[str] = set()
        self._tell = tell
        self._database = database
        self._clock = clock
        self._starter = starter
        self._wake = asyncio.Event()
        self._put_off: dict[str, float] = {}
        self._looked: tuple[int, float] | None = None

    async def run(self, ready: Callable[[], None], draining: asyncio.Event) -> None:
        """Run schedules until ``draining`` is set; occurrences that come later wait for the next start.

        Raises ``StoreUnavailable`` if the store was closed or stopped; other faults of the store
        are waited out.
        """
        unlisten = self._database.listen(schedules.TOPIC, self._wake.set)
        watching = TaskOwner("scheduler")
        watching.spawn(call_after(draining, self._wake.set), name="drain:scheduler")
        self._looked = None
        try:
            ready()
            while not draining.is_set():
                self._wake.clear()
                await is_set_within(self._wake, await self._round(draining))
        finally:
            unlisten()
            await watching.close(_CLOSE_S)

    async def _round(self, draining: asyncio.Event) -> float:
        """Settle all due tasks; return the pause (s) before the next round."""
        try:
            await self._heed_clock()
            while True:
                now = self._clock.now_ms()
                due, next_at, hopeless = await self._look(now)
                for each in hopeless:
                    await self._give_up(each)
                if not due or draining.is_set():
                    break
                await self._settle_all(due, now)
        except (StoreUnavailable, Overloaded) as error:
            if is_over(error):
                raise
            _log.warning(f"schedules wait for the store: {error}")
            return STORE_PAUSE_S
        if next_at is None:
            return NET_S
        return min(NET_S, max(0.001, (next_at - self._clock.now_ms()) / 1000))

    async def _heed_clock(self) -> None:
        """At the start, and when the wall clock went back, correct next times in a wrong future."""
        now, monotonic = self._clock.now_ms(), self._clock.monotonic()
        looked = self._looked
        if looked is None or now - looked[0] < (monotonic - looked[1]) * 1000 - BACK_MS:
            rewound = await self._database.write(schedules.rewind_tx, now, name="schedule.rewind")
            if rewound:
                _log.warning(
                    f"the clock was put back by hours: {len(rewound)} schedules go on from now: "
                    f"{', '.join(rewound[:10])}"
                )
        self._looked = (now, monotonic)

    async def _look(self, now: int) -> tuple[list[str], int | None, list[_Hopeless]]:
        """The tasks to settle now, at most ``BATCH``, the earliest next time after now, and the
        schedules to pause."""
        monotonic = self._clock.monotonic()
        self._put_off = {task: at for task, at in self._put_off.items() if at > monotonic}
        limit = BATCH + len(self._put_off) + 1
        if self._began_at is None:
            self._began_at = now
        since_at = max(self._began_at, now - _LATE_MS)

        def read(reader: Reader) -> tuple[list[tuple[str, int]], list[_Hopeless]]:
            heads = schedules.heads(reader, limit)
            return heads, _hopeless(reader, since_at, self._lasting)

        found, hopeless = await self._database.read(read, name="schedule.heads")
        self._given_up &= {each.run_id for each in hopeless}
        found = [(task_id, at) for task_id, at in found if task_id not in self._put_off]
        due = [task_id for task_id, at in found if at <= now]
        return due[:BATCH], next((at for _, at in found if at > now), None), hopeless

    async def _give_up(self, hopeless: _Hopeless) -> None:
        """Pause a schedule whose runs fail until a person acts, and say so."""
        if hopeless.run_id in self._given_up:
            return  # a person let it go on since
        # Before the pause: after a crash in between, the notice comes twice, not never.
        await self._tell(hopeless.task_id, hopeless.why)
        pause = partial(
            schedules.pause_tx,
            task_id=hopeless.task_id,
            starter=self._starter,
            is_paused=True,
            at=self._clock.now_ms(),
        )
        await self._database.write(pause, name="schedule.give_up")
        self._given_up.add(hopeless.run_id)

    async def _settle_all(self, due: list[str], now: int) -> None:
        async with asyncio.TaskGroup() as group:
            settling = [
                group.create_task(self._settle(task_id, now), name=f"schedule:{task_id}")
                for task_id in due
            ]
        for task in settling:
            failure = task.result()
            if failure is not None:
                raise failure

    async def _settle(self, task_id: str, now: int) -> StoreUnavailable | Overloaded | None:
        """Settle one task's occurrences; return the error if the store could not write.

        Any other failure is limited to this task.
        """
        refusal: _Refusal | None = None
        while True:
            work = partial(
                settle_tx, starter=self._starter, task_id=task_id, now=now, refusal=refusal
            )
            try:
                if refusal is not None and refusal.pauses:
                    # Before the pause: after a crash in between, the notice comes twice, not never.
                    await self._tell(task_id, refusal.why)
                await self._database.write(work, name="schedule.settle")
            except _OccurrenceRefused as refused:
                # Each time the refused occurrence is earlier than the last one, so this loop ends.
                refusal = refused.refusal
            except (StoreUnavailable, Overloaded) as failure:
                return failure
            except Exception as error:  # noqa: BLE001
                # supervision boundary: a mistake over one task must not stop the others' times
                _log.exception(f"the times of task {task_id} could not be kept")
                if refusal is not None and refusal.from_occurrence == 0:
                    self._put_off[task_id] = self._clock.monotonic() + PUT_OFF_S
                    return None
                text = f"it could not be started: {type(error).__name__}"
                refusal = _Refusal(
                    0, SkippedOccurrence(OccurrenceSkipReason.REFUSED, {"text": text})
                )
            else:
                return None
