"""From schema 19 to 20: work of programs that waits for word about a call lets the rest go on."""

import sqlite3
from contextlib import closing
from pathlib import Path

from agentsup.store.migrate import migrate, packaged

MESSAGE = (
    "INSERT INTO messages (message_id, agent_id, session_id, kind, lane, priority, state, parts,"
    " principal, deliver_to, root_id, accepted_at)"
    " VALUES (?, 'a', 's', 'chat', 'peer', 2, ?, '[]', '{}', ?, ?, 5)"
)
QUESTION = (
    "INSERT INTO questions (question_id, agent_id, session_id, message_id, kind, text, options,"
    " state, asked_at, call_id, tool) VALUES (?, 'a', 's', ?, ?, 'well?', '[]', 'open', 5, '', '')"
)


def test_what_waits_already_gets_a_deadline_and_is_set_aside(tmp_path: Path) -> None:
    with closing(sqlite3.connect(tmp_path / "state.db", isolation_level=None)) as connection:
        migrate(connection, packaged()[:19], now_ms=lambda: 1)
        connection.execute("INSERT INTO agents (agent_id, name, created_at) VALUES ('a', 'ann', 1)")
        connection.execute(
            "INSERT INTO sessions (session_id, agent_id, key, title, created_at, updated_at)"
            " VALUES ('s', 'a', 'k', '', 1, 1)"
        )
        for name, to, kind in (
            ("program", "http", "uncertain"),
            ("person", "chat", "uncertain"),
            ("asking", "http", "approval"),
        ):
            connection.execute(MESSAGE, (name, "parked", f'{{"kind": "{to}"}}', name))
            connection.execute(QUESTION, (f"q_{name}", name, kind))
        assert migrate(connection, packaged()[:20], now_ms=lambda: 2) == 1
        aside = connection.execute(
            "SELECT message_id FROM messages JOIN set_aside USING (seq)"
        ).fetchall()
        deadlines = dict(connection.execute("SELECT question_id, deadline_at FROM questions"))
    assert aside == [("program",)]
    assert deadlines == {"q_program": 900_005, "q_person": None, "q_asking": None}
