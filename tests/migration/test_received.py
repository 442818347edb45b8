"""Into schema 31: what Telegram and Matrix handed over moves to one table and loses nothing."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from functools import partial
from pathlib import Path

import pytest

from agentsup.channels.core.receiving import quarantine, rows, stop_marks
from agentsup.channels.core.receiving.rows import SkipReason
from agentsup.channels.matrix import received as matrix
from agentsup.channels.telegram import received as telegram
from agentsup.kit.clock import SystemClock
from agentsup.store import Database, StoreOptions
from agentsup.store.migrate import migrate, packaged
from tests.migration.test_persons import insert

BOT, AGENT, ME, ROOM = "777", "agt_ada", "@ada:here", "!room:here"
TELEGRAM = telegram.row_owner(BOT)
MATRIX = matrix.row_owner(AGENT, ME)


def update(
    db: sqlite3.Connection, number: int, state: str, error: str = "", **more: object
) -> None:
    fields = {"run": 0, "chat_id": -100200, "platform_id": number, "at": 5, **more}
    raw = json.dumps({"update_id": number})
    insert(
        db,
        "updates",
        channel="telegram",
        bot_id=BOT,
        update_id=number,
        raw=raw,
        **{"state": state, "error": error, **fields},
    )


def event(db: sqlite3.Connection, name: str, state: str, error: str = "", **more: object) -> None:
    insert(
        db,
        "matrix_events",
        agent_id=AGENT,
        user_id=ME,
        room_id=ROOM,
        event_id=name,
        raw=json.dumps({"event_id": name}),
        state=state,
        error=error,
        **{"origin_id": name, "at": 6, **more},
    )


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A store of today made from one of before, with both old tables filled."""
    path = tmp_path / "state.db"
    with closing(sqlite3.connect(path, isolation_level=None)) as db:
        migrate(db, packaged()[:30], now_ms=lambda: 1)
        update(db, 1, "done", message_id="m1")
        update(db, 2, "received", begun=1)
        update(db, 3, "received", "tried again: ill", run=1)
        update(db, 4, "quarantined", "ill")
        update(db, 5, "skipped", "stopped from another chat")
        update(db, 6, "skipped", "dropped: ill")
        update(db, 7, "skipped", "not addressed", chat_id=None, platform_id=None)
        update(db, 8, "done")  # the last number was used and is gone
        db.execute("DELETE FROM updates WHERE update_id = 8")
        event(db, "$a", "done", message_id="m2")
        event(db, "$b", "received")
        event(db, "$c", "received", "tried again: ")
        event(db, "$d", "skipped", "stopped")
        event(db, "$e", "skipped", "too late")
        event(db, "$f", "received", origin_id="$a")
        insert(db, "stop_marks", channel="telegram", row_id=2, scope="all")
        for row_id in (2, 6):
            insert(db, "stop_marks", channel="matrix", row_id=row_id, scope="all")
        migrate(db, packaged()[:31], now_ms=lambda: 2)
        assert db.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
        tables = {name for (name,) in db.execute("SELECT name FROM sqlite_schema")}
        assert not tables & {"updates", "matrix_events"}
        migrate(db, packaged(), now_ms=lambda: 3)
    return path


@pytest.fixture
def db(path: Path) -> Iterator[sqlite3.Connection]:
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        yield connection


