"""Ends processes that belong to no group, in a process that is the subreaper of its programs.

The descendants of a program are reparented to us when their parents have ended. One that belongs to
no live group (``kit.process_tracker``) has left its turn and emptied its environment, and would run for
ever. So it is killed when it is found: at the end of each group, and once a second. Serves P5.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from itertools import islice
from operator import length_hint

from agentsup.kit import proctable
from agentsup.kit.clock import Clock
from agentsup.kit.log import get_logger
from agentsup.kit.process_tracker import MANY, GroupRecord
from agentsup.kit.procgroup import live_groups
from agentsup.kit.proctable import ProcessRow, collect, peek_exit
from agentsup.kit.tasks import time_limit

_log = get_logger(__name__)

BEAT_S = 1.0
LIMIT_S = 2.0
_TIGHT_S = 0.0015
_COLLECT_S = 0.001
"""The time limits of one check together stay below what the loop may be blocked."""
_PARTS = 20
"""Parts of a check of many children, before their list is read again: the newest may be alive."""
_REAPED = 64
"""Children that are collected at once; about 40 microseconds each."""
_FIRST_PAUSE_S = 0.001
_LAST_PAUSE_S = 0.016
_CLEAN_LOOKS = 2
_QUIET_LOOKS = 12
_EXEC_LIMIT_S = 0.1


def _living() -> list[ProcessRow]:
    """The living processes: children of dead ones are reparented by then, and there may be
    thousands of dead ones."""
    return [row for row in proctable.table() if row.is_alive]


Keep = Callable[[Mapping[int, Sequence[GroupRecord]]], Awaitable[bool]]
"""Stores the detached processes of groups, by the groups' numbers, in place of earlier records.
False: it could not, and is called again."""


class OrphansStuck(RuntimeError):
    """Processes of no group were left after two seconds of killing; see ``pids``."""

    def __init__(self, pids: list[int]) -> None:
        """``pids`` are the processes that are left."""
        super().__init__(
            f"the processes {pids} left their programs' groups and could not be killed: they wait "
            "in the kernel, have another user's rights, or start others faster than they are killed. "
            "They are tried again each second; look at them with ps, or restart the daemon's service"
        )
        self.pids = pids


def reap_orphans(
    seen: frozenset[int] = frozenset(), children: Iterable[int] | None = None
) -> frozenset[int]:
    """Collect dead orphans that were reparented to us; returns the dead children seen now.

    Called every few seconds with the last result ``seen``: only a child that was already dead then
    is collected, because a library collects its own child at once. Leaders of our groups are left
    out; their groups collect them. ``children`` limits the call to some children, if there are
    many; default: all.
    """
    if children is None:
        children = proctable.child_pids(os.getpid())
    # One system call each; reading a row takes fifteen times as long, and there may be thousands.
    live = live_groups()
    dead = {pid for pid in children if not live.leads(pid) and peek_exit(pid) is not None}
    for pid in dead & seen:
        collect(pid)
    return frozenset(dead - seen)


class _Walk:
    """One list of children: all are collected if dead, and checked, the newest first."""

    def __init__(self, pids: Sequence[int]) -> None:
        self.collected, self.newest = iter(pids), reversed(pids)

    @property
    def is_over(self) -> bool:
        """Whether all were collected, if dead, and checked."""
        return not length_hint(self.collected) and not length_hint(self.newest)


class Reaper:
    """Kills orphans of no group. Only for a process that is a subreaper, and one for each such
    process."""

    def __init__(self, clock: Clock) -> None:
        """The children that this process already has, from before its program was started, are
        spared."""
        self._clock = clock
        self._groups = live_groups()
        self._groups.inherit()
        self._unsure: dict[tuple[int, int], float] = {}
        self._problem: str | None = None
        self._one = asyncio.Lock()
        self._asked = self._done = 0
        self._left: list[int] = []
        self._is_behind = False
        """Whether some dead children may be left from the last check."""

    async def run(self, keep: Keep, *, every_s: float = BEAT_S) -> None:
        """Check every ``every_s`` seconds until cancelled. ``keep`` stores the processes that left
        their group, so that they are found again if this process is killed."""
        dead: frozenset[int] = frozenset()
        while True:
            if len(self._groups):
                self._groups.learn(await asyncio.to_thread(_living))
            await self._beat()
            dead = await self._reap(dead)
            if (news := self._groups.unrecorded()) and await keep(news):
                self._groups.are_recorded(news)
            await self._clock.sleep(every_s)

    async def clear(self, limit_s: float = LIMIT_S) -> None:
        """Kill processes of no live group until two checks in a row find none.

        A dead one may have left a living child, so it counts as found. But if programs start and
        end others all the time, a row of checks without a living one is enough. Raises
        ``OrphansStuck`` if some are left after ``limit_s`` seconds.
        """
        self._asked += 1
        asked = self._asked
        try:
            async with time_limit(limit_s), self._one:
                if self._done >= asked:
                    return  # another call began after ours, and has ended
                begun, self._left = self._asked, []
                await self._until_clean()
                self._done = begun
        except TimeoutError:
            raise OrphansStuck(self._left) from None

    async def probe(self) -> str | None:
        """The failure for the watchdog, or None."""
        return self._problem

    # -- inside ------------------------------------------------------------------------------------

    async def _reap(self, seen: frozenset[int]) -> frozenset[int]:
        """As ``reap_orphans``, some children at a time."""
        children = iter(await asyncio.to_thread(proctable.child_pids, os.getpid()))
        dead: frozenset[int] = frozenset()
        while some := tuple(islice(children, _REAPED)):
            dead |= reap_orphans(seen, some)
            await self._clock.sleep(0)
        return dead

    async def _until_clean(self) -> None:
        pause_s = _FIRST_PAUSE_S
        clean = quiet = 0
        while clean < _CLEAN_LOOKS and quiet < _QUIET_LOOKS:
            found = self._look_closely()
            if self._is_behind:
                found = await self._look_at_many()
            clean = clean + 1 if found is None else 0
            quiet = 0 if found or self._is_behind else quiet + 1
            is_same = found == self._left
            pause_s = min(2 * pause_s, _LAST_PAUSE_S) if is_same else _FIRST_PAUSE_S
            self._left = found or self._left
            await self._clock.sleep(pause_s if found else 0)
        self._unsure.clear()

    async def _beat(self, limit_s: float = LIMIT_S) -> None:
        try:
            await self.clear(limit_s)
        except OrphansStuck as error:
            if self._problem is None:
                _log.exception("orphaned processes can't be ended")
            self._problem = str(error)
        else:
            self._problem = None

    def _look_closely(self) -> list[int] | None:
        """Check, and again while the result changes. None: nothing was found."""
        before: list[int] | None = None
        until_s = self._clock.monotonic() + _TIGHT_S
        while (found := self._look()) and found != before and self._clock.monotonic() < until_s:
            before = found
        return found

    def _look(self) -> list[int] | None:
        """Kill processes of no group, for some milliseconds, since the loop waits. Returns the
        pids; None if there was none, not even a dead one that may have left a living child."""
        pids = proctable.adopted_pids(os.getpid(), MANY)
        if len(pids) == MANY:
            self._is_behind = True
            return []
        walk = _Walk(pids)
        found = self._look_at(walk)
        self._is_behind = not walk.is_over
        return found

    async def _look_at_many(self) -> list[int] | None:
        """The same for many children: their list is read in a thread, and checked in parts between
        which the loop runs."""
        walk = _Walk(await asyncio.to_thread(proctable.adopted_pids, os.getpid()))
        looks = []
        for _ in range(_PARTS):
            looks.append(self._look_at(walk))
            if walk.is_over:
                break
            await self._clock.sleep(0)
        self._is_behind = not walk.is_over
        found = [pid for look in looks for pid in look or ()]
        return found if looks.count(None) < len(looks) else None

    def _look_at(self, walk: _Walk) -> list[int] | None:
        until_s = self._clock.monotonic() + _COLLECT_S
        may_hide = self._groups.collect_dead(
            walk.collected, lambda: self._clock.monotonic() < until_s
        )
        found: list[int] = []
        until_s = self._clock.monotonic() + _TIGHT_S
        for pid in walk.newest:
            row = self._groups.living_orphan(pid)
            if row is not None and row.is_alive and self._end(row):
                found.append(row.pid)
            if self._clock.monotonic() > until_s:
                break
        return found if found or may_hide or not walk.is_over else None

    def _end(self, row: ProcessRow) -> bool:
        """Kill ``row`` unless a live group owns it. Returns whether it had to be killed."""
        owner = self._groups.owner(row)
        if owner is None and self._is_unsure(row):
            return True
        owner = owner or self._groups.owner(row)
        if owner is not None and not owner.is_ending:
            return False
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.kill(row.pid, signal.SIGKILL)
        return True

    def _is_unsure(self, row: ProcessRow) -> bool:
        """Whether its mark can't be read for a moment, but may exist."""
        if not proctable.is_being_executed(row.pid):
            return False
        now_s = self._clock.monotonic()
        return now_s - self._unsure.setdefault((row.pid, row.started_ticks), now_s) < _EXEC_LIMIT_S
