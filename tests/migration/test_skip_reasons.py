"""From schema 28 to 29: sentences about passed-over times become reasons, and read as before."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

from agentsup.kit.clock import SystemClock
from agentsup.model.task import OccurrenceSkipReason as Reason
from agentsup.store import Database, StoreOptions
from agentsup.store.migrate import migrate, packaged
from agentsup.tasks import rows, skip_text

BEFORE = "; so were all times before 2026-11-22T08:30:00+01:00"
ANEW = "it is not done. Whoever needs it asks for it anew."
RIGHTS = {
    "anna asked for this and is not among the people who may use the agents any more, so": "removed",
    "anna asked for this and is a viewer now, who may look and not give work, so": "viewer",
    "anna asked for this as an operator and is none any more; it belongs to a session of the"
    " operators, so": "shared",
    "Which operator asked for this is not on record any more, so nobody can tell whether they still"
    " may, and": "unknown",
}
"""Their sentences say the same in other words now."""
SENTENCES: dict[str, tuple[Reason, dict[str, object]]] = {
    "missed, and too many to be listed": (Reason.MANY, {}),
    "missed: a later time had come as well": (Reason.LATER, {}),
    "missed: 75 s had passed since": (Reason.LATE, {"seconds": 75}),
    "the run before it had not ended": (Reason.OVERLAP, {}),
    "100 runs before it had not ended": (Reason.BEHIND, {"count": 100}),
    "the schedule was paused": (Reason.PAUSED, {}),
    "the task was deleted": (Reason.DELETED, {}),
    "cancelled by Eve (by the way)\n{who}": (Reason.CANCELLED, {"who": "Eve (by the way)\n{who}"}),
    "set to done by Eve by night": (Reason.SET, {"state": "done", "who": "Eve by night"}),
    "the schedule was changed by operator": (Reason.CHANGED, {"who": "operator"}),
    **{
        f"{why} {ANEW}": (
            Reason.RIGHTS,
            {"rights": lost, "who": "anna" if why.startswith("anna") else ""},
        )
        for why, lost in RIGHTS.items()
    },
    "ann's queue is full (100 messages)": (Reason.REFUSED, {}),
    "set to done": (Reason.REFUSED, {}),
    "missed: many s had passed since": (Reason.REFUSED, {}),
    "cancelled by ": (Reason.REFUSED, {}),
    "{who} {": (Reason.REFUSED, {}),
}


def old_store(path: Path) -> list[str]:
    """A store of schema 28 with each sentence, alone and for all times before; the sentences."""
    told = [*SENTENCES, *(sentence + BEFORE for sentence in SENTENCES), ""]
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        migrate(connection, packaged()[:28], now_ms=lambda: 1)
        for number, why in enumerate(told):
            connection.execute(
                "INSERT INTO runs (run_id, task_id, run_no, kind, agent_id, slot_at, why,"
                " created_at) VALUES (?, 't', 1, 'slot', 'a', ?, ?, 1)",
                (f"slot_{number}", number, why),
            )
    return told


async def test_each_sentence_becomes_its_reason_and_reads_as_before(tmp_path: Path) -> None:
    told = old_store(tmp_path / "state.db")
    database = await Database.open(
        tmp_path / "state.db", clock=SystemClock(), options=StoreOptions(reserve_bytes=0)
    )
    try:
        runs = await database.read(lambda reader: rows.runs_of(reader, "t", limit=100))
    finally:
        await database.close()
    known = {run.slot_at: run for run in runs}
    assert len(known) == len(told)
    for number, why in enumerate(told):
        run = known[number]
        if not why:
            assert (run.state, run.skipped) == ("done", None)
            continue
        assert run.state == "skipped"
        assert run.skipped is not None
        reason, facts = SENTENCES[why.removesuffix(BEFORE)]
        assert run.skipped.reason is reason
        if reason is not Reason.RIGHTS:
            assert skip_text(run.skipped) == why
        if reason is not Reason.REFUSED:
            assert run.skipped.facts == facts
        assert bool(run.skipped.until) is why.endswith(BEFORE)


def test_a_run_after_it_still_notes_the_session_that_it_is_a_part_of(tmp_path: Path) -> None:
    old_store(tmp_path / "state.db")
    with closing(sqlite3.connect(tmp_path / "state.db", isolation_level=None)) as connection:
        migrate(connection, packaged()[:29], now_ms=lambda: 2)
        (trigger,) = connection.execute(
            "SELECT sql FROM sqlite_schema WHERE type = 'trigger' AND name = 'runs_session'"
        ).fetchone()
    assert "WHEN NEW.skip_reason IS NULL" in trigger
