"""Checks of the store: loops, timeouts, leaks, stuck questions, failures."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from agentsup.cli.doctor.check import FAIL, OK, WARN, Check
from agentsup.kit.clock import SystemClock
from agentsup.model.errors import AgentsupError
from agentsup.observe.traces import TraceFinding, examine
from agentsup.store import Reader, glance

SUBJECTS = ("loops", "timeouts", "leaks", "questions", "failures")
_DAY_MS = 86_400_000
_SHOWN = 5
_TEXT_CHARS = 200


def check_work(state_db: Path, *, is_running: bool) -> Iterator[Check]:
    """Problems of the latest work, from the store; a daemon may write it meanwhile."""
    if not state_db.is_file():
        return

    def read(reader: Reader) -> list[TraceFinding]:
        boot = "SELECT boot_id FROM boots ORDER BY started_at DESC LIMIT 1"
        boot_id = reader.scalar(boot) if is_running else None
        now = SystemClock().now_ms()
        return [*examine(reader, now, boot_id), *failures(reader, now)]

    try:
        found = glance(state_db, read)
    except AgentsupError as error:
        yield Check("work", FAIL, error.message)
        return
    for one in found:
        yield Check(one.subject, WARN, one.text, one.advice)
    well = [subject for subject in SUBJECTS if subject not in {one.subject for one in found}]
    if well:
        yield Check("work", OK, f"nothing amiss: {', '.join(well)}")


def failures(reader: Reader, now: int) -> Iterator[TraceFinding]:
    """The failures of the last day by error code, and how often a fallback model had to answer,
    each with the text of the last one."""
    tables = {row[0] for row in reader.all("SELECT name FROM sqlite_schema WHERE type = 'table'")}
    if not {"messages", "attempts"} <= tables:
        return  # a store that no daemon of this version has opened yet
    rows = reader.all(
        "SELECT error_code, count(*), error_text, max(finished_at) FROM messages"
        " WHERE finished_at >= ? AND (outcome = 'failed' OR state = 'dead')"
        " AND error_code NOT IN ('', 'cancelled', 'expired')"
        " GROUP BY error_code ORDER BY count(*) DESC LIMIT ?",
        (now - _DAY_MS, _SHOWN),
    )
    for code, count, text, _ in rows:
        yield TraceFinding(
            "failures",
            f"{count} failed within a day with {code}, the last one: {_short(text)}",
            "see `agentsup messages list` and `agentsup failed list`; docs/recovery.md names the kinds",
        )
    switched = reader.one(
        "SELECT count(*), text, max(attempt_id) FROM attempts WHERE at >= ? AND act = 'switch'",
        (now - _DAY_MS,),
    )
    if switched is not None and switched[0]:
        yield TraceFinding(
            "failures",
            f"{switched[0]} went to a fallback model within a day, the last because:"
            f" {_short(switched[1])}",
            "the primary model of these agents is out; `agentsup logs` has each case",
        )


def _short(text: str) -> str:
    return " ".join(str(text).split())[:_TEXT_CHARS]
