"""A health probe of the store by real use: a row is written and committed. Serves P9."""

from __future__ import annotations

import shutil
from dataclasses import dataclass

from agentsup.kit.clock import Clock
from agentsup.model.errors import Overloaded, StoreUnavailable
from agentsup.store.database import Database
from agentsup.store.migrate import PUT_META
from agentsup.store.transaction import Tx


@dataclass(frozen=True, slots=True)
class StoreHealth:
    """The result of one probe. ``reason`` is empty if the row was stored."""

    is_ok: bool
    at: int
    disk_free_bytes: int
    is_disk_low: bool
    reason: str = ""
    detail: str = ""


async def probe(database: Database, *, clock: Clock) -> StoreHealth:
    """Write one row as an ordinary write, and return the result; raises no error of the store.

    It waits in the queue like an ordinary write. A caller with a time limit puts ``asyncio.timeout``
    around it.
    """
    at = clock.now_ms()

    def write_row(tx: Tx) -> int:
        tx.execute(PUT_META, ("probe", str(at)))
        return shutil.disk_usage(database.path.parent).free

    try:
        free_bytes = await database.write(write_row, name="probe")
    except (StoreUnavailable, Overloaded) as error:
        reason = str(error.facts.get("reason", error.code))
        free_bytes, detail = 0, error.message
    else:
        reason = detail = ""
    return StoreHealth(
        is_ok=not reason,
        at=at,
        disk_free_bytes=free_bytes,
        is_disk_low=database.stats.is_disk_low,
        reason=reason,
        detail=detail,
    )
