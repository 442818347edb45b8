"""Which group a process belongs to that left it: a child of this process that leads no group.

A program that leaves its group (`setsid`) and whose parents end falls to this process, its
subreaper. It belongs to a group if it is still in the session of the group's leader, if it was
seen as a descendant of the group before, or if its environment carries the group's mark. Nobody
can join a session from outside, and a mark can't be guessed.

What has our own session was started by a library of this process and is no program's: every
program begins in a session of its own.
"""

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence

from agentsup.kit import proctable
from agentsup.kit.exits import collect
from agentsup.kit.leftovers import MARK, GroupRecord
from agentsup.kit.proctable import ProcessRow

__all__ = ["LiveGroups", "Strays"]


class Strays:
    """The processes outside one group that belong to it, told apart by number and start time."""

    def __init__(self, pgid: int, argv0: str, mark: str) -> None:
        """`mark` is what the environment of the group's programs carries."""
        self.pgid = pgid
        self.argv0 = argv0
        self.mark = mark
        self.is_ending = False
        """The group was killed: nothing of it is spared any more."""
        self._ticks: dict[int, int] = {}
        self._recorded: dict[int, int] = {}

    @property
    def pids(self) -> frozenset[int]:
        """All that were ever found and not yet forgotten, also dead ones."""
        return frozenset(self._ticks)

    def add(self, row: ProcessRow) -> None:
        """`row` belongs to the group."""
        self._ticks[row.pid] = row.started_ticks

    def has(self, row: ProcessRow) -> bool:
        """Whether it is known as one of them."""
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
        """Drop those that are not alive; `rows` is a table of processes by pid."""
        for pid in list(self._ticks):
            row = rows.get(pid) or proctable.read_row(pid)
            if row is None or not row.is_alive or not self.has(row):
                del self._ticks[pid]

    def unrecorded(self) -> tuple[GroupRecord, ...]:
        """All of them, if some are not on record yet; else none."""
        if self._ticks.items() <= self._recorded.items():
            return ()
        return tuple(GroupRecord(pid, ticks, self.argv0) for pid, ticks in self._ticks.items())

    def are_recorded(self, records: Iterable[GroupRecord]) -> None:
        """These, and no others, are on record."""
        self._recorded = {record.pgid: record.started_ticks for record in records}


