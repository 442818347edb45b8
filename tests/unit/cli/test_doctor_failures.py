"""What failed of late, as the doctor tells it: by kind, in the operator's own sentence."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path

import pytest

from agentsup.cli.connect.locate import DaemonLocation
from agentsup.cli.doctor.check import OK, Check, Examined
from agentsup.cli.doctor.store import check_work
from agentsup.config import Home
from agentsup.kit.clock import SystemClock
from agentsup.mailbox.messages.attempts import AttemptRow, record_tx
from agentsup.store.database import Database
from agentsup.store.options import StoreOptions
from agentsup.store.transaction import Tx

MESSAGE = (
    "INSERT INTO messages (message_id, agent_id, session_id, kind, lane, priority, state, outcome,"
    " parts, principal, deliver_to, root_id, accepted_at, finished_at, error_code, error_text)"
    " VALUES (?, 'agt', 'ses', 'chat', 'interactive', 2, ?, ?, '[]', '{}', '{}', 'm', 0, ?, ?, ?)"
)


@pytest.fixture
def state_db(tmp_path: Path) -> Path:
    return tmp_path / "state.db"


def checked(state_db: Path) -> list[Check]:
    return [*check_work(Examined(DaemonLocation(Home(state_db.parent)), {}))]


def written(path: Path, write: Callable[[Tx], None]) -> None:
    async def run() -> None:
        options = StoreOptions(reserve_bytes=0)
        database = await Database.open(path, clock=SystemClock(), options=options)
        await database.write(write)
        await database.close()

    asyncio.run(run())


def test_failures_of_a_day_are_told_by_kind(state_db: Path) -> None:
    now = SystemClock().now_ms()

    def write(tx: Tx) -> None:
        tx.execute(
            "INSERT INTO sessions (session_id, agent_id, key, created_at, updated_at)"
            " VALUES ('ses', 'agt', 'k', 0, 0)"
        )
        for number, (state, outcome, age_h, code) in enumerate(
            [
                ("done", "failed", 1, "quota_exceeded"),
                ("dead", None, 2, "server_error"),
                ("done", "failed", 3, "quota_exceeded"),
                ("done", "failed", 50, "auth_failed"),
                ("done", "failed", 1, "cancelled"),
                ("done", "ok", 1, "turn_limit"),
            ]
        ):
            at = now - age_h * 3_600_000
            tx.execute(MESSAGE, (f"m{number}", state, outcome, at, code, f"because of\n{number}"))
        for number in range(3):
            facts = ("primary", "llm", "llm at acme", "big", "quota", "quota_exceeded")
            record_tx(tx, AttemptRow(f"m{number}", *facts, "no credit", "switch", now))

    written(state_db, write)
    found = [f.text for f in checked(state_db) if f.name == "failures"]
    assert found == [
        "2 failed within a day with quota_exceeded, the last one: because of 0",
        "1 failed within a day with server_error, the last one: because of 1",
        "3 went to a fallback model within a day, the last because: no credit",
    ]


def test_where_nothing_failed_nothing_is_told(state_db: Path) -> None:
    written(state_db, lambda tx: None)
    assert [one.result for one in checked(state_db)] == [OK]
