"""From schema 29 to 30: what was answered is read from columns, and shown as before."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

from agentsup.kit.clock import SystemClock
from agentsup.mailbox.messages import find_question
from agentsup.model.question import ClosedReason, Decision
from agentsup.store import Database, StoreOptions
from agentsup.store.migrate import migrate, packaged

# kind, answer as it was stored, its decision, its text
ANSWERS = (
    ("approval", "once", Decision.ONCE, ""),
    ("approval", "run", Decision.RUN, ""),
    ("approval", "always", Decision.ALWAYS, ""),
    ("approval", "pattern:make *", Decision.PATTERN, "make *"),
    ("approval", "deny", Decision.DENY, ""),
    ("approval", "deny: not: today", Decision.DENY, "not: today"),
    ("approval", "of an older version", Decision.TEXT, "of an older version"),
    ("question", "deny: all of it", Decision.TEXT, "deny: all of it"),
    ("question", "once", Decision.TEXT, "once"),
    ("uncertain", "it happened", Decision.TEXT, "it happened"),
)
CLOSED = (
    ("open", "", None),
    ("expired", "", ClosedReason.DEADLINE),
    ("expired", "Ann", ClosedReason.SKIPPED),
    ("cancelled", "", ClosedReason.WITHDRAWN),
)


async def test_each_answer_is_split_and_reads_as_before(tmp_path: Path) -> None:
    path = tmp_path / "state.db"
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        migrate(connection, packaged()[:29], now_ms=lambda: 1)
        rows = [
            *((kind, "answered", answer, "Ann") for kind, answer, _, _ in ANSWERS),
            *(("question", state, "", by) for state, by, _ in CLOSED),
        ]
        for number, row in enumerate(rows):
            connection.execute(
                "INSERT INTO questions (question_id, agent_id, session_id, message_id, text,"
                " options, call_id, tool, asked_at, kind, state, answer, answered_by)"
                " VALUES (?, 'a', 's', 'm', '?', '[]', '', '', 1, ?, ?, ?, ?)",
                (f"q_{number}", *row),
            )
    store = await Database.open(path, clock=SystemClock(), options=StoreOptions(reserve_bytes=0))
    try:
        names = [f"q_{number}" for number in range(len(rows))]
        found = await store.read(lambda reader: [find_question(reader, name) for name in names])
    finally:
        await store.close()
    for question, (_, answer, decision, text) in zip(found, ANSWERS, strict=False):
        assert (question.answer, question.decision, question.answer_text) == (
            answer,
            decision,
            text,
        )
        assert question.closed_reason is ClosedReason.ANSWERED
    for question, (_, by, reason) in zip(found[len(ANSWERS) :], CLOSED, strict=True):
        assert (question.answer, question.decision, question.closed_reason) == ("", None, reason)
        assert question.answered_by == by