class LiveGroups:
    """The groups of this process by the number of their leader: a mirror of kernel state."""

    def __init__(self) -> None:
        """No group yet."""
        self._groups: dict[int, Strays] = {}
        self._marks: dict[str, Strays] = {}
        self._inherited = Strays(0, "", "")
        self._owner_of: dict[int, Strays] = {}

    def __len__(self) -> int:
        """How many groups are live."""
        return len(self._groups)

    def add(self, strays: Strays) -> None:
        """A leader was started."""
        self._groups[strays.pgid] = strays
        self._marks[strays.mark] = strays

    def discard(self, strays: Strays) -> None:
        """Nothing of that group is left."""
        self._groups.pop(strays.pgid, None)
        self._marks.pop(strays.mark, None)
        self._owner_of = {pid: of for pid, of in self._owner_of.items() if of is not strays}

    def inherit(self) -> None:
        """Spare the children that this process has already, as those of a start script that it was
        executed by, and their descendants."""
        for row in self.orphans():
            self._inherited.add(row)

    def leads(self, pid: int) -> bool:
        """Whether `pid` leads a live group."""
        return pid in self._groups

    def orphans(self) -> Iterator[ProcessRow]:
        """Children of this process that lead no group and are no library's, each read when it is
        asked for.

        Nobody else collects our children, so the kernel's list loses none while it is read: a
        living orphan is in it, or a dead one stands for its parent.
        """
        session = os.getsid(0)
        for pid in proctable.adopted_pids(os.getpid()):
            if pid not in self._groups:
                row = proctable.read_row(pid)
                if row is not None and row.session != session:
                    yield row

    def orphans_of(self, strays: Strays) -> list[ProcessRow]:
        """The living orphans of one group. Those found to be another's before are not read again."""
        pids = set(proctable.adopted_pids(os.getpid()))
        self._owner_of = {pid: of for pid, of in self._owner_of.items() if pid in pids}
        found = []
        for pid in pids - self._groups.keys():
            if self._owner_of.get(pid, strays) is not strays:
                continue
            row = proctable.read_row(pid)
            if row is None or not row.is_alive:
                continue
            owner = self.owner(row)
            if owner is not None:
                self._owner_of[pid] = owner
            if owner is strays:
                found.append(row)
        return found

    def owner(self, row: ProcessRow) -> Strays | None:
        """The group that the orphan `row` belongs to. It is remembered."""
        found = self._known_owner(row)
        if found is None:
            mark = proctable.environ_value(row.pid, MARK)
            found = self._marks.get(mark) if mark else None
        if found is not None and row.pgid != found.pgid:
            found.add(row)
        return found

    def learn(self, rows: Sequence[ProcessRow]) -> None:
        """Take in, from a table of all processes, who descends from a group and left it."""
        by_pid = {row.pid: row for row in rows}
        everybody = (*self._groups.values(), self._inherited)
        for strays in everybody:
            strays.forget_dead(by_pid)
        strays_of = {pid: strays for strays in everybody for pid in strays.pids}
        owners: dict[int, Strays | None] = {os.getpid(): None}
        for row in rows:
            way: list[int] = []
            found: Strays | None = None
            at: ProcessRow | None = row
            while at is not None:
                if at.pid in owners:
                    found = owners[at.pid]
                    break
                way.append(at.pid)
                found = self._groups.get(at.session) or strays_of.get(at.pid)
                if found is not None:
                    break
                owners[at.pid] = (
                    None  # also keeps a table that changed while it was read from looping
                )
                at = by_pid.get(at.parent)
            owners.update(dict.fromkeys(way, found))
        for pid, owner in owners.items():
            if owner is not None and (row := by_pid[pid]).is_alive and row.pgid != owner.pgid:
                owner.add(row)

    def members(self, rows: Sequence[ProcessRow]) -> dict[int, list[int]]:
        """The living processes of each group, by its number: those of its session among `rows`, a
        table of all processes, and those outside that `learn` found."""
        found: dict[int, list[int]] = {pgid: [] for pgid in self._groups}
        for row in rows:
            if row.is_alive and row.session in found:
                found[row.session].append(row.pid)
        for pgid, strays in self._groups.items():
            found[pgid] = list({*found[pgid], *strays.pids})
        return found

    def unrecorded(self) -> dict[int, tuple[GroupRecord, ...]]:
        """The strays of each group of which some are not on record, by the group's number."""
        found = ((pgid, strays.unrecorded()) for pgid, strays in self._groups.items())
        return {pgid: records for pgid, records in found if records}

    def are_recorded(self, strays: Mapping[int, Sequence[GroupRecord]]) -> None:
        """What `unrecorded` named is on record now."""
        for pgid, records in strays.items():
            if pgid in self._groups:
                self._groups[pgid].are_recorded(records)

    def collect_dead(self) -> bool:
        """Collect the orphans that have ended; True if one of them was in no live group's session.

        Such a one may have a living child, which falls to us after the list was read. Two system
        calls for each and nothing of `/proc`, so that programs which start and end one another all
        the time can't fill the table of processes faster than it is emptied.
        """
        session, was_any = os.getsid(0), False
        for pid in proctable.adopted_pids(os.getpid()):
            if pid in self._groups:
                continue
            try:
                of = os.getsid(pid)
            except ProcessLookupError:
                continue
            if of != session and collect(pid) is not None:
                was_any |= of not in self._groups
        return was_any

    def _known_owner(self, row: ProcessRow) -> Strays | None:
        member = self._groups.get(row.session)
        if member is not None:
            return member
        for strays in (self._inherited, *self._groups.values()):
            if strays.has(row):
                return strays
        return None
