"""What waits to be written: the latest of each span, bounded. Decisions only, no I/O.

A span that begins and ends between two writes costs one row and one write.
"""

from __future__ import annotations

from agentsup.observe.traces.span import Span

MOST = 4096


class SpanBuffer:
    """Spans by id, in the order in which they were first heard of."""

    def __init__(self, most: int = MOST) -> None:
        self._most = most
        self._waiting: dict[str, Span] = {}
        self.dropped = 0
        """Told since the start and neither written nor waiting: there was no room."""

    def __len__(self) -> int:
        return len(self._waiting)

    def put(self, span: Span) -> None:
        """Keep the span as it is now, in place of what was known of it; drop it if there is no
        room."""
        if span.span_id in self._waiting or len(self._waiting) < self._most:
            self._waiting[span.span_id] = span
        else:
            self.dropped += 1

    def take(self, limit: int) -> list[Span]:
        """Remove and return the first ``limit``."""
        ids = [span_id for span_id, _ in zip(self._waiting, range(limit), strict=False)]
        return [self._waiting.pop(span_id) for span_id in ids]

    def give_back(self, spans: list[Span]) -> None:
        """Put back what could not be written, before the rest; what is newer by now stands."""
        room = self._most - len(self._waiting)
        known = [span for span in spans if span.span_id not in self._waiting]
        self.dropped += max(0, len(known) - room)
        kept = {span.span_id: span for span in known[:room]} if room > 0 else {}
        self._waiting = {**kept, **self._waiting}

    def lose(self, count: int) -> None:
        """Count spans that can't be written at all."""
        self.dropped += count
