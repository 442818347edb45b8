"""From schema 34 to 35: chats of before have no model of their own, and keep their sessions."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

from agentsup.store.migrate import migrate, packaged


def test_chats_of_before_use_the_agents_model(tmp_path: Path) -> None:
    with closing(sqlite3.connect(tmp_path / "state.db", isolation_level=None)) as connection:
        migrate(connection, packaged()[:34], now_ms=lambda: 1)
        connection.execute(
            "INSERT INTO sessions (session_id, agent_id, key, title, created_at, updated_at)"
            " VALUES ('ses_1', 'ann', 'chat:telegram:1', '', 1, 1)"
        )
        assert migrate(connection, packaged()[:35], now_ms=lambda: 2) == 1
        assert connection.execute("SELECT count(*) FROM chat_models").fetchone() == (0,)
        assert connection.execute("SELECT key FROM sessions").fetchall() == [("chat:telegram:1",)]
        connection.execute(
            "INSERT INTO chat_models (agent_id, key, model, service, chosen_by, chosen_at)"
            " VALUES ('ann', 'chat:telegram:1', 'big', 'llm', 'the operator', 2)"
        )
