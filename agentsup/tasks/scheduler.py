"""The scheduler: sees that each slot of each schedule is run once or recorded as skipped.

What becomes of the slots of one task that have come is a single transaction, and so is moving its
next time on: a kill leaves both or neither. It sleeps until the earliest next time and is woken by
the topic ``schedules``; because the wall clock may jump and a machine may sleep, it also looks at
it every half a minute.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from agentsup.kit import faults
from agentsup.kit.clock import Clock
from agentsup.kit.tasks import TaskOwner
from agentsup.model.errors import AgentsupError, Overloaded, StoreUnavailable
from agentsup.model.task import WORKING, Overlap, Schedule
from agentsup.store.database import Database, Tx
from agentsup.store.failures import Trouble
from agentsup.tasks import rows, schedules, skips, slots
from agentsup.tasks.schedules import SlotStarter

__all__ = ["Scheduler", "SlotStarter", "settle_tx"]

_log = logging.getLogger(__name__)

NET_S = 30.0
"""A look at the wall clock at least this often; shorter than the grace of a slot, so that one that
comes while the machine sleeps is still its own."""
BEHIND_MAX = 100
"""Runs of one task that may wait behind one another, where that is what was asked for."""
BATCH = 64
"""Tasks settled side by side; they share commits."""
PUT_OFF_S = 60.0
STORE_PAUSE_S = 5.0
BACK_MS = 2_000
_CLOSE_S = 1.0
_OVER = frozenset({Trouble.CLOSED.value, Trouble.STOPPED.value})


class _SlotRefused(AgentsupError):
    """A slot's run was refused; its transaction is undone and done again without it."""

    code = "slot_refused"


@dataclass(frozen=True, slots=True)
class _Refusal:
    """From which slot on runs are refused, and why."""

    from_slot: int
    why: str


# -- one task's slots, in one transaction ----------------------------------------------------------


def settle_tx(
    tx: Tx, starter: SlotStarter, task_id: str, *, now: int, refusal: _Refusal | None = None
) -> None:
    """Run or skip every slot of the task up to ``now`` (wall ms), and move its next time on.

    Raises ``_SlotRefused`` if a run is refused, so that nothing half done of it stays.
    """
    schedule = schedules.get(tx, task_id)
    if schedule is None or schedule.is_paused:
        return
    due = slots.due(schedule, now)
    if due.last_at is None:
        return
    # Only after a clock was put back hours can slots come that were decided about already.
    known = schedules.decided(tx, task_id, schedule.next_at or 0, due.last_at)
    skip = partial(schedules.skip_tx, tx, schedule, starter=starter, at=now)
    if due.range_at is not None and due.range_at not in known:
        skip(due.range_at, skips.because("many"), until=due.range_end)
    for slot in due.skipped_at:
        if slot not in known:
            skip(slot, _why_missed(schedule, slot, now))
    for slot in due.run_at:
        if slot not in known:
            why = _start_tx(tx, starter, schedule, slot, due.is_made_up, now, refusal)
            if why:
                skip(slot, why)
    schedules.advance_tx(tx, task_id, next_at=due.next_at, last_at=due.last_at)
    tx.after_commit(partial(faults.point, "schedule.after_commit"))
    faults.point("schedule.before_commit")


def _start_tx(
    tx: Tx,
    starter: SlotStarter,
    schedule: Schedule,
    slot: int,
    is_made_up: bool,
    now: int,
    refusal: _Refusal | None,
) -> str:
    """Start a slot's run, or return why it is let pass."""
    if refusal is not None and slot >= refusal.from_slot:
        return refusal.why
    # What is made up for was asked for one by one, so it waits its turn.
    if schedule.overlap is Overlap.SKIP and not is_made_up:
        state = tx.scalar("SELECT state FROM tasks WHERE task_id = ?", (schedule.task_id,))
        if state in WORKING:
            return skips.because("overlap")
    elif len(rows.open_runs(tx, schedule.task_id)) >= BEHIND_MAX:
        # Its agent has to have room for what people say.
        return skips.because("behind", count=BEHIND_MAX)
    try:
        starter.start_slot_tx(tx, schedule.task_id, slot, at=now)
    except StoreUnavailable:
        raise
    except AgentsupError as error:
        raise _SlotRefused(error.message, slot=slot) from error
    return ""


