"""Spans as lines of a terminal, costs below their table, and what the doctor reads from a store."""

from __future__ import annotations

import asyncio
import importlib.util
from pathlib import Path
from typing import Any
from unittest.mock import MagicMock

import pytest

from agentsup.cli.commands.trace import cost, length, line
from agentsup.cli.connect.locate import DaemonLocation
from agentsup.cli.doctor import check as doctor_checks
from agentsup.cli.doctor.check import Check
from agentsup.cli.doctor.checks import examine
from agentsup.cli.output import options
from agentsup.cli.output.show import width_of
from agentsup.config.home import Home
from agentsup.kit.clock import SystemClock
from agentsup.store.database import Database
from agentsup.store.options import StoreOptions


def span(**more: Any) -> dict[str, Any]:
    given: dict[str, Any] = {
        "kind": "tool",
        "name": "exec",
        "depth": 3,
        "state": "failed",
        "code": "not_found",
        "detail": '{"cmd": "ls"}',
        "attributes": {"effect": "blind"},
        "offset_ms": 1500,
        "duration_ms": 0.25,
        "message_id": "msg_1",
    }
    return {**given, **more}


def test_a_span_says_what_it_was_and_how_it_ended() -> None:
    assert line(span(), None) == (
        '      tool exec: failed, 0.2 ms, +1.5 s, not_found  {"cmd": "ls"}'
    )
    engine = span(
        kind="engine",
        name="llm",
        state="ok",
        code="",
        detail="",
        attributes={"input_tokens": 3, "output_tokens": 4, "usd": 0.5},
    )
    assert line(engine, None).endswith("+1.5 s, 3+4 tokens, $0.5000")


@pytest.mark.parametrize("width", [24, 40, 60, 200])
def test_a_narrow_terminal_keeps_one_line_for_each_span(width: int) -> None:
    shown = line(span(depth=30, detail="x\ny\x1b[31m" * 50), width)
    assert "\n" not in shown
    assert "\x1b" not in shown
    assert width_of(shown) <= max(width, 24)


@pytest.mark.parametrize(
    "ms, wanted",
    [
        (None, "-"),
        (0, "0.0 ms"),
        (9.96, "10.0 ms"),
        (250, "250 ms"),
        (2_500, "2.5 s"),
        (600_000, "10.0 min"),
    ],
)
def test_lengths_are_short(ms: float | None, wanted: str) -> None:
    assert length(ms) == wanted


def test_what_is_estimated_counts_for_an_agent_of_any_name(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    span: dict[str, Any] = {
        "usd": 0.0,
        "input_tokens": 7,
        "output_tokens": 0,
        "estimated_tokens": 7,
        "unpriced": 1,
    }
    spent = {"day": span, "month": span, "total": span, "budgets": []}
    document = {"agents": [{"agent": name, **spent} for name in ("ann", "all")], "all": spent}
    client = MagicMock(get=lambda path, query=None: document)
    monkeypatch.setattr(options, "client_of", lambda ctx: client)
    cost(MagicMock(), None)
    told = capsys.readouterr().out
    assert "14 tokens of this month are estimated" in told
    assert "2 turns of this month have no known price" in told


# -- the doctor --------------------------------------------------------------------------------------


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Home:
    monkeypatch.setenv("PATH", "/nowhere")
    made = Home(tmp_path / "home")
    made.create()
    made.agents_json.write_text("[]")
    return made


def checks(home: Home, name: str) -> list[Check]:
    return [check for check in examine(DaemonLocation(home)) if check.name == name]


def stored(home: Home, *statements: str) -> None:
    async def write() -> None:
        database = await Database.open(
            home.state_db, clock=SystemClock(), options=StoreOptions(reserve_bytes=0)
        )
        for statement in statements:
            await database.write(lambda tx, statement=statement: tx.execute(statement).rowcount)  # type: ignore[misc]  # bound at once
        await database.close()

    asyncio.run(write())


def test_a_home_without_a_store_has_no_work_to_look_at(home: Home) -> None:
    assert checks(home, "work") == []


def test_a_quiet_store_is_well_and_a_leak_is_told_with_what_to_do(home: Home) -> None:
    stored(home)
    (work,) = checks(home, "work")
    assert (work.result, "nothing amiss" in work.text) == (doctor_checks.OK, True)
    stored(home, "INSERT INTO processes VALUES (4711, 1, 'old', 'agt', 'msg', '/bin/cat', 1)")
    (leak,) = checks(home, "leaks")
    assert (leak.result, "/bin/cat" in leak.text) == (doctor_checks.WARN, True)
    assert leak.advice == "the next start ends what is left of them"


def test_a_store_that_can_not_be_read_is_told(home: Home) -> None:
    home.state_db.write_bytes(b"this is no database" * 500)
    (work,) = checks(home, "work")
    assert (work.result, str(home.state_db) in work.text) == (doctor_checks.FAIL, True)


def test_an_endpoint_without_the_library_fails(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    assert checks(home, "otel") == []
    home.config_toml.write_text('[otel]\nendpoint = "http://127.0.0.1:4318"\n')
    (there,) = checks(home, "otel")
    assert there.result == doctor_checks.OK
    find = importlib.util.find_spec
    monkeypatch.setattr(
        importlib.util,
        "find_spec",
        lambda name, *more: None if name.startswith("opentelemetry") else find(name, *more),
    )
    (missing,) = checks(home, "otel")
    assert missing.result == doctor_checks.FAIL
    assert "agentsup[otel]" in missing.advice
