"""From schema 21 to 22: what left its process group is on record beside the groups."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

from agentsup.store.migrate import migrate, packaged


def test_groups_on_record_stay_and_strays_can_be_recorded(tmp_path: Path) -> None:
    with closing(sqlite3.connect(tmp_path / "state.db", isolation_level=None)) as connection:
        migrate(connection, packaged()[:21], now_ms=lambda: 1)
        connection.execute("INSERT INTO processes VALUES (4711, 9, 'b', 'a', 'm', '/bin/sh', 5)")
        assert migrate(connection, packaged()[:22], now_ms=lambda: 2) == 1
        connection.execute("INSERT INTO strays VALUES (4712, 10, 4711, 'b', '/bin/sh')")
        groups = connection.execute("SELECT pgid FROM processes").fetchall()
        strays = connection.execute("SELECT pid FROM strays JOIN processes USING (pgid)").fetchall()
    assert (groups, strays) == ([(4711,)], [(4712,)])
