"""Retention of background work: runs whose messages were removed, and reminders that are over.

Other tasks stay until somebody deletes them.
"""

from __future__ import annotations

from agentsup.store import Retention

_DAY_MS = 24 * 3600 * 1000


_RUNS = (
    "created_at < :cutoff"
    " AND NOT EXISTS (SELECT 1 FROM messages m WHERE m.message_id = runs.run_id)"
)
"""Selected by creation time, so that young runs are not scanned. Old runs whose messages stay
(failed messages) are skipped; however many they are, the runs after them are removed."""


_REMINDED = "does = 'tell' AND state <> 'todo' AND finished_at < :cutoff"


def retention_rules(*, keep_days: int = 90) -> tuple[Retention, ...]:
    """Runs are removed after their messages; the latest one of a task is stored with the task.

    Reminders that are over are removed, too.
    """
    return (
        Retention("runs", _RUNS, keep_days * _DAY_MS, key="run_id"),
        Retention("tasks", _REMINDED, keep_days * _DAY_MS, key="task_id"),
    )
