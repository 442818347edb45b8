"""The schedules that a stop leaves as they are, so that it can name them."""

from __future__ import annotations

from agentsup.model.control import StandingSchedule
from agentsup.store.database import Reader, Tx

__all__ = ["standing"]

_MOST = 100


def standing(reader: Reader | Tx, scope: str) -> tuple[StandingSchedule, ...]:
    """The tasks in ``scope`` (``all``, ``agent:<id>``) that run again by themselves, the next one
    first. A session has no schedules: each is a task of its own."""
    kind, _, subject = scope.partition(":")
    if kind not in ("all", "agent"):
        return ()
    rows = reader.all(
        "SELECT t.task_id, t.name, s.next_at, s.zone FROM schedules AS s"
        " JOIN tasks AS t ON t.task_id = s.task_id"
        " WHERE s.next_at IS NOT NULL AND s.is_paused = 0 AND (? = '' OR t.agent_id = ?)"
        " ORDER BY s.next_at, t.task_id LIMIT ?",
        (subject, subject, _MOST),
    )
    return tuple(StandingSchedule(*row) for row in rows)
