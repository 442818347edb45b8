"""``config get``, ``config set`` and ``explain --changed``: what differs, and where from."""

from __future__ import annotations

import json
from typing import Any

import pytest
from typer.testing import CliRunner

from agentsup.cli.app import app
from agentsup.cli.connect.failure import CommandFailed
from agentsup.config import Home
from agentsup.model.errors import NotFound


def run(home: Home, *words: str) -> str:
    done = CliRunner().invoke(app, ["--home", str(home.root), *words])
    if done.exception is not None and not isinstance(done.exception, SystemExit):
        raise done.exception
    assert done.exit_code == 0, done.output
    return done.output


def listed(home: Home, *words: str) -> dict[str, Any]:
    found = json.loads(run(home, "config", "get", *words, "--json"))["settings"]
    return {one["key"]: one for one in found}


def test_what_is_set_is_read_back_with_its_origin_and_effect(
    home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert listed(home, "--changed") == {}
    assert listed(home)["api.port"]["from"] == "built-in"
    comments = home.config_toml.read_text().splitlines()
    for key, value, effect in (
        ("limits.keep_days", "30", "at once"),
        ("api.port", "8811", "after a restart (`agentsup restart`)"),
        ("agent_defaults.model", "5", "at once"),
        ("agent_defaults.engine", "scripted", "are rebuilt"),
        ("main.allowed_user_ids", "[7]", "applies at once"),
        ("main_crash", "restart", "at once"),
        ("people.anna.role", "operator", "at once"),
    ):
        assert effect in " ".join(run(home, "config", "set", key, value).split()), key
    changed = listed(home, "--changed")
    assert {key: one["value"] for key, one in changed.items()} == {
        "limits.keep_days": 30,
        "api.port": 8811,
        "agent_defaults.model": "5",
        "agent_defaults.engine": "scripted",
        "main.allowed_user_ids": [7],
        "main_crash": "restart",
        "people.anna.role": "operator",
    }
    assert changed["agent_defaults.model"]["from"] == "config.toml [agent_defaults]"
    assert set(comments) <= set(home.config_toml.read_text().splitlines())
    monkeypatch.setenv("AGENTSUP_API__PORT", "8812")
    assert listed(home, "api.port")["api.port"]["from"] == "environment AGENTSUP_API__PORT"
    assert "wins over the file" in run(home, "config", "set", "api.port", "8813")
    monkeypatch.delenv("AGENTSUP_API__PORT")
    run(home, "config", "set", "api.port", "--clear")
    assert listed(home, "api")["api.port"]["value"] == 8799
    assert "was so already" in run(home, "config", "set", "api.port", "--clear")


@pytest.mark.parametrize(
    "words, told",
    [
        (("limits.kepe_days", "3"), "did you mean 'limits.keep_days'?"),
        (("limits.keep_days", "0"), "must be at least 1"),
        (("limits.keep_days", "many"), "expected a whole number, found a text"),
        (("main.telegram_token", "123:abc"), "others could read on this command line"),
        (("limits.keep_days",), "either a VALUE or --clear"),
    ],
)
def test_what_is_wrong_is_not_written(home: Home, words: tuple[str, ...], told: str) -> None:
    before = home.config_toml.read_bytes()
    with pytest.raises((CommandFailed, NotFound)) as refused:
        run(home, "config", "set", *words)
    assert told in str(refused.value)
    assert home.config_toml.read_bytes() == before


def test_secrets_stay_hidden(home: Home) -> None:
    home.config_toml.write_text('[main]\ntelegram_token = "123:private"\n')
    assert "private" not in run(home, "config", "get")
    run(home, "config", "set", "main.telegram_token", "file:secrets/bot")
    assert listed(home)["main.telegram_token"]["value"] == "file:secrets/bot"


def test_explain_shows_only_what_differs(home: Home) -> None:
    run(home, "config", "set", "agent_defaults.user_timezone", "Europe/Vienna")
    run(home, "config", "set", "agent_defaults.engine", "auto")
    found = json.loads(run(home, "agents", "explain", "writer", "--changed", "--json"))["values"]
    assert {one["field"]: one["origin"] for one in found} == {
        "description": "agents.json",
        "prompt": "agents.json",
        "capabilities": "agents.json",
        "transports": "agents.json",
        "engine_options.script": "agents.json",
        "can_delegate_to": "agents.json",
        "user_timezone": "config.toml [agent_defaults]",
    }
    whole = json.loads(run(home, "agents", "explain", "writer", "--json"))["values"]
    assert len(whole) > 50
