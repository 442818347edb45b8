"""A count of events in a sliding window of time, without a clock of its own."""

from __future__ import annotations

from collections import deque


class SlidingWindow:
    """The number of events within the last ``span_s`` seconds.

    The caller gives the time, in seconds of any clock that never goes back. At most ``max_entries``
    events are stored, so the count saturates there and memory is bounded.
    """

    def __init__(self, span_s: float, *, max_entries: int = 10_000) -> None:
        """Count over ``span_s`` seconds. Raises ``ValueError`` for a span that is not positive."""
        if span_s <= 0:
            raise ValueError(f"span_s must be positive, got {span_s}")
        self.span_s = span_s
        self._times: deque[float] = deque(maxlen=max_entries)

    def add(self, at: float) -> None:
        """Record one event at ``at`` (seconds)."""
        self._times.append(at)

    def count(self, now: float) -> int:
        """Events in the half-open span (now - span_s, now]."""
        horizon = now - self.span_s
        while self._times and self._times[0] <= horizon:
            self._times.popleft()
        return len(self._times)
