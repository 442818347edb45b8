"""The clock of deadlines and pauses: wall time that does not move when the wall clock is stepped.

It starts at the wall clock's time and advances with the monotonic clock. After a step of the wall
clock, the times that this boot has stored and this clock move together, in one transaction
(``mailbox.lifecycle.deadlines``). So the times that are shown agree with the wall clock again, and
nothing ends early or late. Time in which the machine sleeps does not count: nobody could answer.

Times that an earlier boot has stored were measured by another clock. They are not changed until the
wall clock has had time to be set; then they are compared with it.
"""

from __future__ import annotations

from dataclasses import dataclass
from threading import Lock
from typing import Final

from agentsup.kit.clock import Clock

STEP_MS: Final = 2_000
"""A difference of the two clocks over this is a step."""
SETTLE_S: Final = 60.0
"""For this long after a start, deadlines of earlier boots don't pass: the wall clock may still be
set."""


@dataclass(frozen=True, slots=True)
class Earlier:
    """The rows that earlier boots have left in the store."""

    questions: int = 0
    """The last row of ``questions``."""
    messages: int = 0
    """The last ``seq`` of ``messages``."""
    parts: tuple[tuple[int, int], ...] = ()
    """``outbox_id`` and ``not_before`` of the parts that wait for another attempt."""


NOTHING_EARLIER: Final = Earlier()


class SteadyClock:
    """The clock for deadlines and pauses of one boot.

    It is read in the event loop and in the writer's thread. A time to be stored is computed in the
    transaction that stores it.
    """

    def __init__(self, clock: Clock) -> None:
        """Start at the wall clock's time, with no rows of an earlier boot."""
        self._clock = clock
        self._lock = Lock()
        self._offset_ms = clock.now_ms() - self._elapsed_ms()
        self._settled_s = clock.monotonic()
        self._earlier = NOTHING_EARLIER

    def begin(self, earlier: Earlier) -> None:
        """Start again for a boot; ``earlier`` are the rows that earlier boots have left."""
        with self._lock:
            self._offset_ms = self._clock.now_ms() - self._elapsed_ms()
        self._settled_s = self._clock.monotonic() + SETTLE_S
        self._earlier = earlier

    @property
    def earlier(self) -> Earlier:
        """The rows whose times an earlier boot has stored; none once these were settled."""
        return self._earlier

    @property
    def can_settle(self) -> bool:
        """Whether the wall clock has had time to be set, and times of earlier boots are left."""
        return self._earlier != NOTHING_EARLIER and self._clock.monotonic() >= self._settled_s

    def settle(self, earlier: Earlier = NOTHING_EARLIER) -> None:
        """Treat all stored times as times of this clock, except those of ``earlier``."""
        self._earlier = earlier

    def now_ms(self) -> int:
        """Wall time in ms as it would be without the steps that are not followed yet."""
        with self._lock:
            wall_ms, own_ms = self._clock.now_ms(), self._offset_ms + self._elapsed_ms()
            if abs(wall_ms - own_ms) > STEP_MS:
                return own_ms
            self._offset_ms += wall_ms - own_ms  # the clocks drift, and the wall clock is slewed
            return wall_ms

    def step_ms(self) -> int:
        """Steps of the wall clock since ``follow``, in ms; 0 for mere drift."""
        by = self._clock.now_ms() - self.now_ms()
        return by if abs(by) > STEP_MS else 0

    def is_due(self, deadline_at: int | None) -> bool:
        """Whether that deadline has passed, or stored times have to follow the wall clock."""
        is_past = deadline_at is not None and deadline_at <= self.now_ms()
        return is_past or self.can_settle or bool(self.step_ms())

    def follow(self, by_ms: int) -> None:
        """Move with a step of the wall clock, as the stored times do in the same transaction."""
        with self._lock:
            self._offset_ms += by_ms

    def _elapsed_ms(self) -> int:
        return round(self._clock.monotonic() * 1000)
