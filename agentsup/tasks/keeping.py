"""What of background work may go by itself: runs whose messages have gone, folders of deleted tasks.

Tasks themselves stay until somebody deletes them.
"""

from __future__ import annotations

from agentsup.store.retention import Retention

__all__ = ["retention_rules"]

_DAY_MS = 24 * 3600 * 1000


def retention_rules(*, keep_days: int = 90) -> tuple[Retention, ...]:
    """Runs go with their messages; the latest of a task is known by the task."""
    gone = "NOT EXISTS (SELECT 1 FROM messages m WHERE m.message_id = {table}.{column})"
    return (
        Retention(
            "runs",
            "created_at < :cutoff AND run_id IN (SELECT run_id FROM runs ORDER BY created_at"
            f" LIMIT 2000) AND {gone.format(table='runs', column='run_id')}",
            keep_days * _DAY_MS,
            key="run_id",
        ),
    )
