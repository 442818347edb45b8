"""The load of each agent and the durations of its turns, in memory.

The load is the number of open messages, so that a choice among agents reads nothing. It is read from
the store once, when the mailbox is loaded. After that the transactions that accept, end or requeue a
message change it, in the writer's thread; what is rolled back is taken back before any other function
runs. So a choice in the writer sees every earlier one of the same commit, and the loop may see a
change a moment before it is durable.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import partial
from types import MappingProxyType

from agentsup.store import Reader, Tx

_STORED_SQL = """
SELECT c.agent_id, SUM(c.count) FILTER (WHERE c.state IN ('queued', 'leased', 'parked')),
  (SELECT max(m.accepted_at, coalesce(m.finished_at, 0)) FROM messages m
    WHERE m.agent_id = c.agent_id ORDER BY m.seq DESC LIMIT 1)
FROM counts c GROUP BY c.agent_id
"""


def stored_loads(reader: Reader) -> list[tuple[str, int, int]]:
    """Of each agent, by the store: its id, its open messages, and when it last got or ended one."""
    return [(row[0], row[1] or 0, row[2] or 0) for row in reader.all(_STORED_SQL)]


class AgentLoads:
    """The loads of all agents; ``begin`` comes before any work."""

    def __init__(self) -> None:
        """Start without any message."""
        self._open: dict[str, int] = {}
        self._last_at: dict[str, int] = {}
        self._is_begun = False
        self.open: Mapping[str, int] = MappingProxyType(self._open)
        """The number of open messages by agent; agents that never had one are left out."""
        self.last_at: Mapping[str, int] = MappingProxyType(self._last_at)
        """When (wall ms) an agent last got or ended a message."""

    def begin(self, stored: Iterable[tuple[str, int, int]]) -> None:
        """Take over the loads of earlier boots, from ``stored_loads``."""
        self._is_begun = True
        for agent_id, count, last_at in stored:
            self._open[agent_id], self._last_at[agent_id] = count, last_at

    def are(self, agent_id: str, count: int) -> bool:
        """Whether the agent has exactly so many open messages; False if that is not known. Only a
        transaction may ask, since what it sees may be rolled back later."""
        return self._is_begun and self._open.get(agent_id, 0) == count

    def change_tx(self, tx: Tx, agent_id: str, by: int, *, at: int) -> None:
        """Change the open messages of an agent with the rows; ``at`` is the wall time in ms."""
        count, last_at = self._open.get(agent_id, 0), self._last_at.get(agent_id, 0)
        tx.after_rollback(partial(self._restore, agent_id, count, last_at))
        self._restore(agent_id, count + by, at)

    def _restore(self, agent_id: str, count: int, last_at: int) -> None:
        self._open[agent_id], self._last_at[agent_id] = count, last_at


_WEIGHT = 0.2  # of the newest sample: about the last ten turns decide


def eta_s(position: int, mean_s: float | None, slots: int) -> float | None:
    """Estimated seconds until a message with ``position`` others before it is done.

    None where nothing was measured yet.
    """
    return None if mean_s is None else (position + 1) * mean_s / max(1, slots)


class TurnDurations:
    """A moving mean per agent, in seconds."""

    def __init__(self) -> None:
        """Start without measurements."""
        self._means_s: dict[str, float] = {}

    def sample(self, agent_id: str, seconds: float) -> None:
        """Add a finished turn that took ``seconds``."""
        old = self._means_s.get(agent_id)
        new = max(0.0, seconds)
        self._means_s[agent_id] = new if old is None else old + _WEIGHT * (new - old)

    def seed(self, agent_id: str, seconds: float) -> None:
        """Set a mean read from the store, unless there is a measured one."""
        self._means_s.setdefault(agent_id, seconds)

    def mean_s(self, agent_id: str) -> float | None:
        """The mean, or None before the first turn."""
        return self._means_s.get(agent_id)
