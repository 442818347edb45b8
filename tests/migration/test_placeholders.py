"""From a store of before: what was streamed before the upgrade is found again, and what is known."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

from agentsup.channels.core.live.placeholders import Placeholder, Trust, all_of
from agentsup.kit.clock import SystemClock
from agentsup.store import Database, StoreOptions
from agentsup.store.migrate import migrate, packaged
from tests.migration.test_persons import insert

BEFORE = next(n for n, one in enumerate(packaged()) if one.name == "placeholders")


async def test_placeholders_of_both_platforms_are_taken_over(tmp_path: Path) -> None:
    with closing(sqlite3.connect(tmp_path / "state.db", isolation_level=None)) as db:
        migrate(db, packaged()[:BEFORE], now_ms=lambda: 1)
        own = {"agent_id": "agt_ada", "at": 5}
        insert(db, "streams", message_id="m1", conversation="7", platform_id=41, **own)
        insert(db, "streams", message_id="m2", conversation="-8/3", platform_id=-42, **own)
        for name, event_id, trusted in (("m3", "$a", 0), ("m4", "$b", 1), ("m5", "", 2)):
            insert(
                db,
                "matrix_streams",
                message_id=name,
                conversation="!r:h",
                event_id=event_id,
                trusted=trusted,
                **own,
            )
    database = await Database.open(
        tmp_path / "state.db", clock=SystemClock(), options=StoreOptions(reserve_bytes=0)
    )
    try:
        telegram = await database.read(lambda reader: all_of(reader, "telegram", "agt_ada"))
        matrix = await database.read(lambda reader: all_of(reader, "matrix", "agt_ada"))
    finally:
        await database.close()
    assert telegram == [
        Placeholder("m1", "7", "41", 5, Trust.TRUSTED),
        Placeholder("m2", "-8/3", "42", 5, Trust.UNSAFE),
    ]
    assert matrix == [
        Placeholder("m3", "!r:h", "$a", 5, Trust.UNSAFE),
        Placeholder("m4", "!r:h", "$b", 5, Trust.TRUSTED),
        Placeholder("m5", "!r:h", "", 5, Trust.REPLACING),
    ]
