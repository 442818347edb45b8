"""Requests, made by a tool, to rebuild an agent's stack after the commit of the turn's end."""

from __future__ import annotations

_MOST = 1_000
"""Most requests that are held. The request of a stopped turn is never taken, so the oldest are
dropped."""


class Restarts:
    """The open requests, in memory only: a restarted daemon rebuilds all stacks anyway."""

    def __init__(self) -> None:
        self._asked: dict[str, None] = {}

    def ask(self, message_id: str) -> None:
        """Request a rebuild of the agent after its turn on this message."""
        self._asked[message_id] = None
        if len(self._asked) > _MOST:
            del self._asked[next(iter(self._asked))]

    def is_asked(self, message_id: str) -> bool:
        """Whether a rebuild was requested for this turn."""
        return message_id in self._asked

    def take(self, message_id: str) -> bool:
        """Whether a rebuild was requested for this turn. Removes the request."""
        return self._asked.pop(message_id, ...) is None
