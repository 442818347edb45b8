"""The group of a process that left its group: a child of this process that leads no group.

A program that leaves its group (``setsid``) is reparented to this process, its subreaper, when its
parents end. It belongs to a group if it is still in the session of the group's leader, if it was
seen as a descendant of the group before, or if its environment carries the group's mark. No process
can join a session from outside, and a mark can't be guessed.

A process in our own session was started by a library of this process, not by a program: every
program begins in its own session.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from agentsup.kit import proctable
from agentsup.kit.clock import Clock, SystemClock
from agentsup.kit.proctable import ProcessRow, collect, peek_exit

MARK = "AGENTSUP_GROUP"
"""The environment variable that marks every process started by a daemon, and its descendants."""
LEADER = "AGENTSUP_LEADER"
"""The environment variable with the leader of a program's group, if its starter sets it;
descendants that left the group are found by it."""
MANY = 512
"""With more children than this, they are not listed on the loop."""
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


class DetachedProcesses:
    """The processes of one group that are outside it, identified by number and start time."""

    def __init__(self, pgid: int, argv0: str, mark: str) -> None:
        """``mark`` is the mark in the environment of the group's programs; ``pgid`` is 0 until the
        leader is started."""
        self.pgid = pgid
        self.argv0 = argv0
        self.mark = mark
        self.is_ending = False
        """Whether the group was killed: none of its processes is spared any more."""
        self._ticks: dict[int, int] = {}
        self._recorded: dict[int, int] = {}

    @property
    def pids(self) -> frozenset[int]:
        """The pids of all that were found and not yet dropped, also dead ones."""
        return frozenset(self._ticks)

    def add(self, row: ProcessRow) -> None:
        """Add ``row`` to the group."""
        self._ticks[row.pid] = row.started_ticks

    def has(self, row: ProcessRow) -> bool:
        """Whether ``row`` is one of them."""
        return self._ticks.get(row.pid) == row.started_ticks

    def living(self) -> list[ProcessRow]:
        """Those that are alive now."""
        rows = (proctable.read_row(pid) for pid in self._ticks)
        return [row for row in rows if row is not None and row.is_alive and self.has(row)]

    def collect_dead(self) -> None:
        """Collect those that have ended and are children of this process."""
        for row in map(proctable.read_row, self._ticks):
            if row is not None and not row.is_alive and self.has(row):
                collect(row.pid)

    def forget_dead(self, rows: Mapping[int, ProcessRow]) -> None:
        """Drop those that are not alive; ``rows`` is a table of processes by pid."""
        for pid in list(self._ticks):
            row = rows.get(pid) or proctable.read_row(pid)
            if row is None or not row.is_alive or not self.has(row):
                del self._ticks[pid]

    def unrecorded(self) -> tuple[GroupRecord, ...]:
        """Records of all of them, if some are not stored yet; else none."""
        if self._ticks.items() <= self._recorded.items():
            return ()
        return tuple(GroupRecord(pid, ticks, self.argv0) for pid, ticks in self._ticks.items())

    def are_recorded(self, records: Iterable[GroupRecord]) -> None:
        """Note that these, and no others, are stored."""
        self._recorded = {record.pgid: record.started_ticks for record in records}


class ProcessTracker:
    """The groups of this process by the number of their leader: a mirror of kernel state."""

    def __init__(self) -> None:
        """Start without groups."""
        self._groups: dict[int, DetachedProcesses] = {}
        self._marks: dict[str, DetachedProcesses] = {}
        self._inherited = DetachedProcesses(0, "", "")
        self._owner_of: dict[int, DetachedProcesses] = {}

    def __len__(self) -> int:
        """The number of live groups."""
        return len(self._groups)

    def expect(self, detached: DetachedProcesses) -> None:
        """Spare a group whose leader is being started; ``add`` or ``discard`` follows."""
        self._marks[detached.mark] = detached

    def add(self, detached: DetachedProcesses) -> None:
        """Add the group of a started leader."""
        self._groups[detached.pgid] = detached
        self._marks[detached.mark] = detached

    def discard(self, detached: DetachedProcesses) -> None:
        """Remove a group of which nothing is left."""
        self._groups.pop(detached.pgid, None)
        self._marks.pop(detached.mark, None)
        self._owner_of = {pid: of for pid, of in self._owner_of.items() if of is not detached}

    def inherit(self) -> None:
        """Spare the children that this process already has, such as those of a start script that
        executed it, and their descendants."""
        for row in self.orphans(proctable.adopted_pids(os.getpid())):
            self._inherited.add(row)

    def leads(self, pid: int) -> bool:
        """Whether ``pid`` leads a live group."""
        return pid in self._groups

    def orphans(self, pids: Sequence[int]) -> Iterator[ProcessRow]:
        """The living orphans among ``pids``, the newest first; see ``living_orphan``."""
        # Among thousands of dead ones, the living ones are those that were reparented last.
        return filter(None, map(self.living_orphan, reversed(pids)))

    def living_orphan(self, pid: int) -> ProcessRow | None:
        """The present row of a child of this process, if it is a living orphan.

        None if it is dead, leads a group, belongs to a library or is no child. No other process
        collects our children, so the kernel's list loses none while it is read: it holds a living
        orphan itself, or the orphan's dead parent.
        """
        if pid in self._groups or peek_exit(pid) is not None:
            return None
        row = proctable.read_row(pid)
        if row is None or row.session == os.getsid(0):
            return None
        # The kernel's list has children of the main thread only, so none that is being started.
        may_be_new = row.session == pid and not proctable.has_lists()
        return None if may_be_new and self._is_any_expected() else row

    def orphans_of(
        self, detached: DetachedProcesses, goes_on: Callable[[], bool]
    ) -> list[ProcessRow]:
        """The living orphans of one group; known ones of other groups are not read again.

        The loop waits for this, so it checks only the oldest ``MANY``, and only while
        ``goes_on()``. The reaper ends the others once the group is gone.
        """
        pids = set(proctable.adopted_pids(os.getpid(), MANY))
        self._owner_of = {pid: of for pid, of in self._owner_of.items() if pid in pids}
        found = []
        for pid in pids - self._groups.keys():
            if self._owner_of.get(pid, detached) is not detached or peek_exit(pid) is not None:
                continue
            if not goes_on():
                break
            row = proctable.read_row(pid)
            if row is None or not row.is_alive:
                continue
            owner = self.owner(row)
            if owner is not None:
                self._owner_of[pid] = owner
            if owner is detached:
                found.append(row)
        return found

    def owner(self, row: ProcessRow) -> DetachedProcesses | None:
        """The group of the orphan ``row``, or None. The result is stored."""
        found = self._known_owner(row)
        if found is None:
            mark = proctable.environ_value(row.pid, MARK)
            found = self._marks.get(mark) if mark else None
        if found is not None and row.pgid != found.pgid != 0:
            found.add(row)
        return found

    def learn(self, rows: Sequence[ProcessRow]) -> None:
        """Add, from a table of all processes, the descendants of groups that left them."""
        by_pid = {row.pid: row for row in rows}
        everybody = (*self._groups.values(), self._inherited)
        for detached in everybody:
            detached.forget_dead(by_pid)
        detached_of = {pid: detached for detached in everybody for pid in detached.pids}
        owners: dict[int, DetachedProcesses | None] = {os.getpid(): None}
        for row in rows:
            way: list[int] = []
            found: DetachedProcesses | None = None
            at: ProcessRow | None = row
            while at is not None:
                if at.pid in owners:
                    found = owners[at.pid]
                    break
                way.append(at.pid)
                found = self._groups.get(at.session) or detached_of.get(at.pid)
                if found is not None:
                    break
                owners[at.pid] = None  # also ends loops in a table that changed while it was read
                at = by_pid.get(at.parent)
            owners.update(dict.fromkeys(way, found))
        for pid, owner in owners.items():
            if owner is not None and (row := by_pid[pid]).is_alive and row.pgid != owner.pgid:
                owner.add(row)

    def members(self, rows: Sequence[ProcessRow]) -> dict[int, list[int]]:
        """The pids of the living processes of each group, by its number: those of its session among
        ``rows``, a table of all processes, and those outside that ``learn`` found."""
        found: dict[int, list[int]] = {pgid: [] for pgid in self._groups}
        for row in rows:
            if row.is_alive and row.session in found:
                found[row.session].append(row.pid)
        for pgid, detached in self._groups.items():
            found[pgid] = list({*found[pgid], *detached.pids})
        return found

    def unrecorded(self) -> dict[int, tuple[GroupRecord, ...]]:
        """The detached processes of each group with some that are not stored, by the group's number."""
        found = ((pgid, detached.unrecorded()) for pgid, detached in self._groups.items())
        return {pgid: records for pgid, records in found if records}

    def are_recorded(self, detached: Mapping[int, Sequence[GroupRecord]]) -> None:
        """Note that the result of ``unrecorded`` is stored now."""
        for pgid, records in detached.items():
            if pgid in self._groups:
                self._groups[pgid].are_recorded(records)

    def collect_dead(self, pids: Iterator[int], goes_on: Callable[[], bool]) -> bool:
        """Collect the orphans among ``pids`` that have ended, while ``goes_on()``.

        The rest of ``pids`` is for the next call. True if one of them was in no live group's
        session: it may have a living child, which was reparented to us after the list was read.
        Uses two system calls for each and nothing of ``/proc``, so that programs which start and
        end one another all the time can't fill the table of processes faster than it is emptied.
        """
        session, was_any = os.getsid(0), False
        for pid in pids:
            if pid not in self._groups:
                with contextlib.suppress(ProcessLookupError):
                    of = os.getsid(pid)
                    if of != session and collect(pid) is not None:
                        was_any |= of not in self._groups
            if not goes_on():
                break
        return was_any

    def _is_any_expected(self) -> bool:
        return any(not detached.pgid for detached in self._marks.values())

    def _known_owner(self, row: ProcessRow) -> DetachedProcesses | None:
        member = self._groups.get(row.session)
        if member is not None:
            return member
        for detached in (self._inherited, *self._groups.values()):
            if detached.has(row):
                return detached
        return None


# -- processes left by an earlier run ---------------------------------------------------------------


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
