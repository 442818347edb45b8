"""The time by which deadlines are kept: wall time that a step of the clock does not move.

It begins at what the wall says and goes on with the monotonic clock. Where the wall was stepped, the
stored deadlines of this life and this clock move together (`questions.expire_tx`), so that what is
shown agrees with the wall again, and nothing ends early or late. Time in which the machine sleeps does
not count: nobody could answer.
"""

from __future__ import annotations

from typing import Final

from agentsup.kit.clock import Clock

__all__ = ["SETTLE_S", "STEP_MS", "SteadyClock"]

STEP_MS: Final = 2_000
"""A difference of the two clocks over this is a step."""
SETTLE_S: Final = 60.0
"""After a start the wall may still be set: for this long, deadlines of earlier lives don't pass."""


class SteadyClock:
    """One life's clock for deadlines."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._offset_ms = clock.now_ms() - self._elapsed_ms()
        self._settled_s = clock.monotonic()
        self._earlier = (0, 0)

    def begin(self, questions: int, messages: int) -> None:
        """A life begins; the rows up to these numbers are of earlier ones, timed by another clock."""
        self._offset_ms = self._clock.now_ms() - self._elapsed_ms()
        self._settled_s = self._clock.monotonic() + SETTLE_S
        self._earlier = (questions, messages)

    @property
    def earlier(self) -> tuple[int, int]:
        """Up to which row of ``questions`` and ``messages`` deadlines don't pass yet."""
        if self._earlier != (0, 0) and self._clock.monotonic() >= self._settled_s:
            self._earlier = (0, 0)
        return self._earlier

    def now_ms(self) -> int:
        """Wall time in ms as it would be without the steps that are not followed yet."""
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
        """Whether that deadline has passed, or the deadlines are to follow a step."""
        is_past = deadline_at is not None and deadline_at <= self.now_ms()
        return is_past or bool(self.step_ms())

    def follow(self, by_ms: int) -> None:
        """Move with a step of the wall, as the stored deadlines have."""
        self._offset_ms += by_ms

    def _elapsed_ms(self) -> int:
        return round(self._clock.monotonic() * 1000)
