"""What the doctor says of tool servers, without starting any."""

from __future__ import annotations

import importlib.util
import json
import sys
from pathlib import Path
from typing import Any

import pytest

from agentsup.cli.connect.locate import DaemonLocation
from agentsup.cli.doctor.agents import amiss, check_servers
from agentsup.cli.doctor.check import FAIL, OK, WARN, Examined
from agentsup.config.home import Home


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
