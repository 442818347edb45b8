"""Processes left by an earlier run of the daemon, found by stored records."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from agentsup.kit import proctable
from agentsup.kit.clock import Clock, SystemClock
from agentsup.kit.proctable import ProcessRow

MARK = "AGENTSUP_GROUP"
"""The environment variable that marks every process started by a daemon, and its descendants."""
LEADER = "AGENTSUP_LEADER"
"""The environment variable with the leader of a program's group, if its starter sets it;
descendants that left the group are found by it."""
_LIMIT_S = 2.0
_FIRST_PAUSE_S = 0.001
_LAST_PAUSE_S = 0.032
_Identity = tuple[int, int]
"""The number of a process and its start time."""
_LOOKS = 2_000
"""The most checks of a process whose environment can't be read yet; about 50 microseconds each."""


@dataclass(frozen=True, slots=True)
class GroupRecord:
    """The data by which exactly this group is found again after a restart of the daemon."""

    pgid: int
    started_ticks: int
    """Kernel start time of the leader in clock ticks since boot; detects a reused number."""
    argv0: str


async def sweep(
    records: Iterable[GroupRecord],
    detached: Iterable[GroupRecord] = (),
    *,
    clock: Clock | None = None,
) -> list[GroupRecord]:
    """SIGKILL processes left by an earlier run and wait for their end, at most two seconds; returns
    the records of those that were alive.

    ``records`` are groups. ``detached`` are single processes that had left their group; their
    descendants and the rest of their sessions are killed too.

    A number that now belongs to another process is recognised by its start time and skipped. If the
    leader is gone, only members with our mark are killed. Descendants that left the group are found
    by the leader in their environment. What was started between two looks is found by the next one,
    and what was found counts until it has ended, also after its environment is gone.
    """
    groups, others = list(records), list(detached)
    known: dict[GroupRecord, set[_Identity]] = {}
    clock = clock or SystemClock()
    swept: dict[GroupRecord, None] = {}
    pause_s = _FIRST_PAUSE_S
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(_LIMIT_S):
            while (groups or others) and (
                living := await asyncio.to_thread(_kill, groups, others, known)
            ):
                swept.update(dict.fromkeys(living))
                await clock.sleep(pause_s)
                pause_s = min(2 * pause_s, _LAST_PAUSE_S)
    return list(swept)


def _kill(
    groups: list[GroupRecord],
    detached: list[GroupRecord],
    known: dict[GroupRecord, set[_Identity]],
) -> list[GroupRecord]:
    """SIGKILL what is there of ``groups`` and ``detached``, and what ``known`` still has of them, to
    which it is added; returns the records of those with living processes."""
    rows = [row for row in proctable.table() if row.pid != os.getpid()]
    alive = {_identity(row): row for row in rows if row.is_alive}
    for record, living in (*_of_groups(groups, rows), *_of_detached(detached, rows)):
        alive.update((_identity(row), row) for row in living)
        known.setdefault(record, set()).update(map(_identity, living))
    for seen in known.values():
        seen.intersection_update(alive)
        for row in (alive[one] for one in seen if not proctable.is_ending(alive[one])):
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(row.pid, signal.SIGKILL)
    return [record for record, seen in known.items() if seen]


def _identity(row: ProcessRow) -> _Identity:
    return row.pid, row.started_ticks


def _of_groups(
    records: Iterable[GroupRecord], rows: list[ProcessRow]
) -> Iterator[tuple[GroupRecord, list[ProcessRow]]]:
    """The living processes of each group among ``rows``, a table of all processes."""
    leaders = {row.pid: proctable.environ_value(row.pid, LEADER) for row in rows}
    for record in records:
        group = [row for row in rows if record.pgid in {row.pgid, row.session} and row.is_alive]
        leader = next((row for row in rows if row.pid == record.pgid), None)
        if leader is not None and leader.started_ticks != record.started_ticks:
            continue
        if leader is None or not leader.is_alive:
            group = [
                row
                for row in group
                if row.started_ticks >= record.started_ticks
                and (proctable.is_ending(row) or _is_marked(row.pid))
            ]
        group += [
            row
            for row in rows
            if leaders[row.pid] == str(record.pgid)
            and row.is_alive
            and row.started_ticks >= record.started_ticks
            and row not in group
        ]
        yield record, group


def _of_detached(
    records: Iterable[GroupRecord], rows: list[ProcessRow]
) -> Iterator[tuple[GroupRecord, list[ProcessRow]]]:
    """The living processes of each record of a single process, with its session and descendants."""
    living = {(row.pid, row.started_ticks) for row in rows if row.is_alive}
    for record in records:
        if (record.pgid, record.started_ticks) in living:
            near = [row for row in rows if record.pgid in {row.pid, row.session}]
            near += proctable.descendants([record.pgid])
            yield record, [row for row in near if row.is_alive]


def _is_marked(pid: int) -> bool:
    """Whether the process carries our mark.

    During an ``exec``, which takes up to some milliseconds, its environment reads as empty: only
    two empty reads without an ``exec`` in between count.
    """
    settled = 0
    for _ in range(_LOOKS):
        if proctable.environ_value(pid, MARK) is not None:
            return True
        settled = 0 if proctable.is_being_executed(pid) else settled + 1
        if settled == 2:
            break
        os.sched_yield()
    return False
