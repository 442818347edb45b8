"""What the doctor reads from the store: loops, timeouts, leaks, questions that are stuck, failures."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from agentsup.kit.clock import SystemClock
from agentsup.observe.traces.findings import Finding, examine
from agentsup.store.glance import glance
from agentsup.store.transaction import Reader

SUBJECTS = ("loops", "timeouts", "leaks", "questions", "failures")
_DAY_MS = 86_400_000
_SHOWN = 5
_TEXT_CHARS = 200


def look(state_db: Path, *, is_running: bool) -> Sequence[Finding]:
    """Everything that is found there, beside whoever writes it.

    Raises `StoreUnavailable` or `StoreCorrupt` where it can't be read.
    """

    def read(reader: Reader) -> list[Finding]:
        boot = "SELECT boot_id FROM boots ORDER BY started_at DESC LIMIT 1"
        boot_id = reader.scalar(boot) if is_running else None
        now = SystemClock().now_ms()
        return [*examine(reader, now, boot_id), *failures(reader, now)]

    return glance(state_db, read)


def failures(reader: Reader, now: int) -> Iterator[Finding]:
    """What failed within a day by kind, and how often a fallback had to answer; the operator's own
    sentence of the last one."""
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
        yield Finding(
            "failures",
            f"{count} failed within a day with {code}, the last one: {_short(text)}",
            "see `agentsup messages list` and `agentsup dead list`; docs/recovery.md names the kinds",
        )
    switched = reader.one(
        "SELECT count(*), text, max(attempt_id) FROM attempts WHERE at >= ? AND act = 'switch'",
        (now - _DAY_MS,),
    )
    if switched is not None and switched[0]:
        yield Finding(
            "failures",
            f"{switched[0]} went to a fallback model within a day, the last because:"
            f" {_short(switched[1])}",
            "the primary model of these agents is out; `agentsup logs` has each case",
        )


def _short(text: str) -> str:
    return " ".join(str(text).split())[:_TEXT_CHARS]