def test_each_row_keeps_what_it_was(db: sqlite3.Connection) -> None:
    found = db.execute(
        "SELECT row_id, channel, bot_id, account, chat_id, external_id, state, begun, platform_id,"
        " message_id, error, skip_reason, retry_requested, at FROM received ORDER BY row_id"
    ).fetchall()
    of_telegram = ("telegram", BOT, BOT, "-100200")
    of_matrix = ("matrix", AGENT, ME, ROOM)
    elsewhere, dropped = SkipReason.STOPPED_ELSEWHERE, SkipReason.DROPPED_BY_OPERATOR
    assert found == [
        (1, *of_telegram, "1", "done", 0, "1", "m1", "", None, 0, 5),
        (2, *of_telegram, "2", "received", 1, "2", "", "", None, 0, 5),
        (3, *of_telegram, "1.3", "received", 0, "3", "", "ill", None, 1, 5),
        (4, *of_telegram, "4", "quarantined", 0, "4", "", "ill", None, 0, 5),
        (5, *of_telegram, "5", "skipped", 0, "5", "", "", elsewhere, 0, 5),
        (6, *of_telegram, "6", "skipped", 0, "6", "", "ill", dropped, 0, 5),
        (
            7,
            "telegram",
            BOT,
            BOT,
            "",
            "7",
            "skipped",
            0,
            "",
            "",
            "not addressed",
            "not_allowed",
            0,
            5,
        ),
        (9, *of_matrix, "$a", "done", 0, "$a", "m2", "", None, 0, 6),
        (10, *of_matrix, "$b", "received", 0, "$b", "", "", None, 0, 6),
        (11, *of_matrix, "$c", "received", 0, "$c", "", "", None, 1, 6),
        (12, *of_matrix, "$d", "skipped", 0, "$d", "", "", "stopped_here", 0, 6),
        (13, *of_matrix, "$e", "skipped", 0, "$e", "", "", "too_late", 0, 6),
        (14, *of_matrix, "$f", "received", 0, "$a", "", "", None, 0, 6),
    ]
    marks = db.execute("SELECT channel, row_id FROM stop_marks ORDER BY 2").fetchall()
    assert marks == [("telegram", 2), ("matrix", 10), ("matrix", 14)]


def test_an_empty_store_and_one_of_a_single_platform_migrate(tmp_path: Path) -> None:
    for name, fill in (
        ("none", None),
        ("telegram", partial(update, number=1, state="done")),
        ("matrix", partial(event, name="$a", state="done")),
    ):
        with closing(sqlite3.connect(tmp_path / name, isolation_level=None)) as db:
            migrate(db, packaged()[:30], now_ms=lambda: 1)
            if fill is not None:
                fill(db)
            migrate(db, packaged()[:31], now_ms=lambda: 2)
            count = 0 if fill is None else 1
            assert db.execute("SELECT COUNT(*) FROM received").fetchone() == (count,)


async def test_the_work_that_was_left_goes_on_under_the_same_names(path: Path) -> None:
    database = await Database.open(path, clock=SystemClock(), options=StoreOptions(reserve_bytes=0))
    try:
        left = await database.read(lambda reader: rows.open_rows(reader, TELEGRAM))
        again = await database.write(lambda tx: rows.take_retries_tx(tx, TELEGRAM))
        assert [row.external_id for row in again] == ["1.3"]
        left = sorted([*left, *again], key=lambda row: row.row_id)
        names = [(telegram.ledger_id(row), row.begun) for row in left]
        assert names == [
            (f"update:{BOT}:2", True),
            (f"update:{BOT}:1.3", False),
            (f"update:{BOT}:5", False),
        ]
        unread = await database.read(lambda reader: rows.open_rows(reader, MATRIX))
        again = await database.write(lambda tx: rows.take_retries_tx(tx, MATRIX))
        assert [row.external_id for row in again] == ["$c"]
        on_matrix = await database.read(lambda reader: rows.open_rows(reader, MATRIX))
        assert [row for row in on_matrix if row not in again] == unread
        assert [matrix.ledger_id(row) for row in on_matrix] == [
            f"event:{ROOM}:{name}" for name in ("$b", "$c", "$f")
        ]
        marked = await database.read(
            lambda reader: [
                stop_marks.is_marked(reader, [row], agent_id=AGENT, conversation=row.chat_id)
                for row in on_matrix
            ]
        )
        assert marked == [True, False, True]
        first = await database.read(lambda reader: rows.earlier(reader, on_matrix[-1]))
        assert first.message_id == "m2"
        assert await database.read(lambda reader: rows.quarantined(reader, TELEGRAM)) == 1
        one = await database.read(lambda reader: quarantine.find(reader, "telegram.4"))
        assert (one.state, one.error) == ("quarantined", "ill")
        # No number is used twice, so an old name never means another update.
        new = await database.write(
            lambda tx: rows.add_tx(
                tx, MATRIX, chat_id=ROOM, external_id="$g", platform_id="", raw="{}", at=7
            )
        )
        assert new is not None
        assert new.row_id == 15
    finally:
        await database.close()
