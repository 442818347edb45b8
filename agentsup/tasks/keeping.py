"""What of background work may go by itself: runs whose messages have gone, folders of deleted tasks.

Tasks themselves stay until somebody deletes them.
"""

from __future__ import annotations

from agentsup.store.retention import Retention

__all__ = ["retention_rules"]

_DAY_MS = 24 * 3600 * 1000


_RUNS = (
    "created_at < :cutoff"
    " AND run_id IN (SELECT run_id FROM runs ORDER BY created_at LIMIT 2000)"
    " AND NOT EXISTS (SELECT 1 FROM messages m WHERE m.message_id = runs.run_id)"
)
"""Looked at from their beginning, so that nothing walks what is young."""


def retention_rules(*, keep_days: int = 90) -> tuple[Retention, ...]:
    """Runs go with their messages; the latest of a task is known by the task."""
    return (Retention("runs", _RUNS, keep_days * _DAY_MS, key="run_id"),)
