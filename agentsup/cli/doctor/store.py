"""Checks of the store for the doctor: whether a start takes it, and its newest backup."""

from __future__ import annotations

from collections.abc import Iterator

from agentsup.cli.doctor.check import FAIL, OK, Check
from agentsup.config import Home
from agentsup.kit.clock import SystemClock
from agentsup.model.errors import AgentsupError, StoreLost
from agentsup.store import StoreRecord, latest, taken_at

_DAY_MS = 86_400_000


def check_store(home: Home, *, is_running: bool) -> Iterator[Check]:
    """Whether a start will take the store, and what it can be restored from.

    Only the files are read, and the store's own file only if no daemon has it open.
    """
    now = SystemClock().now_ms()
    record = StoreRecord(home.state_db, now_ms=lambda: now, new_id=str)
    if not is_running:
        try:
            record.check()
        except StoreLost as error:
            advice = "put the right files back, restore a backup or accept it"
            yield Check("store", FAIL, error.message, advice)
        except (AgentsupError, OSError) as error:
            yield Check("store", FAIL, str(error))
    if not home.state_db.is_file():
        return
    newest = latest(home.backups)
    if newest is None:
        yield Check("store", OK, "no backup yet: the first is made 10 minutes after a start")
        return
    age_days = (now - (taken_at(newest) or now)) / _DAY_MS
    yield Check("store", OK, f"newest backup {newest.name}, {max(0.0, age_days):.1f} days old")
