"""The mistakes that a new user makes in the files: each is named with its line and a cure."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from pydantic import BaseModel

from agentsup.cli.commands.agents_editor import check_home
from agentsup.config import Home
from agentsup.model.tool_names import ALL

AGENTS = """[
  {
    "name": "ada",
    %s
  }
]
"""
TOKEN = "1234567890:AAHdqTcvCH1vGWJxfSeofSAs0K5PALDsaw"


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Home:
    for name in ("OPENAI_API_KEY", "OPENAI_BASE_URL", "ANTHROPIC_API_KEY", "ANTHROPIC_BASE_URL"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    return Home(tmp_path)


@pytest.mark.parametrize(
    "text, position, told",
    [
        ('[\n  {"name": "a"}\n  {"name": "b"}\n]\n', "3:3", "a comma or colon is missing"),
        ('[\n  {"name": "a",}\n]\n', "2:16", "remove the comma"),
        ('[\n  // mine\n  {"name": "a"}\n]\n', "2:3", "remove the comment"),
        ("\n", "1:1", "a file without agents holds []"),
        ('[\n  {"name": "a"},\n  {"name": "A"}\n]\n', "3:4", "is taken by the entry in line 2"),
        (AGENTS % '"engine": "cluade"', "4:5", "did you mean 'claude'?"),
        (AGENTS % '"slots": "two"', "4:5", "expected a whole number or an object"),
        (AGENTS % '"can_delegate_to": ["nobody"]', "4:25", "neither an agent nor a role"),
        ('[\n  {"name": "my agent"}\n]\n', "2:4", "a name may have letters"),
        (
            AGENTS % '"telegram_token": "env:NO_TOKEN", "allowed_user_ids": [1]',
            "4:5",
            "the environment variable NO_TOKEN is not set (put it into the file environment",
        ),
        (AGENTS % '"telegram_token": "file:t"', "4:5", "list your own Telegram user id"),
        (AGENTS % '"budget": {"per_day_usd": -1}', "4:16", "at least 0"),
        (AGENTS % '"cmd": "claude"', "4:5", "unknown key 'cmd'"),
        (AGENTS % '"user_timezone": "Vienna"', "4:5", "did you mean 'Europe/Vienna'?"),
        (AGENTS % '"modle": "gpt-5-mini"', "4:5", "did you mean 'model'?"),
        (AGENTS % '"cli_timeout": 5, "cli_parameters": ["-x"]', "4:23", "fixed command line"),
        (AGENTS % '"tools": ["fs_raed"]', "4:15", "did you mean 'fs_read'?"),
        (AGENTS % '"role": "oparator"', "4:5", "there is no role 'oparator'"),
        (AGENTS % '"engine_options": {"scrpt": "x"}', "4:24", "did you mean 'script'?"),
        (
            AGENTS % f'"telegram_token": "{TOKEN}", "allowed_user_ids": [1]',
            "4:5",
            'write "file:secrets/ada.telegram_token"',
        ),
        (
            AGENTS % '"model": "gpt-5-mini"',
            "4:5",
            "put OPENAI_API_KEY=… into the file environment",
        ),
        (AGENTS % '"telegram_token": "12:short"', "4:5", "copy it again"),
    ],
)
def test_a_mistake_in_agents_json_is_named(home: Home, text: str, position: str, told: str) -> None:
    home.agents_json.write_text(text)
    (home.root / "t").write_text(TOKEN)
    shown = [str(one) for one in check_home(home)]
    assert [one for one in shown if one.startswith(f"agents.json:{position}: ") and told in one], (
        shown
    )
    assert TOKEN not in str(shown)


@pytest.mark.parametrize(
    "text, position, told",
    [
        ("[limts]\ndepth = 4\n", "1:2", "did you mean 'limits'?"),
        (
            '[people.anna]\n\nrole = "boss"\n',
            "3:1",
            "is not one of viewer, user, operator, manager",
        ),
        ("[api\nport = 1\n", "1:5", "this is not TOML"),
        ('[api]\nport = "8799"\n', "2:1", "expected a whole number, found a text"),
    ],
)
def test_a_mistake_in_config_toml_is_named(home: Home, text: str, position: str, told: str) -> None:
    home.agents_json.write_text("[]\n")
    home.config_toml.write_text(text)
    shown = [str(one) for one in check_home(home)]
    assert [one for one in shown if one.startswith(f"config.toml:{position}: ") and told in one], (
        shown
    )


def test_a_missing_agents_json_is_not_right(home: Home) -> None:
    (found,) = check_home(home)
    assert "agents.json" in str(found)
    assert "main is the only agent" in str(found)
    assert "agentsup init" in str(found)
    home.applied.mkdir()
    (home.applied / "agents.json").write_text("[]")
    (gone,) = check_home(home)
    assert (gone.is_error, "put it back" in str(gone)) == (True, True)


def test_a_home_as_it_should_be_has_no_findings(home: Home) -> None:
    (home.root / "t").write_text(TOKEN)
    entry = {"name": "ada", "telegram_token": "file:t", "allowed_user_ids": [1]}
    home.agents_json.write_text(json.dumps([entry]))
    assert check_home(home) == []


def test_an_option_of_another_engine_is_an_error(home: Home) -> None:
    home.agents_json.write_text(AGENTS % '"engine": "claude", "engine_options": {"base_url": "x"}')
    (found,) = [one for one in check_home(home) if "no option 'base_url'" in str(one)]
    assert found.is_error, "each message would fail"
    assert "it has allowed_tools, " in str(found)


def test_the_options_are_those_that_the_engines_read() -> None:
    from agentsup.engines.acp.choices import AcpOptions
    from agentsup.engines.claude.arguments import ClaudeOptions
    from agentsup.engines.command.engine import CommandOptions
    from agentsup.engines.llm.settings import LlmOptions
    from agentsup.model.tool_names import OPTIONS

    read: dict[str, type[BaseModel]] = {
        "llm": LlmOptions,
        "claude": ClaudeOptions,
        "command": CommandOptions,
        "acp": AcpOptions,
    }
    assert {name: frozenset(kind.model_fields) for name, kind in read.items()} == {
        name: known for name, known in OPTIONS.items() if name != "scripted"
    }
    assert OPTIONS["scripted"] < ALL
