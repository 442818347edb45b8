"""What the doctor says of proxies, of tool servers (none is started), and of the latest failures."""

from __future__ import annotations

import asyncio
import importlib.util
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from agentsup.cli.connect.locate import DaemonLocation
from agentsup.cli.doctor.agents import amiss, check_servers
from agentsup.cli.doctor.check import FAIL, OK, WARN, Check, Examined
from agentsup.cli.doctor.checks import check_proxies, check_work
from agentsup.config.home import Home
from agentsup.kit.clock import SystemClock
from agentsup.mailbox.messages.attempts import AttemptRow, record_tx
from agentsup.store.database import Database
from agentsup.store.options import StoreOptions
from agentsup.store.transaction import Tx


def proxies(environ: dict[str, str]) -> list[Check]:
    return [*check_proxies(Examined(DaemonLocation(Home(Path("/nowhere"))), environ))]


def test_proxies_are_shown_without_passwords() -> None:
    given = {"https_proxy": "http://me:secret@proxy.example:3128", "NO_PROXY": "*"}
    (one,) = proxies(given)
    assert one.result == OK
    assert "proxy.example:3128" in one.text
    assert "secret" not in one.text


def test_a_proxy_that_can_not_be_used_is_a_warning() -> None:
    (one,) = proxies({"ALL_PROXY": "socks5://me:secret@proxy.example:1080"})
    assert one.result == WARN
    assert "socks5" in one.text
    assert "secret" not in one.text


def test_without_proxies_there_is_nothing_to_say() -> None:
    assert proxies({"NO_PROXY": "x"}) == []


def home_with(root: Path, mcp: Any) -> DaemonLocation:
    home = Home(root)
    home.create()
    home.agents_json.write_text(json.dumps([{"name": "ada", "mcp": mcp}]))
    return DaemonLocation(home)


def test_each_program_is_looked_for_and_no_address_is_asked(tmp_path: Path) -> None:
    home = home_with(
        tmp_path,
        {
            "here": {"command": sys.executable},
            "gone": {"command": "no-such-program"},
            "off": {"command": "no-such-program", "enabled": False},
            "web": {"url": "https://x.example/mcp?key=1"},
        },
    )
    found = {
        one.text.split(" ")[0]: one for one in check_servers(Examined(home, {"PATH": "/usr/bin"}))
    }
    assert found["here"].result == OK
    assert found["gone"].result == FAIL
    assert "install it" in found["gone"].advice
    assert found["web"].result == OK
    assert "key=1" not in found["web"].text
    assert "off" not in found


def test_a_missing_library_is_told_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    home = home_with(tmp_path, {"a": {"command": "x"}, "b": {"command": "y"}})
    (one,) = check_servers(Examined(home, {}))
    assert one.result == FAIL
    assert "agentsup[mcp]" in one.advice


def test_without_servers_there_is_nothing_to_say(tmp_path: Path) -> None:
    assert list(check_servers(Examined(home_with(tmp_path, {}), {}))) == []


def test_what_is_amiss_with_a_running_server_is_named_with_it() -> None:
    well: dict[str, Any] = {"name": "well", "state": "running", "error": "", "notes": []}
    noted = well | {"name": "many", "notes": ["22 tools are left out", "bad has no schema"]}
    away = well | {"name": "away", "state": "not_signed_in", "error": "it answered 401"}
    many, out = amiss("ada", [well, noted, away, well | {"state": "disabled"}])
    assert (many.result, out.result) == (WARN, WARN)
    assert many.text == "many of ada: 22 tools are left out; bad has no schema"
    assert out.text == "away of ada: not signed in: it answered 401"


MESSAGE = (
    "INSERT INTO messages (message_id, agent_id, session_id, kind, lane, priority, state, outcome,"
    " parts, principal, deliver_to, root_id, accepted_at, finished_at, error_code, error_text)"
    " VALUES (?, 'agt', 'ses', 'chat', 'interactive', 2, ?, ?, '[]', '{}', '{}', 'm', 0, ?, ?, ?)"
)


@pytest.fixture
def state_db(tmp_path: Path) -> Path:
    return tmp_path / "state.db"


def checked(state_db: Path) -> list[Check]:
    return [*check_work(Examined(DaemonLocation(Home(state_db.parent)), {}))]


def written(path: Path, write: Callable[[Tx], None]) -> None:
    async def run() -> None:
        options = StoreOptions(reserve_bytes=0)
        database = await Database.open(path, clock=SystemClock(), options=options)
        await database.write(write)
        await database.close()

    asyncio.run(run())


def test_failures_of_a_day_are_told_by_kind(state_db: Path) -> None:
    now = SystemClock().now_ms()

    def write(tx: Tx) -> None:
        tx.execute(
            "INSERT INTO sessions (session_id, agent_id, key, created_at, updated_at)"
            " VALUES ('ses', 'agt', 'k', 0, 0)"
        )
        for number, (state, outcome, age_h, code) in enumerate(
            [
                ("done", "failed", 1, "quota_exceeded"),
                ("dead", None, 2, "server_error"),
                ("done", "failed", 3, "quota_exceeded"),
                ("done", "failed", 50, "auth_failed"),
                ("done", "failed", 1, "cancelled"),
                ("done", "ok", 1, "turn_limit"),
            ]
        ):
            at = now - age_h * 3_600_000
            tx.execute(MESSAGE, (f"m{number}", state, outcome, at, code, f"because of\n{number}"))
        for number in range(3):
            facts = ("primary", "llm", "llm at acme", "big", "quota", "quota_exceeded")
            record_tx(tx, AttemptRow(f"m{number}", *facts, "no credit", "switch", now))

    written(state_db, write)
    found = [f.text for f in checked(state_db) if f.name == "failures"]
    assert found == [
        "2 failed within a day with quota_exceeded, the last one: because of 0",
        "1 failed within a day with server_error, the last one: because of 1",
        "3 went to a fallback model within a day, the last because: no credit",
    ]


def test_where_nothing_failed_nothing_is_told(state_db: Path) -> None:
    written(state_db, lambda tx: None)
    assert [one.result for one in checked(state_db)] == [OK]
