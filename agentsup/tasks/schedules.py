"""Schedules as rows: written with their tasks, moved on by the scheduler.

Whatever makes a time come earlier or not at all touches the topic ``schedules``; the scheduler
wakes by it. A paused schedule and one that has ended have no next time.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Protocol

from agentsup.model.errors import Conflict, NotFound
from agentsup.model.event import EventType
from agentsup.model.principal import Principal
from agentsup.model.task import Misfire, Overlap, Run, Schedule
from agentsup.store import events
from agentsup.store.database import Reader, Tx
from agentsup.tasks import skips, slots
from agentsup.tasks.slots import Parsed

__all__ = [
    "TOPIC",
    "SlotStarter",
    "add_tx",
    "advance_tx",
    "change_tx",
    "count_of",
    "decided",
    "end_tx",
    "get",
    "heads",
    "pause_tx",
    "rewind_tx",
    "skip_tx",
]

TOPIC = "schedules"


class SlotStarter(Protocol):
    """Who has the tasks: makes a run of a slot, or a row that says why there is none.

    At most one row of ``runs`` has a task's slot. Both are called inside a transaction.
    """

    def start_slot_tx(self, tx: Tx, task_id: str, slot_at: int, *, at: int) -> Run | None:
        """Queue a run for the slot, at ``at`` (wall ms). None: the slot had its row already.

        Raises any ``AgentsupError``; nothing of what was done by then stands, and the slot is
        recorded as skipped with its message.
        """
        ...

    def skip_slot_tx(self, tx: Tx, task_id: str, slot_at: int, why: str, *, at: int) -> None:
        """Write the row that says why the slot was let pass. The event is written by the caller."""
        ...


# -- reading ---------------------------------------------------------------------------------------


def get(reader: Reader, task_id: str) -> Schedule | None:
    """The schedule of a task, or None."""
    row = reader.one("SELECT * FROM schedules WHERE task_id = ?", (task_id,))
    return None if row is None else _of(row)  # type: ignore[arg-type]  # Row is a mapping in all but name


def heads(reader: Reader, limit: int) -> list[tuple[str, int]]:
    """Task and next time of the schedules that come first, at most ``limit``."""
    rows = reader.all(
        "SELECT task_id, next_at FROM schedules WHERE next_at IS NOT NULL AND is_paused = 0"
        " ORDER BY next_at LIMIT ?",
        (limit,),
    )
    return [(row["task_id"], row["next_at"]) for row in rows]


def count_of(reader: Reader, owner: Principal) -> int:
    """How many schedules of an owner's tasks have a next time. Walks those that have one."""
    found = reader.scalar(
        "SELECT count(*) FROM schedules s CROSS JOIN tasks t ON t.task_id = s.task_id"
        " WHERE s.next_at IS NOT NULL AND s.is_paused = 0 AND t.owner_kind = ? AND t.owner_id = ?",
        (owner.kind.value, owner.subject),
    )
    return int(found or 0)


def decided(reader: Reader, task_id: str, first: int, last: int) -> frozenset[int]:
    """The slots between ``first`` and ``last``, both included, that were run or recorded."""
    rows = reader.all(
        "SELECT slot_at FROM runs WHERE task_id = ? AND slot_at BETWEEN ? AND ?",
        (task_id, first, last),
    )
    return frozenset(row["slot_at"] for row in rows)


# -- writing ---------------------------------------------------------------------------------------


def add_tx(tx: Tx, task_id: str, parsed: Parsed) -> Schedule:
    """Give a task, which is written already, its schedule."""
    tx.execute(
        "INSERT INTO schedules (task_id, kind, spec, zone, misfire, overlap, anchor_at, next_at)"
        " VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
        (
            task_id,
            parsed.kind,
            parsed.spec,
            parsed.zone,
            parsed.misfire.value,
            parsed.overlap.value,
            parsed.anchor_at,
            parsed.next_at,
        ),
    )
    tx.touch(TOPIC)
    return parsed.of(task_id)


def advance_tx(tx: Tx, task_id: str, *, next_at: int | None, last_at: int) -> None:
    """All slots up to ``last_at`` are decided about. Only the scheduler does that, so nobody is
    woken by it."""
    tx.execute(
        "UPDATE schedules SET next_at = ?, last_at = max(coalesce(last_at, ?2), ?2)"
        " WHERE task_id = ?3",
        (next_at, last_at, task_id),
    )


def pause_tx(tx: Tx, task_id: str, starter: SlotStarter, *, is_paused: bool, at: int) -> Schedule:
    """Pause a schedule, or let it go on with the first time after ``at`` (wall ms); harmless when
    it is so already.

    Times that come while it is paused are none of its slots. One that had come before, and that
    nobody had looked at yet, is recorded as skipped. Raises ``NotFound``, and ``Conflict`` for one
    that has ended.
    """
    schedule = get(tx, task_id)
    if schedule is None:
        raise NotFound(f"task {task_id} has no schedule", task_id=task_id)
    if schedule.next_at is None and not schedule.is_paused:
        raise Conflict(f"the schedule of task {task_id} has ended", task_id=task_id)
    if schedule.is_paused != is_paused:
        if is_paused:
            _give_up_tx(tx, schedule, starter, skips.because("paused"), at=at)
            next_at = None
        else:
            if slots.is_rewound(schedule, at):
                tx.execute("UPDATE schedules SET last_at = NULL WHERE task_id = ?", (task_id,))
                schedule = replace(schedule, last_at=None)
            next_at = slots.next_after(schedule, max(at, schedule.last_at or 0))
        tx.execute(
            "UPDATE schedules SET is_paused = ?, next_at = ? WHERE task_id = ?",
            (is_paused, next_at, task_id),
        )
        tx.touch(TOPIC)
    found = get(tx, task_id)
    assert found is not None
    return found


