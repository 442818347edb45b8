"""How many tasks there are, for the metrics."""

from __future__ import annotations

from agentsup.store.database import Reader

__all__ = ["counts"]


def counts(reader: Reader) -> dict[str, dict[str, int]]:
    """Agent id → state → tasks kept."""
    found: dict[str, dict[str, int]] = {}
    for agent_id, state, number in reader.all(
        "SELECT agent_id, state, count(*) FROM tasks GROUP BY agent_id, state"
    ):
        found.setdefault(agent_id, {})[state] = number
    return found
