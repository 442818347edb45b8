"""Turns whose agent has asked, by a tool, to begin anew once the turn's end is committed."""

from __future__ import annotations

_MOST = 1_000
"""Requests kept for turns that have not ended; one that was stopped leaves its own behind."""


class Restarts:
    """Kept in memory: a process that ends has begun anew anyway."""

    def __init__(self) -> None:
        self._asked: dict[str, None] = {}

    def ask(self, message_id: str) -> None:
        """The agent that works on this message is to begin anew after it."""
        self._asked[message_id] = None
        if len(self._asked) > _MOST:
            del self._asked[next(iter(self._asked))]

    def take(self, message_id: str) -> bool:
        """Whether that was asked for; asked again, it was not."""
        return self._asked.pop(message_id, ...) is None
