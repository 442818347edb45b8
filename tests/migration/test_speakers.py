"""From schema 26 to 27: who spoke last in a chat, and who let it go on with another's session."""

from __future__ import annotations

import json
import sqlite3
from contextlib import closing
from pathlib import Path

from agentsup.store.migrate import migrate, packaged
from tests.migration.test_persons import OLGA, chat, insert, message

OPERATOR = {"kind": "operator", "subject": "operator", "role": 3}


def test_who_spoke_last_and_who_pointed_is_taken_from_what_is_stored(tmp_path: Path) -> None:
    with closing(sqlite3.connect(tmp_path / "state.db", isolation_level=None)) as db:
        migrate(db, packaged()[:26], now_ms=lambda: 1)
        insert(db, "agents", agent_id="agt_ada", name="ada", created_at=1)
        own = {"agent_id": "agt_ada", "created_at": 1, "updated_at": 1}
        for place in ("1", "2", "3", "9"):
            key = f"chat:telegram:{place}"
            insert(db, "sessions", session_id=f"ses_{place}", key=key, **own)
        insert(db, "sessions", session_id="ses_renamed", key="chat:telegram:old", **own)
        where = {"agent_id": "agt_ada", "first_at": 1, "last_at": 1}
        # Olga's, pointed elsewhere; that of one who was an operator; a group; pruned; the console.
        for channel, place, person, at in (
            ("telegram", "1", "operator", "ses_9"),
            ("telegram", "2", "person:eva", "ses_9"),
            ("telegram", "3", "*", "ses_9"),
            ("telegram", "4", "operator", "ses_renamed"),
            ("telegram", "9", "operator", "ses_9"),
            ("console", "c1", "operator", ""),
        ):
            insert(db, "conversations", channel=channel, conversation=place, person=person, **where)
            if at:
                key = f"chat:telegram:{place}"
                insert(db, "pointers", agent_id="agt_ada", key=key, session_id=at)
        message(db, "m1", OPERATOR, deliver_to=chat("1"))
        message(db, "m2", OLGA, deliver_to=chat("1"))
        message(db, "m3", {"kind": "agent", "subject": "agt_ben"}, deliver_to=chat("1"))
        message(db, "m4", OLGA, deliver_to=chat("9"))
        message(db, "m5", OPERATOR, deliver_to=chat("9"))
        message(db, "m6", OLGA, deliver_to=json.dumps({"kind": "http"}))
        assert migrate(db, packaged()[:27], now_ms=lambda: 2) == 1
        speakers = dict(db.execute("SELECT conversation, speaker FROM conversations"))
        pointed = dict(db.execute("SELECT substr(key, 15), pointed_by FROM pointers"))
    none = {"2": None, "3": None, "4": None}
    assert speakers == {"1": "olga", **none, "9": "", "c1": ""}
    assert pointed == {"1": "olga", "2": "eva", "3": None, "4": None, "9": None}
