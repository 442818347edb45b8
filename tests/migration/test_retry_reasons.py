"""A part that waited for its bot before the upgrade is due as soon as the bot connects."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

from agentsup.kit.clock import SystemClock
from agentsup.mailbox.delivery import outbox
from agentsup.model.channel import RetryReason
from agentsup.store import Database, StoreOptions
from agentsup.store.migrate import migrate, packaged
from tests.migration.test_persons import insert

BEFORE = next(n for n, one in enumerate(packaged()) if one.name == "retry_reason")


async def test_what_waited_for_a_bot_still_does(tmp_path: Path) -> None:
    path = tmp_path / "state.db"
    part = {
        "message_id": "m",
        "agent_id": "a",
        "channel": "telegram",
        "conversation": "7",
        "kind": "answer",
        "body": "{}",
        "not_before": 9_000_000_000_000,
        "created_at": 5,
    }
    with closing(sqlite3.connect(path, isolation_level=None)) as db:
        migrate(db, packaged()[:BEFORE], now_ms=lambda: 1)
        for number, (state, detail) in enumerate(
            (
                ("pending", "the bot is not connected"),
                ("pending", "the platform asks for a pause of 3.0 s"),
                ("dropped", "the bot is not connected"),
            )
        ):
            insert(db, "outbox", part_no=number, state=state, detail=detail, **part)
    store = await Database.open(path, clock=SystemClock(), options=StoreOptions(reserve_bytes=0))
    try:
        woken = await store.write(
            lambda tx: outbox.make_due_tx(
                tx, channel="telegram", agent_id="a", reason=RetryReason.ABSENT_BOT
            )
        )
        rows = await store.read(
            lambda reader: [
                tuple(row)
                for row in reader.all("SELECT part_no, not_before, retry_reason FROM outbox")
            ]
        )
    finally:
        await store.close()
    assert woken == 1
    assert rows == [
        (0, 0, "absent_bot"),
        (1, 9_000_000_000_000, ""),
        (2, 9_000_000_000_000, ""),
    ]
