"""Process slots: how many engine programs run in all and for each agent, with a fair queue.

A program that waits for a person gives its slot back and is counted as paused, up to a limit of its
own. When the wait ends, it takes a slot at once, even over the limit: its memory is in use already,
so the next start waits instead.
"""

from __future__ import annotations

import asyncio
import itertools
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass

from agentsup.engines.failures import EnginesBusy


@dataclass(frozen=True, slots=True)
class ProcessSlotLimits:
    """Limits on programs: in all, of one agent, paused, and waiting for their start."""

    total: int = 8
    per_agent: int = 4
    paused: int = 8
    waiting: int = 200


class ProcessSlot:
    """The right to run one program. Made by ``ProcessSlots.take``; return it with ``release``."""

    def __init__(self, slots: ProcessSlots, agent: str) -> None:
        self._slots = slots
        self._agent = agent
        self.is_paused = False
        """Whether its program waits for a person and is counted as paused."""
        self._is_taken = True

    def pause(self) -> bool:
        """Count the program as paused and let another start; False if too many are."""
        if not self._is_taken or self.is_paused or not self._slots.may_pause:
            return False
        self.is_paused = True
        self._slots.change(self._agent, running=-1, paused=1)
        return True

    def resume(self) -> None:
        """Count the program as running again."""
        if self.is_paused:
            self.is_paused = False
            self._slots.change(self._agent, running=1, paused=-1)

    def release(self) -> None:
        """Release the slot, as the program is gone. A second call does nothing."""
        self.resume()
        if self._is_taken:
            self._is_taken = False
            self._slots.change(self._agent, running=-1)


@dataclass(slots=True)
class _SlotWaiter:
    number: int
    agent: str
    turn: asyncio.Future[ProcessSlot]


class ProcessSlots:
    """Allocates slots. ``limits`` is called each time, so a changed setting applies at once."""

    def __init__(self, limits: Callable[[], ProcessSlotLimits] = ProcessSlotLimits) -> None:
        self._limits = limits
        self._running: Counter[str] = Counter()
        self.paused = 0
        """Programs that wait for a person."""
        self._numbers = itertools.count()
        self._queue: list[_SlotWaiter] = []

    @property
    def running(self) -> int:
        """Programs that run and are not paused."""
        return self._running.total()

    @property
    def waiting(self) -> int:
        """Starts that wait for a slot."""
        return len(self._queue)

    @property
    def may_pause(self) -> bool:
        """Whether one more program may be paused."""
        return self.paused < self._limits().paused

    def has_room(self, agent: str) -> bool:
        """Whether a program of ``agent`` could start at once."""
        limits = self._limits()
        return (
            not self._queue
            and self.running < limits.total
            and self._running[agent] < limits.per_agent
        )

    async def take(self, agent: str) -> ProcessSlot:
        """Wait for a slot for a program of ``agent`` and return it.

        Raises ``EnginesBusy`` if too many starts wait already. A cancelled call leaves the queue.
        """
        limits = self._limits()
        if len(self._queue) >= limits.waiting:
            raise EnginesBusy(
                f"{limits.waiting} engine programs wait to be started already; try again later "
                "(limits.processes allows more at once)",
                queue="engine programs",
                size=len(self._queue),
                limit=limits.waiting,
            )
        mine = _SlotWaiter(next(self._numbers), agent, asyncio.get_running_loop().create_future())
        self._queue.append(mine)
        self._serve()
        try:
            return await mine.turn
        except asyncio.CancelledError:
            if mine in self._queue:
                self._queue.remove(mine)
            elif mine.turn.done() and not mine.turn.cancelled():
                mine.turn.result().release()  # granted and cancelled at the same time
            raise

    def change(self, agent: str, *, running: int, paused: int = 0) -> None:
        """Change the counts and grant slots that are free now. For ``ProcessSlot`` only."""
        self._running[agent] += running
        if not self._running[agent]:
            del self._running[agent]
        self.paused += paused
        self._serve()

    def _serve(self) -> None:
        while (following := self._next()) is not None:
            self._queue.remove(following)
            self._running[following.agent] += 1
            following.turn.set_result(ProcessSlot(self, following.agent))

    def _next(self) -> _SlotWaiter | None:
        """Return the next start: the oldest of those whose agent runs the fewest programs."""
        limits = self._limits()
        if self.running >= limits.total:
            return None
        able = [
            each
            for each in self._queue
            if self._running[each.agent] < limits.per_agent and not each.turn.done()
        ]
        return min(able, key=lambda each: (self._running[each.agent], each.number), default=None)
