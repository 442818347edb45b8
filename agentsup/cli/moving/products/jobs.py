"""When scheduled work runs, in the forms that OpenClaw and nanobot share."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from agentsup.cli.moving.values import number, text_of, time_ms
from agentsup.model.task import NewSchedule


def job_times(schedule: Mapping[str, Any]) -> NewSchedule | None:
    """The times of ``at``, ``every`` or ``cron``; None if nothing is said."""
    kind, zone = schedule.get("kind"), text_of(schedule.get("tz"), 100)
    if kind == "at":
        return at_time(time_ms(_first(schedule, "atMs", "at_ms", "at")))
    every = number(_first(schedule, "everyMs", "every_ms"))
    if kind == "every" and every:
        return NewSchedule(every_s=every / 1000)
    expr = text_of(schedule.get("expr"), 200)
    if kind != "cron" or not expr:
        return None
    parts = expr.split()
    # A sixth field in front is seconds, which are not kept here.
    return NewSchedule(cron=" ".join(parts[1:] if len(parts) == 6 else parts), zone=zone)


def at_time(at: int) -> NewSchedule | None:
    """One time, given in wall ms; None without one."""
    if at <= 0 or at > 2**43 * 1000:
        return None
    try:
        when = datetime.fromtimestamp(at / 1000, UTC)
    except (OverflowError, OSError, ValueError):
        return None
    return NewSchedule(at=when.isoformat(timespec="seconds"), zone="UTC")


def _first(values: Mapping[str, Any], *keys: str) -> Any:
    return next((values[key] for key in keys if values.get(key) is not None), None)
