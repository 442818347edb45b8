"""What the doctor says of the store: whether a start will take it, and what it can be restored from."""

from __future__ import annotations

from collections.abc import Iterator

from agentsup.config.home import Home
from agentsup.kit.clock import SystemClock
from agentsup.model.errors import AgentsupError, StoreLost
from agentsup.store.backup import latest, taken_at
from agentsup.store.record import StoreRecord

_DAY_MS = 86_400_000


def look(home: Home, *, is_running: bool) -> Iterator[tuple[bool, str, str]]:
    """Whether all is well, what is said, and what to do, of each thing that is looked at.

    The file alone is looked at, and only where no daemon has it open.
    """
    now = SystemClock().now_ms()
    record = StoreRecord(home.state_db, now_ms=lambda: now, new_id=str)
    if not is_running:
        try:
            record.check()
        except StoreLost as error:
            yield False, error.message, "put the right files back, restore a backup or accept it"
        except (AgentsupError, OSError) as error:
            yield False, str(error), ""
    if not home.state_db.is_file():
        return
    newest = latest(home.backups)
    if newest is None:
        yield True, "no backup yet: the first is made 10 minutes after a start", ""
        return
    age_days = (now - (taken_at(newest) or now)) / _DAY_MS
    yield True, f"newest backup {newest.name}, {max(0.0, age_days):.1f} days old", ""
