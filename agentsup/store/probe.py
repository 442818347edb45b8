"""Whether the store works, found out by using it: a real row, written and committed. Serves P9."""

import shutil
from dataclasses import dataclass

from agentsup.kit.clock import Clock
from agentsup.model.errors import Overloaded, StoreUnavailable
from agentsup.store.database import Database
from agentsup.store.transaction import Tx

__all__ = ["StoreHealth", "probe"]


@dataclass(frozen=True, slots=True)
class StoreHealth:
    """The outcome of one probe. `reason` is empty if the store took the row."""

    is_ok: bool
    at: int
    latency_ms: float
    disk_free_bytes: int
    is_disk_low: bool
    reason: str = ""
    detail: str = ""


async def probe(database: Database, *, clock: Clock) -> StoreHealth:
    """Write one row the way everybody writes, and say how that went; raises nothing of the store.

    It waits in the queue like an ordinary write, so its latency is what callers see. A caller
    that wants an answer in time puts `asyncio.timeout` around it.
    """
    at = clock.now_ms()
    began_at = clock.monotonic()

    def write_row(tx: Tx) -> int:
        tx.execute(
            "INSERT INTO store_meta (key, value) VALUES ('probe', ?) "
            "ON CONFLICT (key) DO UPDATE SET value = excluded.value",
            (str(at),),
        )
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
        latency_ms=(clock.monotonic() - began_at) * 1000,
        disk_free_bytes=free_bytes,
        is_disk_low=database.stats.is_disk_low,
        reason=reason,
        detail=detail,
    )
