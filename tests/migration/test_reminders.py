"""From a store of before reminders: tasks go on as turns of their agents."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

from agentsup.kit.clock import SystemClock
from agentsup.mailbox.messages import encode_value
from agentsup.model.message import IN_STORE
from agentsup.model.principal import OPERATOR
from agentsup.model.task import TaskAction
from agentsup.store import Database, StoreOptions
from agentsup.store.migrate import migrate, packaged
from agentsup.tasks import rows
from tests.migration.test_persons import insert

BEFORE = next(n for n, one in enumerate(packaged()) if one.name == "reminders")


async def test_tasks_of_before_are_turns(tmp_path: Path) -> None:
    with closing(sqlite3.connect(tmp_path / "state.db", isolation_level=None)) as db:
        migrate(db, packaged()[:BEFORE], now_ms=lambda: 1)
        insert(
            db,
            "tasks",
            task_id="task_1",
            name="birds",
            owner=encode_value(OPERATOR),
            owner_kind="operator",
            owner_id="operator",
            agent_id="agt_ada",
            state="todo",
            prompt="count",
            deliver_to=encode_value(IN_STORE),
            priority=2,
            created_at=1,
        )
    database = await Database.open(
        tmp_path / "state.db", clock=SystemClock(), options=StoreOptions(reserve_bytes=0)
    )
    try:
        task = await database.read(rows.need_task, "task_1")
    finally:
        await database.close()
    assert task.does is TaskAction.TURN
