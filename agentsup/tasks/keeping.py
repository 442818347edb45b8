"""What of background work may go by itself: runs whose messages have gone, folders of deleted tasks.

Tasks themselves stay until somebody deletes them.
"""

from __future__ import annotations

from agentsup.store.retention import Retention

__all__ = ["retention_rules"]

_DAY_MS = 24 * 3600 * 1000


_RUNS = (
    "created_at < :cutoff"
    " AND NOT EXISTS (SELECT 1 FROM messages m WHERE m.message_id = runs.run_id)"
)
"""By when they were made, so that nothing walks what is young. Old ones whose messages stay, as dead
letters do, are passed over: however many they are, those behind them go."""


def retention_rules(*, keep_days: int = 90) -> tuple[Retention, ...]:
    """Runs go with their messages; the latest of a task is known by the task."""
    return (Retention("runs", _RUNS, keep_days * _DAY_MS, key="run_id"),)
