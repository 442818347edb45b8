"""A store with spans opens without them, and its turns are read from the journal."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

from agentsup.kit.clock import SystemClock
from agentsup.observe.traces import tree, views
from agentsup.store import Database, StoreOptions
from agentsup.store.migrate import migrate, packaged
from tests.migration.test_persons import insert

BEFORE = next(n for n, one in enumerate(packaged()) if one.name == "no_spans")
TRACE = "ab" * 16


async def test_turns_of_before_are_traces(tmp_path: Path) -> None:
    path = tmp_path / "state.db"
    with closing(sqlite3.connect(path, isolation_level=None)) as db:
        migrate(db, packaged()[:BEFORE], now_ms=lambda: 1)
        insert(db, "agents", agent_id="a", name="ann", created_at=1)
        insert(db, "sessions", session_id="s", agent_id="a", key="k", created_at=1, updated_at=1)
        insert(
            db,
            "messages",
            message_id="m",
            agent_id="a",
            session_id="s",
            kind="chat",
            lane="interactive",
            priority=2,
            state="done",
            outcome="ok",
            parts="[]",
            principal="{}",
            deliver_to="{}",
            root_id="m",
            traceparent=f"00-{TRACE}-{TRACE[:16]}-01",
            accepted_at=1,
            started_at=2,
            finished_at=9,
        )
        insert(
            db, "segments", message_id="m", segment_no=1, fence=1, state="ended",
            started_at=2, ended_at=9,
        )  # fmt: skip
        insert(
            db, "spans", span_id="x", trace_id=TRACE, parent_id="", kind="turn", name="ann",
            agent_id="a", session_id="s", message_id="m", boot_id="b", state="ok", code="",
            detail="", signature="", attributes="{}", is_root=1, started_at=2,
        )  # fmt: skip
    store = await Database.open(path, clock=SystemClock(), options=StoreOptions(reserve_bytes=0))

    def read(reader: Any) -> tuple[list[str], list[str]]:
        found = tree.tree(reader, TRACE)
        assert found is not None
        return (
            [row.message_id for row in views.newest(reader)],
            [f"{span.kind} {span.name} {span.state}" for span in found.spans],
        )

    try:
        listed, spans = await store.read(read)
        tables = await store.read(
            lambda reader: reader.scalar("SELECT count(*) FROM sqlite_schema WHERE name = 'spans'")
        )
    finally:
        await store.close()
    assert listed == ["m"]
    assert spans == ["turn ann ok", "segment ann ok"]
    assert tables == 0