def _why_missed(schedule: Schedule, slot: int, now: int) -> str:
    later = slots.next_after(schedule, slot)
    if later is not None and later <= now:
        return skips.because("later")
    return skips.because("late", seconds=(now - slot) // 1000)


# -- the service -----------------------------------------------------------------------------------


class Scheduler:
    """Keeps all schedules. ``run`` is the body of a supervised child."""

    def __init__(self, database: Database, clock: Clock, starter: SlotStarter) -> None:
        """``starter`` makes the runs."""
        self._database = database
        self._clock = clock
        self._starter = starter
        self._wake = asyncio.Event()
        self._put_off: dict[str, float] = {}
        self._looked: tuple[int, float] | None = None

    async def run(self, ready: Callable[[], None], draining: asyncio.Event) -> None:
        """Keep schedules until ``draining`` is set; slots that come later wait for the next start.

        Raises ``StoreUnavailable`` when the store was closed under it; other troubles of the
        store are waited out.
        """
        unlisten = self._database.listen(schedules.TOPIC, self._wake.set)
        watching = TaskOwner("scheduler")
        watching.spawn(self._watch_drain(draining), name="drain:scheduler")
        self._looked = None
        try:
            ready()
            while not draining.is_set():
                self._wake.clear()
                await self._pause(await self._round(draining))
        finally:
            unlisten()
            await watching.close(_CLOSE_S)

    async def _watch_drain(self, draining: asyncio.Event) -> None:
        await draining.wait()
        self._wake.set()

    async def _pause(self, pause_s: float) -> None:
        try:
            async with asyncio.timeout(pause_s):
                await self._wake.wait()
        except TimeoutError:
            return

    async def _round(self, draining: asyncio.Event) -> float:
        """Settle what is due; returns after how many seconds to look again."""
        try:
            await self._heed_clock()
            while True:
                now = self._clock.now_ms()
                due, next_at = await self._look(now)
                if not due or draining.is_set():
                    break
                await self._settle_all(due, now)
        except (StoreUnavailable, Overloaded) as error:
            if error.facts.get("reason") in _OVER:
                raise
            _log.warning("schedules wait for the store: %s", error)
            return STORE_PAUSE_S
        if next_at is None:
            return NET_S
        return min(NET_S, max(0.001, (next_at - self._clock.now_ms()) / 1000))

    async def _heed_clock(self) -> None:
        """At the start, and when the wall clock went back, free schedules from a wrong future."""
        now, monotonic = self._clock.now_ms(), self._clock.monotonic()
        looked = self._looked
        if looked is None or now - looked[0] < (monotonic - looked[1]) * 1000 - BACK_MS:
            rewound = await self._database.write(
                lambda tx: schedules.rewind_tx(tx, now), name="schedule.rewind"
            )
            if rewound:
                _log.warning(
                    "the clock was put back by hours: %d schedules go on from now: %s",
                    len(rewound),
                    ", ".join(rewound[:10]),
                )
        self._looked = (now, monotonic)

    async def _look(self, now: int) -> tuple[list[str], int | None]:
        """The tasks to settle now, at most a batch, and the earliest time after now."""
        monotonic = self._clock.monotonic()
        self._put_off = {task: at for task, at in self._put_off.items() if at > monotonic}
        limit = BATCH + len(self._put_off) + 1
        found = await self._database.read(
            lambda reader: schedules.heads(reader, limit), name="schedule.heads"
        )
        found = [(task_id, at) for task_id, at in found if task_id not in self._put_off]
        due = [task_id for task_id, at in found if at <= now]
        return due[:BATCH], next((at for _, at in found if at > now), None)

    async def _settle_all(self, due: list[str], now: int) -> None:
        async with asyncio.TaskGroup() as group:
            settling = [
                group.create_task(self._settle(task_id, now), name=f"slot:{task_id}")
                for task_id in due
            ]
        for task in settling:
            trouble = task.result()
            if trouble is not None:
                raise trouble

    async def _settle(self, task_id: str, now: int) -> StoreUnavailable | Overloaded | None:
        """Settle one task's slots; returns what kept the store from it. One that fails keeps
        nobody else from their times."""
        refusal: _Refusal | None = None
        while True:
            work = partial(
                settle_tx, starter=self._starter, task_id=task_id, now=now, refusal=refusal
            )
            try:
                await self._database.write(work, name="schedule.settle")
            except _SlotRefused as refused:
                # Each time an earlier slot is refused than before, so this ends.
                refusal = _Refusal(refused.facts["slot"], refused.message)
            except (StoreUnavailable, Overloaded) as trouble:
                return trouble
            except Exception as error:  # noqa: BLE001
                # supervision boundary: a mistake over one task must not stop the others' times
                _log.exception("the times of task %s could not be kept", task_id)
                if refusal is not None and refusal.from_slot == 0:
                    self._put_off[task_id] = self._clock.monotonic() + PUT_OFF_S
                    return None
                refusal = _Refusal(0, f"it could not be started: {type(error).__name__}")
            else:
                return None
