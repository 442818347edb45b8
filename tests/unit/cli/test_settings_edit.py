"""Edits of config.toml and of single fields in agents.json keep what people wrote."""

from __future__ import annotations

import json
import tomllib
from pathlib import Path
from typing import Any

import pytest

from agentsup.cli.commands.home_files import (
    TEMPLATES,
    change_settings,
    difference,
    with_settings,
)
from agentsup.cli.connect.failure import CommandFailed
from agentsup.config import Home, with_fields, without_setting
from agentsup.model.errors import ConfigError

MODEL = {"model": "m", "engine_options": {"base_url": "http://x/v1", "api_key": "file:k"}}


@pytest.mark.parametrize(
    "text",
    [
        "",
        "# only this\n",
        "[agent_defaults]\n",
        '[agent_defaults]\n# the model\nmodel = "old"  # mine\nuser_timezone = "UTC"\n[api]\nport = 1\n',
        '[agent_defaults]\nengine_options = { temperature = 0.5, api_key = "env:A" }\n',
        '[agent_defaults.engine_options]\napi_key = "env:A"\n[api]\nport = 1\n',
    ],
)
def test_keys_are_set_and_all_else_stays(text: str) -> None:
    made = with_settings(text, "agent_defaults", MODEL)
    before, after = tomllib.loads(text), tomllib.loads(made)
    options = before.get("agent_defaults", {}).get("engine_options", {})
    assert after["agent_defaults"]["model"] == "m"
    assert after["agent_defaults"]["engine_options"] == {**options, **MODEL["engine_options"]}  # type: ignore[dict-item]
    assert {k: v for k, v in after.items() if k != "agent_defaults"} == {
        k: v for k, v in before.items() if k != "agent_defaults"
    }
    for line in text.splitlines():
        if line.startswith(("#", "[", "port", "user_timezone")):
            assert line in made.splitlines()
    assert with_settings(made, "agent_defaults", MODEL) == made, "said twice, it changes nothing"


def test_a_form_that_cant_be_edited_is_refused_with_what_to_write() -> None:
    with pytest.raises(
        CommandFailed, match=r"write it there yourself:\n\[agent_defaults\]\nmodel = \"m\""
    ):
        with_settings('agent_defaults.model = "x"\n', "agent_defaults", {"model": "m"})


def test_the_difference_shows_no_secret() -> None:
    before = 'telegram_token = "123456:secret"\nurl = "http://x"\n'
    assert difference(before, 'telegram_token = "env:BOT"\nurl = "http://y"\n') == [
        '- telegram_token = "***"',
        '- url = "http://x"',
        '+ telegram_token = "env:BOT"',
        '+ url = "http://y"',
    ]


def test_a_change_is_checked_before_it_is_written(tmp_path: Path) -> None:
    home = Home(tmp_path)
    home.config_toml.write_text("[api]\nport = 1\n")
    with pytest.raises(CommandFailed, match="would not be right after this change"):
        change_settings(home, lambda text: with_settings(text, "api", {"prot": 2}))
    assert home.config_toml.read_text() == "[api]\nport = 1\n"
    assert change_settings(home, lambda text: with_settings(text, "api", {"port": 2})) == [
        "- port = 1",
        "+ port = 2",
    ]
    assert [each.read_text() for each in home.backups.iterdir()] == ["[api]\nport = 1\n"]


@pytest.mark.parametrize(
    "fields", [{"model": "m"}, {"engine": "llm"}, {"engine_options": {"api_key": "file:k"}}]
)
def test_a_field_of_an_entry_is_set_where_it_stands(fields: dict[str, Any]) -> None:
    text = (TEMPLATES / "agents.json").read_text()
    made = with_fields(text, "Writer", fields)
    before, after = json.loads(text)["agents"], json.loads(made)["agents"]
    assert after[:2] == before[:2]
    for key, value in fields.items():
        known = before[2].get(key)
        assert after[2][key] == ({**known, **value} if isinstance(known, dict) else value)
    assert len(difference(text, made)) <= 3, "only what changed is written anew"


COMMENTED = """# about all of it
# and more

# what happens then
#main_crash = "exit"

[limits]
# days
keep_days = 90  # as agreed
hosts = [
  "a",  # one
  "b",
]
"""


def test_comments_and_order_stay_where_a_setting_is_changed() -> None:
    made = with_settings(COMMENTED, "limits", {"keep_days": 30})
    assert made == COMMENTED.replace("= 90", "= 30")
    made = with_settings(COMMENTED, "limits", {"hosts": ["c"]})
    assert made == COMMENTED.replace('[\n  "a",  # one\n  "b",\n]', '["c"]')
    made = with_settings(COMMENTED, "", {"main_crash": "restart"})
    shown = '#main_crash = "exit"\n'
    assert made == COMMENTED.replace(shown, shown + 'main_crash = "restart"\n')
    made = with_settings(COMMENTED, "", {"restart_in_place": "never"})
    assert made == COMMENTED.replace("more\n", 'more\nrestart_in_place = "never"\n')


def test_a_setting_is_taken_out_with_all_of_its_lines() -> None:
    assert without_setting(COMMENTED, "limits", "depth") == COMMENTED
    made = without_setting(COMMENTED, "limits", "hosts")
    assert made == COMMENTED.replace('hosts = [\n  "a",  # one\n  "b",\n]\n', "")
    with pytest.raises(ConfigError, match="take port out of it yourself"):
        without_setting("api.port = 1\n", "api", "port")
