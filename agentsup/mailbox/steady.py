"""The time by which deadlines and pauses are kept: wall time that a step of the clock does not move.

It begins at what the wall says and goes on with the monotonic clock. Where the wall was stepped, the
stored times of this life and this clock move together, in one transaction (`deadlines.follow_tx`), so
that what is shown agrees with the wall again, and nothing ends early or late. Time in which the machine
sleeps does not count: nobody could answer.

Times that an earlier life has stored are told by another clock. They are left alone until the wall has
had time to be set; then the wall decides (`deadlines.settle_tx`).
"""

from __future__ import annotations

from dataclasses import dataclass
from threading import Lock
from typing import Final

from agentsup.kit.clock import Clock

__all__ = ["NOTHING_EARLIER", "SETTLE_S", "STEP_MS", "Earlier", "SteadyClock"]

STEP_MS: Final = 2_000
"""A difference of the two clocks over this is a step."""
SETTLE_S: Final = 60.0
"""After a start the wall may still be set: for this long, deadlines of earlier lives don't pass."""


@dataclass(frozen=True, slots=True)
class Earlier:
    """What earlier lives have left in the store."""

    questions: int = 0
    """The last row of ``questions``."""
    messages: int = 0
    """The last ``seq`` of ``messages``."""
    parts: tuple[tuple[int, int], ...] = ()
    """``outbox_id`` and ``not_before`` of the parts that wait for another attempt."""


NOTHING_EARLIER: Final = Earlier()


class SteadyClock:
    """One life's clock for deadlines and pauses. It is read in the loop and in the writer's thread;
    what is stored by it is computed in the transaction that stores it."""

    def __init__(self, clock: Clock) -> None:
        """Begin at the wall's time, with nothing of an earlier life."""
        self._clock = clock
        self._lock = Lock()
        self._offset_ms = clock.now_ms() - self._elapsed_ms()
        self._settled_s = clock.monotonic()
        self._earlier = NOTHING_EARLIER

    def begin(self, earlier: Earlier) -> None:
        """A life begins; ``earlier`` is what others have left."""
        with self._lock:
            self._offset_ms = self._clock.now_ms() - self._elapsed_ms()
        self._settled_s = self._clock.monotonic() + SETTLE_S
        self._earlier = earlier

    @property
    def earlier(self) -> Earlier:
        """What is timed by the clock of an earlier life; nothing once the wall has decided about it."""
        return self._earlier

    @property
    def can_settle(self) -> bool:
        """Whether the wall has had its time to be set, and is to decide about what is left of before."""
        return self._earlier != NOTHING_EARLIER and self._clock.monotonic() >= self._settled_s

    def settle(self, earlier: Earlier = NOTHING_EARLIER) -> None:
        """From now on all stored times are of this clock, but those of ``earlier``."""
        self._earlier = earlier

    def now_ms(self) -> int:
        """Wall time in ms as it would be without the steps that are not followed yet."""
        with self._lock:
            wall_ms, own_ms = self._clock.now_ms(), self._offset_ms + self._elapsed_ms()
            if abs(wall_ms - own_ms) > STEP_MS:
                return own_ms
            self._offset_ms += wall_ms - own_ms  # the clocks drift, and the wall is slewed
            return wall_ms

    def step_ms(self) -> int:
        """By how much the wall was stepped since it was followed last; 0 for the drift of clocks."""
        by = self._clock.now_ms() - self.now_ms()
        return by if abs(by) > STEP_MS else 0

    def is_due(self, deadline_at: int | None) -> bool:
        """Whether that deadline has passed, or stored times are to follow the wall."""
        is_past = deadline_at is not None and deadline_at <= self.now_ms()
        return is_past or self.can_settle or bool(self.step_ms())

    def follow(self, by_ms: int) -> None:
        """Move with a step of the wall, as the stored times do in the same transaction."""
        with self._lock:
            self._offset_ms += by_ms

    def _elapsed_ms(self) -> int:
        return round(self._clock.monotonic() * 1000)
