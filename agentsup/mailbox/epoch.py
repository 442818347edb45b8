"""Stop epochs: a counter per scope that only grows.

A stop raises the counter in memory at once, before anything is on the disk; from that instant
nothing in the scope is handed out or completed. The stop's transaction makes it durable. A stop
that could not be written is kept here and carried out by the next claim that can write (P5).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from agentsup.store.database import Tx

__all__ = ["ALL", "Also", "EpochMap", "agent_scope", "scopes_of", "session_scope"]

ALL = "all"
Also = Callable[[Tx], None]
"""What else is written in the transaction of a stop."""


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
    """The epochs as this process knows them. Read by the writer's thread, changed by the loop's."""

    def __init__(self) -> None:
        """Nothing was ever stopped."""
        self._counters: dict[str, int] = {}
        self._raised: dict[str, int] = {}
        self._unwritten: dict[str, int] = {}
        self._unwritten_also: dict[str, Also] = {}

    def current(self, scope: str) -> int:
        """The counter of `scope`; 0 if it was never stopped."""
        return self._counters.get(scope, 0)

    def seen(self, agent_id: str, session_id: str) -> tuple[int, ...]:
        """The counters that concern one message, to be compared later."""
        return tuple(self.current(scope) for scope in scopes_of(agent_id, session_id))

    def raise_now(self, scope: str) -> int:
        """Begin a stop of `scope` in memory and return its new counter."""
        counter = self.current(scope) + 1
        self._counters[scope] = counter
        self._raised[scope] = counter
        return counter

    def merge(self, scope: str, counter: int) -> None:
        """Take over a counter read from the store or told by another node: the larger one wins."""
        self._counters[scope] = max(counter, self.current(scope))

    def merge_all(self, counters: Mapping[str, int]) -> None:
        """`merge` for each."""
        for scope, counter in counters.items():
            self.merge(scope, counter)

    def raised(self, scope: str) -> int | None:
        """The counter of a stop that is under way, or None."""
        return self._raised.get(scope)

    def written(self, scope: str, counter: int) -> None:
        """The stop is durable."""
        self.merge(scope, counter)
        self._raised.pop(scope, None)
        self._unwritten.pop(scope, None)
        self._unwritten_also.pop(scope, None)

    def not_written(self, scope: str, at: int, also: Also | None = None) -> None:
        """The stop of wall time `at` could not be made durable; it holds in memory. `also` is to
        be done when it is written."""
        self._raised.pop(scope, None)
        if also is not None:
            self._unwritten_also[scope] = also
        self._unwritten[scope] = max(at, self._unwritten.get(scope, 0))

    @property
    def unwritten(self) -> dict[str, int]:
        """Stops that still have to be written: scope and the wall time (ms) of the stop."""
        return dict(self._unwritten)

    def unwritten_also(self, scope: str) -> Also | None:
        """What else to do when that stop is written."""
        return self._unwritten_also.get(scope)

    def stops(self, agent_id: str, session_id: str, accepted_at: int) -> bool:
        """Whether a stop that is not in the store yet covers this message."""
        if not self._raised and not self._unwritten:
            return False
        return any(
            scope in self._raised or accepted_at <= self._unwritten.get(scope, -1)
            for scope in scopes_of(agent_id, session_id)
        )

    def newer_than(self, recorded: Mapping[str, int], scopes: Iterable[str]) -> str | None:
        """The first of `scopes` that was stopped after `recorded` was taken, or None."""
        for scope in scopes:
            if self.current(scope) > recorded.get(scope, 0):
                return scope
        return None
