"""The delay before the next attempt, and the number of attempts of late. Pure."""

from __future__ import annotations

from collections import deque


def delay_s(
    attempt: int,
    base_s: float = 1.0,
    factor: float = 2.0,
    cap_s: float = 60.0,
    jitter: float = 0.5,
    unit: float = 0.5,
) -> float:
    """Seconds to wait before attempt number ``attempt`` (0 = the first repetition).

    The plain delay is ``base_s * factor**attempt``, never above ``cap_s``. It is then spread by
    ``jitter`` (0 = none, 0.5 = half to one and a half times), where ``unit`` in [0, 1] selects the
    value, so the caller owns the randomness; 0.5 means no spread. For a fixed ``unit`` the delay
    never falls as ``attempt`` rises. Raises ``ValueError`` for arguments without meaning.
    """
    if attempt < 0:
        raise ValueError(f"attempt must not be negative, got {attempt}")
    if base_s < 0 or cap_s < 0 or factor < 1:
        raise ValueError(f"need base_s, cap_s >= 0 and factor >= 1: {base_s}, {cap_s}, {factor}")
    if not (0 <= jitter <= 1 and 0 <= unit <= 1):
        raise ValueError(f"jitter and unit must lie in [0, 1], got {jitter} and {unit}")
    try:
        plain_s = min(cap_s, base_s * factor**attempt)
    except OverflowError:
        plain_s = cap_s if base_s > 0 else 0.0
    return plain_s * (1 - jitter + 2 * jitter * unit)


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
