"""Who may run a program now: a bounded number in all and for each agent, and a fair queue.

A program that waits for a person gives its berth back and is counted as held, up to a limit of its
own. Coming back it takes its berth again at once, even over the limit: its memory is taken already,
so it is the next start that waits.
"""

from __future__ import annotations

import asyncio
import itertools
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass

from agentsup.engines.failures import EnginesBusy


@dataclass(frozen=True, slots=True)
class BerthLimits:
    """How many programs run at once in all, for one agent, held, and how many starts may wait."""

    total: int = 8
    per_agent: int = 4
    held: int = 8
    waiting: int = 200


class Berth:
    """The right to run one program. Made by ``Berths.take``; give it back with ``leave``."""

    def __init__(self, berths: Berths, agent: str) -> None:
        self._berths = berths
        self._agent = agent
        self._is_held = False
        self._is_taken = True

    @property
    def is_held(self) -> bool:
        """Its program waits for a person and is counted apart."""
        return self._is_held

    def hold(self) -> bool:
        """Count the program as held and let another start; False where too many are held."""
        if not self._is_taken or self._is_held or not self._berths.may_hold:
            return False
        self._is_held = True
        self._berths.change(self._agent, running=-1, held=1)
        return True

    def resume(self) -> None:
        """Count the program as running again."""
        if self._is_held:
            self._is_held = False
            self._berths.change(self._agent, running=1, held=-1)

    def leave(self) -> None:
        """The program is gone. May be called repeatedly."""
        self.resume()
        if self._is_taken:
            self._is_taken = False
            self._berths.change(self._agent, running=-1)


@dataclass(slots=True)
class _Waiting:
    number: int
    agent: str
    turn: asyncio.Future[Berth]


class Berths:
    """The allocator. ``limits`` is asked anew each time, so that a changed setting holds at once."""

    def __init__(self, limits: Callable[[], BerthLimits] = BerthLimits) -> None:
        self._limits = limits
        self._running: Counter[str] = Counter()
        self._held = 0
        self._numbers = itertools.count()
        self._queue: list[_Waiting] = []

    @property
    def running(self) -> int:
        """Programs that run and are not held."""
        return self._running.total()

    @property
    def held(self) -> int:
        """Programs that wait for a person."""
        return self._held

    @property
    def waiting(self) -> int:
        """Starts that wait for a berth."""
        return len(self._queue)

    @property
    def may_hold(self) -> bool:
        """Whether one more program may be held."""
        return self._held < self._limits().held

    def has_room(self, agent: str) -> bool:
        """Whether a program of ``agent`` could start at once."""
        limits = self._limits()
        return (
            not self._queue
            and self.running < limits.total
            and self._running[agent] < limits.per_agent
        )

    async def take(self, agent: str) -> Berth:
        """A berth for a program of ``agent``, waiting for one where none is free.

        Raises ``EnginesBusy`` where too many wait already. Cancelling the wait leaves the queue.
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
        mine = _Waiting(next(self._numbers), agent, asyncio.get_running_loop().create_future())
        self._queue.append(mine)
        self._serve()
        try:
            return await mine.turn
        except asyncio.CancelledError:
            if mine in self._queue:
                self._queue.remove(mine)
            elif mine.turn.done() and not mine.turn.cancelled():
                mine.turn.result().leave()  # given and taken away in the same moment
            raise

    def change(self, agent: str, *, running: int, held: int = 0) -> None:
        """Book a change and start those whose turn it is now. For ``Berth``."""
        self._running[agent] += running
        if not self._running[agent]:
            del self._running[agent]
        self._held += held
        self._serve()

    def _serve(self) -> None:
        while (following := self._next()) is not None:
            self._queue.remove(following)
            self._running[following.agent] += 1
            following.turn.set_result(Berth(self, following.agent))

    def _next(self) -> _Waiting | None:
        """The start whose turn it is: of the agent with the fewest running, who waits longest."""
        limits = self._limits()
        if self.running >= limits.total:
            return None
        able = [
            each
            for each in self._queue
            if self._running[each.agent] < limits.per_agent and not each.turn.done()
        ]
        return min(able, key=lambda each: (self._running[each.agent], each.number), default=None)
