"""Checks of the store: whether a start takes it, its newest backup, and problems of the latest work:
loops, timeouts, leaks, stuck questions, failures."""

from __future__ import annotations

from collections.abc import Iterator

from agentsup.cli.doctor.check import FAIL, OK, WARN, Check, Examined
from agentsup.kit.clock import SystemClock
from agentsup.model.errors import AgentsupError, StoreLost
from agentsup.observe.traces import TraceFinding, examine
from agentsup.store import Reader, StoreRecord, glance, latest, taken_at

SUBJECTS = ("loops", "timeouts", "leaks", "questions", "failures")
_DAY_MS = 86_400_000
_SHOWN = 5
_TEXT_CHARS = 200


def check_store(it: Examined) -> Iterator[Check]:
    """Whether a start will take the store, and what it can be restored from.

    Only the files are read, and the store's own file only if no daemon has it open.
    """
    now, home = SystemClock().now_ms(), it.home
    if not it.is_running:
        try:
            StoreRecord(home.state_db, now_ms=lambda: now, new_id=str).check()
        except StoreLost as error:
            advice = "put the right files back, restore a backup or accept it"
            yield Check("store", FAIL, error.message, advice)
        except (AgentsupError, OSError) as error:
            yield Check("store", FAIL, str(error))
    if not home.state_db.is_file():
        return
    text = "no backup yet: the first is made 10 minutes after a start"
    if (newest := latest(home.backups)) is not None:
        age_days = max(0.0, (now - (taken_at(newest) or now)) / _DAY_MS)
        text = f"newest backup {newest.name}, {age_days:.1f} days old"
    yield Check("store", OK, text)


def check_work(it: Examined) -> Iterator[Check]:
    """Problems of the latest work, from the store; a daemon may write it meanwhile."""
    if not it.home.state_db.is_file():
        return

    def read(reader: Reader) -> list[TraceFinding]:
        boot = "SELECT boot_id FROM boots ORDER BY started_at DESC LIMIT 1"
        boot_id = reader.scalar(boot) if it.is_running else None
        now = SystemClock().now_ms()
        return [*examine(reader, now, boot_id), *failures(reader, now)]

    try:
        found = glance(it.home.state_db, read)
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
            "see `agentsup messages list` and `agentsup failed list`; `agentsup docs recovery` names the kinds",
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
