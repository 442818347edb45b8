"""``agents validate`` reads scripts too: what is wrong, in which file and line."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from agentsup.cli.main import main
from agentsup.config import ConfigFinding, Home, load, validate
from agentsup.daemon.runtime import ScriptCheck


def checked(root: Path, *entries: dict[str, Any]) -> list[ConfigFinding]:
    home = Home(root)
    home.create()
    home.agents_json.write_text(json.dumps(list(entries), indent=1))
    assert load(home, environ={}), "the daemon takes the files as they are"
    return validate(home, {}, checks=(ScriptCheck(),))


def scripted(source: str, **more: Any) -> dict[str, Any]:
    return {"name": "ann", "engine": "scripted", "engine_options": {"script": source}, **more}


def line_of(root: Path, text: str) -> int:
    lines = Home(root).agents_json.read_text().splitlines()
    return next(number for number, line in enumerate(lines, 1) if text in line)


def test_a_good_script_is_right(tmp_path: Path) -> None:
    (tmp_path / "rules.yaml").write_text("- {match: 'x', steps: [{say: y}]}\n")
    assert checked(tmp_path, scripted("file:rules.yaml"), {"name": "ben", "engine": "auto"}) == []


def test_a_change_of_a_script_is_told_once_though_no_agent_names_it_any_more(
    tmp_path: Path,
) -> None:
    home, check, rules = Home(tmp_path), ScriptCheck(), tmp_path / "rules.yaml"
    home.create()
    rules.write_text("- {match: 'x', steps: [{say: y}]}\n")
    for agents in ([scripted("rules.yaml")], []):
        home.agents_json.write_text(json.dumps(agents))
        assert validate(home, {}, checks=(check,)) == []
        assert not check.has_changed()
    rules.unlink()
    assert [check.has_changed() for _ in range(2)] == [True, False]
    rules.write_text("- {match: 'x', steps: [{say: z}]}\n")
    assert [check.has_changed() for _ in range(2)] == [True, False]


@pytest.mark.parametrize(
    "text, line, message, field",
    [
        ("- match: x\n  steps: [\n", 3, "not valid YAML", None),
        ("- match: x\n  steps:\n  - say: a\n  - shout: b\n", 4, "unknown key", "rule 1, step 2"),
        ("- match: x\n  steps: []\n- match: '('\n  steps: []\n", 3, "regular", "rule 2, match"),
        ("match: x\n", 1, "a list of rules", None),
    ],
)
def test_a_broken_script_is_named_by_its_file_and_line(
    tmp_path: Path, text: str, line: int, message: str, field: str | None
) -> None:
    (tmp_path / "rules.yaml").write_text(text)
    (found,) = checked(tmp_path, scripted("rules.yaml", enabled=False))
    assert found.is_error
    assert (found.path, found.line) == (str(tmp_path / "rules.yaml"), line)
    assert found.message.startswith("the script of ann: ")
    assert message in found.message
    assert (found.field or "").startswith(field or "")


def test_the_command_says_so_and_ends_with_one(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "rules.yaml").write_text("- match: x\n  steps: []\n  stepz: []\n")
    checked(tmp_path, scripted("rules.yaml"))
    with pytest.raises(SystemExit) as ended:
        main(["--home", str(tmp_path), "agents", "validate"])
    assert ended.value.code == 1
    assert f"{tmp_path / 'rules.yaml'}:3:3" in capsys.readouterr().out


def test_a_script_that_is_not_there_is_named_where_it_is_asked_for(tmp_path: Path) -> None:
    (found,) = checked(tmp_path, scripted("file:gone.yaml"))
    assert (found.path, found.line) == ("agents.json", line_of(tmp_path, "gone.yaml"))
    assert "can't be read: No such file" in found.message
    assert found.field == "ann.engine_options.script"


def test_rules_in_the_entry_are_checked_at_their_place(tmp_path: Path) -> None:
    rules = [{"match": "a", "steps": [{"say": "b"}]}, {"match": "c", "steps": [{"sleep": "soon"}]}]
    entry = {"name": "ann", "engine": "scripted", "engine_options": {"rules": rules}}
    (found,) = checked(tmp_path, entry)
    assert found.path == "agents.json"
    assert found.line is not None
    assert abs(found.line - line_of(tmp_path, '"c"')) <= 1
    assert "a number of seconds" in found.message


def test_the_fallbacks_script_is_checked_and_that_of_other_engines_is_not(tmp_path: Path) -> None:
    entry = {
        "name": "ann",
        "engine": "llm",
        "engine_options": {"script": "nowhere.yaml"},
        "fallback_engine": "scripted",
        "fallback_options": {"script": "gone.yaml"},
    }
    (found,) = checked(tmp_path, entry)
    assert found.field == "ann.fallback_options.script"


def test_a_script_of_all_agents_is_named_in_config_toml(tmp_path: Path) -> None:
    Home(tmp_path).create()
    (tmp_path / "config.toml").write_text(
        '[agent_defaults]\nengine = "scripted"\n\n[agent_defaults.engine_options]\nscript = "no"\n'
    )
    found = checked(tmp_path, {"name": "ann"})
    assert {(one.path, one.is_error) for one in found} == {("config.toml", True)}
