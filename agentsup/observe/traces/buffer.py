"""The spans that wait to be written: the latest state of each, bounded. No I/O.

A span that begins and ends between two writes costs one row and one write.
"""

from __future__ import annotations

from agentsup.observe.traces.span import Span

MOST = 4096


class SpanBuffer:
    """Spans by id, in the order of their first report."""

    def __init__(self, most: int = MOST) -> None:
        self._most = most
        self._waiting: dict[str, Span] = {}
        self.dropped = 0
        """Spans lost since the start, because there was no room."""

    def __len__(self) -> int:
        return len(self._waiting)

    def put(self, span: Span) -> None:
        """Store the present state of the span, in place of an earlier one; drop it if there is no
        room."""
        if span.span_id in self._waiting or len(self._waiting) < self._most:
            self._waiting[span.span_id] = span
        else:
            self.dropped += 1

    def take(self, limit: int) -> list[Span]:
        """Remove and return the first ``limit`` spans."""
        ids = [span_id for span_id, _ in zip(self._waiting, range(limit), strict=False)]
        return [self._waiting.pop(span_id) for span_id in ids]

    def give_back(self, spans: list[Span]) -> None:
        """Put back spans that could not be written, before the others; newer states stay."""
        room = self._most - len(self._waiting)
        known = [span for span in spans if span.span_id not in self._waiting]
        self.dropped += max(0, len(known) - room)
        restored = {span.span_id: span for span in known[:room]} if room > 0 else {}
        self._waiting = {**restored, **self._waiting}

    def lose(self, count: int) -> None:
        """Count spans that can't be written at all."""
        self.dropped += count
