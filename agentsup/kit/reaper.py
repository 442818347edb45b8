"""The end of processes that belong to nobody: for a process that is the subreaper of its programs.

Whatever a program starts falls to us once its parents have ended. What then belongs to no live
group (`kit.strays`) has left its turn, emptied its environment and would run for ever, so it is
killed on sight: at the end of each group, and once a second. Serves P5.
"""

import asyncio
import contextlib
import logging
import os
import signal
from collections.abc import Awaitable, Callable, Mapping, Sequence

from agentsup.kit import proctable
from agentsup.kit.clock import Clock
from agentsup.kit.leftovers import GroupRecord
from agentsup.kit.procgroup import live_groups, reap_orphans
from agentsup.kit.proctable import ProcessRow

__all__ = ["OrphansStuck", "Reaper"]

_log = logging.getLogger(__name__)

BEAT_S = 1.0
LIMIT_S = 2.0
_TIGHT_S = 0.003
_FIRST_PAUSE_S = 0.001
_LAST_PAUSE_S = 0.016
_CLEAN_LOOKS = 2
_QUIET_LOOKS = 12
_EXEC_LIMIT_S = 0.1

Keep = Callable[[Mapping[int, Sequence[GroupRecord]]], Awaitable[bool]]
"""Puts the strays of groups, by the groups' numbers, on record in place of what was there; False: it
could not, and is asked again."""


class OrphansStuck(RuntimeError):
    """Processes of no group were left after two seconds of killing; see `pids`."""

    def __init__(self, pids: list[int]) -> None:
        """Remember who is left."""
        super().__init__(
            f"the processes {pids} left their programs' groups and could not be killed: they wait "
            "in the kernel, have another user's rights, or start others faster than they are killed. "
            "They are tried again each second; look at them with ps, or restart the daemon's service"
        )
        self.pids = pids


class Reaper:
    """Only for a process that is a subreaper, and one for each such process."""

    def __init__(self, clock: Clock) -> None:
        """What is a child of this process already, from before it was this program, is spared."""
        self._clock = clock
        self._groups = live_groups()
        self._groups.inherit()
        self._unsure: dict[tuple[int, int], float] = {}
        self._trouble: str | None = None
        self._one = asyncio.Lock()
        self._asked = self._done = 0
        self._left: list[int] = []

    async def run(self, keep: Keep, *, every_s: float = BEAT_S) -> None:
        """Look every `every_s` seconds until cancelled, and have `keep` record what left its group,
        so that it is found again after a kill of this process."""
        dead: frozenset[int] = frozenset()
        while True:
            if len(self._groups):
                self._groups.learn(await asyncio.to_thread(proctable.table))
            await self._beat()
            dead = reap_orphans(dead)
            if (news := self._groups.unrecorded()) and await keep(news):
                self._groups.are_recorded(news)
            await self._clock.sleep(every_s)

    async def clear(self, limit_s: float = LIMIT_S) -> None:
        """Kill what belongs to no live group until two looks in a row find nobody.

        One that was dead already may have left a living child, so it counts as somebody; but where
        programs start and end others all the time, a row of looks without a living one is enough.
        Raises `OrphansStuck` if some are left after `limit_s` seconds.
        """
        self._asked += 1
        asked = self._asked
        try:
            async with asyncio.timeout(limit_s), self._one:
                if self._done >= asked:
                    return  # another one has begun after us, and ended
                begun, self._left = self._asked, []
                await self._until_clean()
                self._done = begun
        except TimeoutError:
            raise OrphansStuck(self._left) from None

    async def probe(self) -> str | None:
        """For the watchdog: what is wrong."""
        return self._trouble

    # -- inside ------------------------------------------------------------------------------------

    async def _until_clean(self) -> None:
        pause_s = _FIRST_PAUSE_S
        clean = quiet = 0
        while clean < _CLEAN_LOOKS and quiet < _QUIET_LOOKS:
            found = self._look_closely()
            clean = clean + 1 if found is None else 0
            quiet = 0 if found else quiet + 1
            is_same = found == self._left
            pause_s = min(2 * pause_s, _LAST_PAUSE_S) if is_same else _FIRST_PAUSE_S
            self._left = found or self._left
            await self._clock.sleep(pause_s if found else 0)
        self._unsure.clear()

    async def _beat(self, limit_s: float = LIMIT_S) -> None:
        try:
            await self.clear(limit_s)
        except OrphansStuck as error:
            if self._trouble is None:
                _log.exception("orphaned processes can't be ended")
            self._trouble = str(error)
        else:
            self._trouble = None

    def _look_closely(self) -> list[int] | None:
        """Look, and at once again while there are others than before. None: there was nobody."""
        before: list[int] | None = None
        until_s = self._clock.monotonic() + _TIGHT_S
        while (found := self._look()) and found != before and self._clock.monotonic() < until_s:
            before = found
        return found

    def _look(self) -> list[int] | None:
        """Kill what belongs to nobody, for some milliseconds: the loop waits for it. Who it was;
        None if there was nobody, not even a dead one that may have left a living child."""
        may_hide = self._groups.collect_dead()
        found: list[int] = []
        until_s = self._clock.monotonic() + _TIGHT_S
        for row in self._groups.orphans():
            if row.is_alive and self._end(row):
                found.append(row.pid)
            if self._clock.monotonic() > until_s:
                may_hide = True
                break
        return found if found or may_hide else None

    def _end(self, row: ProcessRow) -> bool:
        """Kill `row` unless a live group owns it; whether it was to be killed."""
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
        """Whether its mark can't be read for a moment, and may be there."""
        if not proctable.is_being_executed(row.pid):
            return False
        now_s = self._clock.monotonic()
        return now_s - self._unsure.setdefault((row.pid, row.started_ticks), now_s) < _EXEC_LIMIT_S
