"""From schema 19 to 20, and to 25: work that nobody in a chat waits for lets the rest go on while
it waits for word about a call."""

from __future__ import annotations

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


def store_of(folder: Path, version: int) -> sqlite3.Connection:
    """A store of that schema, with one agent and a session of it."""
    connection = sqlite3.connect(folder / "state.db", isolation_level=None)
    migrate(connection, packaged()[:version], now_ms=lambda: 1)
    connection.execute("INSERT INTO agents (agent_id, name, created_at) VALUES ('a', 'ann', 1)")
    connection.execute(
        "INSERT INTO sessions (session_id, agent_id, key, title, created_at, updated_at)"
        " VALUES ('s', 'a', 'k', '', 1, 1)"
    )
    return connection


def set_aside(connection: sqlite3.Connection) -> list[str]:
    return [
        name
        for (name,) in connection.execute(
            "SELECT message_id FROM messages JOIN set_aside USING (seq) ORDER BY message_id"
        )
    ]


def test_what_waits_already_gets_a_deadline_and_is_set_aside(tmp_path: Path) -> None:
    with closing(store_of(tmp_path, 19)) as connection:
        for name, to, kind in (
            ("program", "http", "uncertain"),
            ("person", "chat", "uncertain"),
            ("asking", "http", "approval"),
        ):
            connection.execute(MESSAGE, (name, "parked", f'{{"kind": "{to}"}}', name))
            connection.execute(QUESTION, (f"q_{name}", name, kind))
        assert migrate(connection, packaged()[:20], now_ms=lambda: 2) == 1
        aside = set_aside(connection)
        deadlines = dict(connection.execute("SELECT question_id, deadline_at FROM questions"))
    assert aside == ["program"]
    assert deadlines == {"q_program": 900_005, "q_person": None, "q_asking": None}


def test_what_work_asks_in_a_chat_gets_a_deadline(tmp_path: Path) -> None:
    with closing(store_of(tmp_path, 24)) as connection:
        for name, what, lane in (
            ("said", "chat", "interactive"),
            ("asked", "chat", "peer"),
            ("task", "task", "background"),
            ("result", "reply", "peer"),
        ):
            connection.execute(MESSAGE, (name, "parked", '{"kind": "chat"}', name))
            connection.execute(
                "UPDATE messages SET kind = ?, lane = ? WHERE message_id = ?", (what, lane, name)
            )
            connection.execute(QUESTION, (f"q_{name}", name, "uncertain"))
        assert migrate(connection, packaged()[:25], now_ms=lambda: 2) == 1
        aside = set_aside(connection)
        deadlines = dict(connection.execute("SELECT question_id, deadline_at FROM questions"))
    assert aside == ["asked", "result", "task"]
    assert deadlines == {"q_said": None, "q_asked": 900_005, "q_task": 900_005, "q_result": 900_005}
