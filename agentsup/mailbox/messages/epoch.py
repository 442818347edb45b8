"""Stop epochs: a counter per scope that only grows.

A stop raises the counter in memory at once, before anything is on the disk; from then on no message
in the scope is leased or completed. The stop's transaction makes it durable. A stop that could not
be written is remembered here and carried out by the next claim that can write (P5).
"""

from __future__ import annotations

from collections.abc import Callable

from agentsup.store import Tx

ALL = "all"
Also = Callable[[Tx], None]
"""A further write in the transaction of a stop."""


def agent_scope(agent_id: str) -> str:
    """The scope of everything one agent does."""
    return f"agent:{agent_id}"


def session_scope(session_id: str) -> str:
    """The scope of one session."""
    return f"session:{session_id}"


def scopes_of(agent_id: str, session_id: str = "") -> tuple[str, ...]:
    """Every scope that a message of this agent and session belongs to."""
    if not session_id:
        return ALL, agent_scope(agent_id)
    return ALL, agent_scope(agent_id), session_scope(session_id)


class EpochMap:
    """The epochs as this process knows them. The writer's thread reads it, the loop changes it."""

    def __init__(self) -> None:
        """Start without any stop."""
        self._counters: dict[str, int] = {}
        self._raised: dict[str, int] = {}
        self._unwritten: dict[str, tuple[int, Also | None]] = {}

    def current(self, scope: str) -> int:
        """The counter of ``scope``; 0 if it was never stopped."""
        return self._counters.get(scope, 0)

    def seen(self, agent_id: str, session_id: str) -> tuple[int, ...]:
        """The counters that concern one message, to be compared later."""
        return tuple(self.current(scope) for scope in scopes_of(agent_id, session_id))

    def raise_now(self, scope: str) -> int:
        """Begin a stop of ``scope`` in memory and return its new counter."""
        counter = self.current(scope) + 1
        self._counters[scope] = counter
        self._raised[scope] = counter
        return counter

    def merge(self, scope: str, counter: int) -> None:
        """Add a counter from the store or from another node: the larger one is kept."""
        self._counters[scope] = max(counter, self.current(scope))

    def raised(self, scope: str) -> int | None:
        """The counter of a stop that is not committed yet, or None."""
        return self._raised.get(scope)

    def written(self, scope: str, counter: int) -> None:
        """Record that the stop is durable."""
        self.merge(scope, counter)
        self._raised.pop(scope, None)
        self._unwritten.pop(scope, None)

    def not_written(self, scope: str, at: int, also: Also | None = None) -> None:
        """Record that the stop could not be made durable; it holds in memory.

        ``at`` is the stop's wall time (ms); ``also`` is to be done when it is written.
        """
        self._raised.pop(scope, None)
        earlier_at, earlier_also = self._unwritten.get(scope, (0, None))
        self._unwritten[scope] = (max(at, earlier_at), also or earlier_also)

    @property
    def unwritten(self) -> dict[str, tuple[int, Also | None]]:
        """Stops that still have to be written, by scope: the wall time (ms) of the stop, and what
        else to do when it is written."""
        return dict(self._unwritten)

    def stops(self, agent_id: str, session_id: str, accepted_at: int) -> bool:
        """Whether a stop that is not in the store yet covers this message."""
        if not self._raised and not self._unwritten:
            return False
        return any(
            scope in self._raised or accepted_at <= self._unwritten.get(scope, (-1, None))[0]
            for scope in scopes_of(agent_id, session_id)
        )