def end_tx(tx: Tx, task_id: str, starter: SlotStarter, why: str, *, at: int) -> bool:
    """Let a schedule have no further times; False if it had none. A time that had come and that
    nobody had looked at yet is recorded as skipped because of ``why``."""
    schedule = get(tx, task_id)
    if schedule is None or (schedule.next_at is None and not schedule.is_paused):
        return False
    _give_up_tx(tx, schedule, starter, why, at=at)
    tx.execute("UPDATE schedules SET next_at = NULL, is_paused = 0 WHERE task_id = ?", (task_id,))
    tx.touch(TOPIC)
    return True


def change_tx(
    tx: Tx, task_id: str, parsed: Parsed, starter: SlotStarter, why: str, *, at: int
) -> bool:
    """Give a schedule other times from now on; whether it had ended and goes on anew by that.

    A time that had come and that nobody had looked at yet is recorded as skipped because of
    ``why``. Raises ``NotFound``.
    """
    is_anew = not end_tx(tx, task_id, starter, why, at=at)
    changed = tx.execute(
        "UPDATE schedules SET kind = ?, spec = ?, zone = ?, misfire = ?, overlap = ?,"
        " anchor_at = ?, next_at = ?, is_paused = 0 WHERE task_id = ?",
        (
            parsed.kind,
            parsed.spec,
            parsed.zone,
            parsed.misfire.value,
            parsed.overlap.value,
            parsed.anchor_at,
            parsed.next_at,
            task_id,
        ),
    ).rowcount
    if not changed:
        raise NotFound(f"task {task_id} has no schedule", task_id=task_id)
    tx.touch(TOPIC)
    return is_anew


def _give_up_tx(tx: Tx, schedule: Schedule, starter: SlotStarter, why: str, *, at: int) -> None:
    due = slots.due(schedule, at)
    if due.last_at is not None:
        known = decided(tx, schedule.task_id, schedule.next_at or 0, due.last_at)
        if due.range_at is not None and due.range_at not in known:
            skip_tx(tx, schedule, due.range_at, why, starter, at=at, until=due.range_end)
        for slot in (*due.skipped_at, *due.run_at):
            if slot not in known:
                skip_tx(tx, schedule, slot, why, starter, at=at)
        advance_tx(tx, schedule.task_id, next_at=None, last_at=due.last_at)


def skip_tx(
    tx: Tx,
    schedule: Schedule,
    slot_at: int,
    why: str,
    starter: SlotStarter,
    *,
    at: int,
    until: int | None = None,
) -> None:
    """Record that a slot was let pass, and with ``until`` all slots after it before that time."""
    data: dict[str, Any] = {"task_id": schedule.task_id, "slot_at": slot_at}
    if until is not None:
        why = skips.because("before", why=why, time=slots.local_time(until, schedule.zone))
        data["until_at"] = until
    starter.skip_slot_tx(tx, schedule.task_id, slot_at, why, at=at)
    task = tx.one("SELECT agent_id, name FROM tasks WHERE task_id = ?", (schedule.task_id,))
    assert task is not None, "a schedule goes with its task"
    events.append(
        tx,
        EventType.SLOT_SKIPPED,
        at=at,
        agent_id=task["agent_id"],
        data=data | {"name": task["name"], "why": why},
    )


def rewind_tx(tx: Tx, now: int) -> list[str]:
    """Find the next times anew of schedules that were kept by a clock hours ahead of ``now``;
    returns their tasks. What they ran meanwhile is not run again."""
    rows = tx.all(
        "SELECT * FROM schedules WHERE next_at > ?1 AND is_paused = 0"
        " AND max(coalesce(last_at, 0), anchor_at) > ?1",
        (now,),
    )
    found = [schedule for row in rows if slots.is_rewound(schedule := _of(row), now)]  # type: ignore[arg-type]  # as above
    tx.executemany(
        "UPDATE schedules SET next_at = ?, last_at = NULL WHERE task_id = ?",
        [(slots.next_after(schedule, now), schedule.task_id) for schedule in found],
    )
    return [schedule.task_id for schedule in found]


def _of(row: Mapping[str, Any]) -> Schedule:
    return Schedule(
        task_id=row["task_id"],
        kind=row["kind"],
        spec=row["spec"],
        zone=row["zone"],
        misfire=Misfire(row["misfire"]),
        overlap=Overlap(row["overlap"]),
        anchor_at=row["anchor_at"],
        next_at=row["next_at"],
        last_at=row["last_at"],
        is_paused=bool(row["is_paused"]),
    )
