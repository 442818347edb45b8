"""Schedules as rows: written with their tasks, advanced by the scheduler.

A change that makes a time come earlier or not at all touches the topic ``schedules``, which wakes
the scheduler. A paused schedule and one that has ended have no next time.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from agentsup.catalogue import LocalizedTexts, words
from agentsup.model.control import RemainingSchedule
from agentsup.model.errors import Conflict, NotFound
from agentsup.model.event import EventType
from agentsup.model.task import Misfire, OccurrenceSkipReason, Overlap, Schedule, SkippedOccurrence
from agentsup.store import Reader, Tx, events, from_row, values_of
from agentsup.tasks import occurrences
from agentsup.tasks.starting import Starter

TOPIC = "schedules"
_REMAINING_MOST = 100
_PAUSED = SkippedOccurrence(OccurrenceSkipReason.PAUSED)


# -- reading ---------------------------------------------------------------------------------------


def get(reader: Reader, task_id: str) -> Schedule | None:
    """The schedule of a task, or None."""
    return reader.value(_of, "SELECT * FROM schedules WHERE task_id = ?", (task_id,))


def of_tasks(reader: Reader, task_ids: Sequence[str]) -> dict[str, Schedule]:
    """The schedules of tasks by task id; tasks without one are left out."""
    rows = reader.all(
        "SELECT * FROM schedules WHERE task_id IN (SELECT value FROM json_each(?))",
        (json.dumps(task_ids),),
    )
    return {row["task_id"]: _of(row) for row in rows}


def heads(reader: Reader, limit: int) -> list[tuple[str, int]]:
    """Task id and next time of the earliest schedules, at most ``limit``."""
    rows = reader.all(
        "SELECT task_id, next_at FROM schedules WHERE next_at IS NOT NULL AND is_paused = 0"
        " ORDER BY next_at LIMIT ?",
        (limit,),
    )
    return [(row["task_id"], row["next_at"]) for row in rows]


def failed_since(reader: Reader, at: int) -> list[str]:
    """The tasks whose schedule goes on and whose last run failed at ``at`` (wall ms) or later."""
    rows = reader.all(
        "SELECT s.task_id FROM schedules AS s JOIN tasks AS t ON t.task_id = s.task_id"
        " WHERE s.next_at IS NOT NULL AND s.is_paused = 0"
        " AND t.state = 'failed' AND t.finished_at >= ?",
        (at,),
    )
    return [row["task_id"] for row in rows]


def remaining_schedules(reader: Reader, scope: str) -> tuple[RemainingSchedule, ...]:
    """The tasks in ``scope`` (``all``, ``agent:<id>``) with an active schedule, the next one first.

    A session has none: a schedule belongs to a task.
    """
    kind, _, subject = scope.partition(":")
    if kind not in ("all", "agent"):
        return ()
    rows = reader.all(
        "SELECT t.task_id, t.name, s.next_at, s.zone FROM schedules AS s"
        " JOIN tasks AS t ON t.task_id = s.task_id"
        " WHERE s.next_at IS NOT NULL AND s.is_paused = 0 AND (? = '' OR t.agent_id = ?)"
        " ORDER BY s.next_at, t.task_id LIMIT ?",
        (subject, subject, _REMAINING_MOST),
    )
    return tuple(RemainingSchedule(*row) for row in rows)


def decided(reader: Reader, task_id: str, first: int, last: int) -> frozenset[int]:
    """The occurrences from ``first`` to ``last``, both included, that were run or recorded as
    skipped."""
    rows = reader.all(
        "SELECT slot_at FROM runs WHERE task_id = ? AND slot_at BETWEEN ? AND ?",
        (task_id, first, last),
    )
    return frozenset(row["slot_at"] for row in rows)


# -- writing ---------------------------------------------------------------------------------------


def add_tx(tx: Tx, schedule: Schedule) -> None:
    """Insert the schedule of a task, whose row exists."""
    tx.execute(
        "INSERT INTO schedules (task_id, kind, spec, zone, misfire, overlap, anchor_at, next_at,"
        " is_paused) VALUES (:task_id, :kind, :spec, :zone, :misfire, :overlap, :anchor_at,"
        " :next_at, :is_paused)",
        {**values_of(schedule), "is_paused": int(schedule.is_paused)},
    )
    tx.touch(TOPIC)


def advance_tx(tx: Tx, task_id: str, *, next_at: int | None, last_at: int) -> None:
    """Record that all occurrences up to ``last_at`` are decided.

    Nobody is woken, because only the scheduler calls this.
    """
    tx.execute(
        "UPDATE schedules SET next_at = ?, last_at = max(coalesce(last_at, ?2), ?2)"
        " WHERE task_id = ?3",
        (next_at, last_at, task_id),
    )


def pause_tx(tx: Tx, task_id: str, starter: Starter, *, is_paused: bool, at: int) -> None:
    """Pause a schedule, or let it go on with the first time after ``at`` (wall ms).

    A second call does nothing. Times that come while it is paused are not occurrences; only the single
    time of an ``at`` schedule is recorded as skipped then. Times that had come before the pause and
    were not settled are recorded as skipped, too. Raises ``NotFound``, and ``Conflict`` for a
    schedule that has ended.
    """
    schedule = get(tx, task_id)
    if schedule is None:
        raise NotFound(f"task {task_id} has no schedule", task_id=task_id)
    if schedule.next_at is None and not schedule.is_paused:
        raise Conflict(f"the schedule of task {task_id} has ended", task_id=task_id)
    if schedule.is_paused != is_paused:
        if is_paused:
            _give_up_tx(tx, schedule, starter, _PAUSED, at=at)
            next_at = None
        else:
            if occurrences.is_rewound(schedule, at):
                tx.execute("UPDATE schedules SET last_at = NULL WHERE task_id = ?", (task_id,))
                schedule = replace(schedule, last_at=None)
            next_at = occurrences.next_after(schedule, max(at, schedule.last_at or 0))
            if schedule.kind == "at" and next_at is None:
                # It was the only time, so nothing else would record that it has passed.
                _skip_only_tx(tx, schedule, starter, at=at)
        tx.execute(
            "UPDATE schedules SET is_paused = ?, next_at = ? WHERE task_id = ?",
            (is_paused, next_at, task_id),
        )
        tx.touch(TOPIC)


def _skip_only_tx(tx: Tx, schedule: Schedule, starter: Starter, *, at: int) -> None:
    occurrence = schedule.anchor_at
    if occurrence not in decided(tx, schedule.task_id, occurrence, occurrence):
        skip_tx(tx, schedule, occurrence, _PAUSED, starter, at=at)


def end_tx(tx: Tx, task_id: str, starter: Starter, why: SkippedOccurrence, *, at: int) -> bool:
    """End a schedule; False if it had no further times.

    Times that had come and were not settled are recorded as skipped because of ``why``.
    """
    schedule = get(tx, task_id)
    if schedule is None or (schedule.next_at is None and not schedule.is_paused):
        return False
    _give_up_tx(tx, schedule, starter, why, at=at)
    tx.execute("UPDATE schedules SET next_at = NULL, is_paused = 0 WHERE task_id = ?", (task_id,))
    tx.touch(TOPIC)
    return True


def change_tx(tx: Tx, to: Schedule, starter: Starter, why: SkippedOccurrence, *, at: int) -> bool:
    """Give a task's schedule other times from now on; whether it had ended and so starts again.

    Times that had come and were not settled are recorded as skipped because of ``why``. Raises
    ``NotFound``.
    """
    is_anew = not end_tx(tx, to.task_id, starter, why, at=at)
    changed = tx.execute(
        "UPDATE schedules SET kind = :kind, spec = :spec, zone = :zone, misfire = :misfire,"
        " overlap = :overlap, anchor_at = :anchor_at, next_at = :next_at, is_paused = 0"
        " WHERE task_id = :task_id",
        values_of(to),
    ).rowcount
    if not changed:
        raise NotFound(f"task {to.task_id} has no schedule", task_id=to.task_id)
    tx.touch(TOPIC)
    return is_anew


def _give_up_tx(
    tx: Tx, schedule: Schedule, starter: Starter, why: SkippedOccurrence, *, at: int
) -> None:
    due = occurrences.due(schedule, at)
    if due.last_at is not None:
        known = decided(tx, schedule.task_id, schedule.next_at or 0, due.last_at)
        if due.range_at is not None and due.range_at not in known:
            skip_tx(tx, schedule, due.range_at, why, starter, at=at, until=due.range_end)
        for occurrence in (*due.skipped_at, *due.run_at):
            if occurrence not in known:
                skip_tx(tx, schedule, occurrence, why, starter, at=at)
        advance_tx(tx, schedule.task_id, next_at=None, last_at=due.last_at)


def skip_tx(
    tx: Tx,
    schedule: Schedule,
    slot_at: int,
    why: SkippedOccurrence,
    starter: Starter,
    *,
    at: int,
    until: int | None = None,
) -> None:
    """Record that an occurrence was passed over; with ``until``, also all between the two."""
    data: dict[str, Any] = {"task_id": schedule.task_id, "slot_at": slot_at}
    if until is not None:
        why = replace(why, until=occurrences.local_time(until, schedule.zone))
        data["until_at"] = until
    starter.skip_occurrence_tx(tx, schedule.task_id, slot_at, why, at=at)
    task = tx.one("SELECT agent_id, name FROM tasks WHERE task_id = ?", (schedule.task_id,))
    assert task is not None, "a schedule goes with its task"
    events.append(
        tx,
        EventType.SLOT_SKIPPED,
        at=at,
        agent_id=task["agent_id"],
        data=data | {"name": task["name"], "why": skip_text(why)},
    )


def rewind_tx(tx: Tx, now: int) -> list[str]:
    """Recompute the next times of schedules that were set by a clock hours ahead of ``now``.

    Returns the ids of their tasks. Occurrences that were run by that clock are not run again.
    """
    rows = tx.all(
        "SELECT * FROM schedules WHERE next_at > ?1 AND is_paused = 0"
        " AND max(coalesce(last_at, 0), anchor_at) > ?1",
        (now,),
    )
    found = [schedule for row in rows if occurrences.is_rewound(schedule := _of(row), now)]
    tx.executemany(
        "UPDATE schedules SET next_at = ?, last_at = NULL WHERE task_id = ?",
        [(occurrences.next_after(schedule, now), schedule.task_id) for schedule in found],
    )
    return [schedule.task_id for schedule in found]


def _of(row: Any) -> Schedule:
    misfire, overlap = Misfire(row["misfire"]), Overlap(row["overlap"])
    is_paused = bool(row["is_paused"])
    return from_row(Schedule, row, misfire=misfire, overlap=overlap, is_paused=is_paused)


def skip_text(skipped: SkippedOccurrence, say: LocalizedTexts | None = None) -> str:
    """The reason in the language of ``say``; default: in English."""
    say = say or words()
    match skipped.reason:
        case OccurrenceSkipReason.REFUSED:
            why = str(skipped.facts["text"])
        case OccurrenceSkipReason.RIGHTS:
            why = say(f"rights.{skipped.facts['rights']}", who=skipped.facts["who"])
        case reason:
            why = say(f"skip.{reason.value}", **skipped.facts)
    return say("skip.before", why=why, time=skipped.until) if skipped.until else why
