"""A health probe of the store by real use: a row is written and committed. Serves P9."""

from __future__ import annotations

from agentsup.kit.clock import Clock
from agentsup.model.errors import Overloaded, StoreUnavailable
from agentsup.store.database import Database
from agentsup.store.migrate import PUT_META


async def probe(database: Database, *, clock: Clock) -> str | None:
    """Write one row as an ordinary write; returns None, or what is wrong with the store.

    It waits in the queue like an ordinary write. A caller with a time limit puts ``asyncio.timeout``
    around it.
    """
    row = ("probe", str(clock.now_ms()))
    try:
        await database.write(lambda tx: tx.execute(PUT_META, row).rowcount, name="probe")
    except (StoreUnavailable, Overloaded) as error:
        return error.message
    return None
