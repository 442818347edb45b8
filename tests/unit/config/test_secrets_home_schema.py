"""Secrets by reference, the paths of a home, and the shipped schema."""

from __future__ import annotations

import json
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from agentsup.config import Home, parse_agents, parse_settings, schema, secrets
from agentsup.config.schema import agents_schema, config_schema, schema_texts
from agentsup.model.errors import ConfigError, ConfigErrors
from agentsup.model.secret import Secret

REPOSITORY = Path(__file__).parents[3]


def test_references_are_resolved_where_they_point(tmp_path: Path) -> None:
    (tmp_path / "token").write_text("  from-file\n")
    environ = {"TOKEN": " from-env "}

    def value(written: str) -> str:
        return secrets.resolve(Secret(written), base=tmp_path, environ=environ).reveal()

    assert value("plain") == "plain"
    assert value("env:TOKEN") == "from-env"
    assert value("file:token") == "from-file"
    assert value(f"file:{tmp_path / 'token'}") == "from-file"


@pytest.mark.parametrize(
    "written", ["env:NONE", "env:EMPTY", "env:CHAIN", "file:none", "file:.", "file:big", "file:bin", "file:\0"]
)  # fmt: skip
def test_an_unusable_reference_is_named_and_nothing_shown(tmp_path: Path, written: str) -> None:
    (tmp_path / "big").write_bytes(b"private" * 100_000)
    (tmp_path / "bin").write_bytes(b"private\xff")
    environ = {"EMPTY": "", "CHAIN": "env:private"}
    with pytest.raises(ConfigError) as caught:
        secrets.resolve(Secret(written), base=tmp_path, environ=environ)
    assert "private" not in str(caught.value)


def test_options_keep_paths_and_resolve_secrets(tmp_path: Path) -> None:
    (tmp_path / "key").write_text("k")
    options = {
        "script": "file:rules.yaml", "api_key": "file:key", "base_url": "env:URL", "n": 1,
        "headers": {"X-Token": "env:T", "list": ["env:T", None]},
    }  # fmt: skip
    protected = secrets.protect(options)
    assert isinstance(protected["api_key"], Secret)
    assert secrets.resolve_options(
        protected, base=tmp_path, environ={"URL": "http://u", "T": "t"}
    ) == {
        "script": "file:rules.yaml", "api_key": "k", "base_url": "http://u", "n": 1,
        "headers": {"X-Token": "t", "list": ["t", None]},
    }  # fmt: skip
    assert secrets.redacted(secrets.protect({"token": "x", "a": ["b"]})) == {
        "token": "***", "a": ["b"]
    }  # fmt: skip
    assert len(secrets.secret_values(protected)) == 2


def test_the_home_is_given_else_named_by_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/people/ada")
    assert Home.resolve("x", {}).root == Path.cwd() / "x"
    assert Home.resolve("~/h", {"AGENTSUP_HOME": "/other"}).root == Path("/people/ada/h")
    assert Home.resolve(None, {"AGENTSUP_HOME": "/other"}).root == Path("/other")
    assert Home.resolve(None, {"AGENTSUP_HOME": ""}).root == Path("/people/ada/.agentsup")


def test_paths_of_agents_and_tasks_stay_inside(tmp_path: Path) -> None:
    home = Home(tmp_path)
    assert home.workspace("ada") == tmp_path / "agents" / "ada" / "workspace"
    assert home.memory("ada") == tmp_path / "agents" / "ada" / "MEMORY.md"
    assert home.task_dir("task_1") == tmp_path / "tasks" / "task_1"
    for wrong in ("../x", "", "/", "a/b"):
        with pytest.raises(ConfigError):
            home.agent_dir(wrong)
        with pytest.raises(ConfigError):
            home.task_dir(wrong)


def test_a_home_is_made_for_its_owner_alone(tmp_path: Path) -> None:
    home = Home(tmp_path / "deep" / "home")
    home.create()
    home.create()
    for path in (home.root, home.logs, home.agents, home.tasks):
        assert path.stat().st_mode & 0o777 == 0o700
    assert {path.name for path in home.watched} == {"agents.json", "config.toml", "SHAREDMEMORY.md"}


def test_finding_the_home_imports_nothing_heavy() -> None:
    code = "import sys, agentsup.config.home; print('pydantic' in sys.modules, 'asyncio' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["False", "False"]


@pytest.mark.parametrize("name", [schema.AGENTS_FILE, schema.CONFIG_FILE])
def test_the_shipped_schema_is_up_to_date(name: str) -> None:
    shipped = Path(schema.__file__).with_name(name).read_text()
    assert shipped == schema_texts()[name], "run: python -m agentsup.config.schema"
    jsonschema.Draft202012Validator.check_schema(json.loads(shipped))


def test_each_setting_of_config_toml_says_what_it_means() -> None:
    tables = config_schema()
    named = {"": tables["properties"], **{k: d["properties"] for k, d in tables["$defs"].items()}}
    silent = [
        f"{table}.{key}"
        for table, settings in named.items()
        for key, value in settings.items()
        if not (value.get("description") or "$ref" in value or value.get("additionalProperties"))
    ]
    assert silent == []


CONFIG_AGREED: list[tuple[str, bool]] = [
    ("", True),
    ('[main]\nmodel = "m"\n[agent_defaults.budget]\nper_day_usd = 1.0', True),
    ("[limits]\naging_s = 5", True),
    ("[limits]\nprocesses = 0", False),
    ("[api]\nport = 70000", False),
    ("[api]\nprot = 1", False),
    ('[people.ann]\nrole = "king"', False),
    ("[people.ann]\ntelegram = [5]", True),
    ('[main]\nmodell = "m"', False),
    ('main_crash = "burn"', False),
]


@pytest.mark.parametrize("text, is_right", CONFIG_AGREED)
def test_the_schema_of_config_toml_agrees_with_its_check(text: str, is_right: bool) -> None:
    validator = jsonschema.Draft202012Validator(config_schema())
    assert validator.is_valid(tomllib.loads(text)) is is_right
    if is_right:
        parse_settings(text.encode())
    else:
        with pytest.raises(ConfigErrors):
            parse_settings(text.encode())


def test_the_example_loads_and_fits_the_schema() -> None:
    data = (REPOSITORY / "agents.example.json").read_bytes()
    assert parse_agents(data).warnings == ()
    jsonschema.validate(json.loads(data), agents_schema())


AGREED: list[tuple[Any, bool]] = [
    ([], True),
    ([{"name": "a", "slots": 2, "streaming": True, "model": None}], True),
    ([{"name": "a", "slots": {"peer": 1}, "streaming": {"edit_interval_seconds": 2}}], True),
    ([{"name": "a", "transport": "telegram", "cli_timeout": 5, "mcp": {"enabled": True}}], True),
    ([{"name": "a", "mcp": {"x": 1}}], False),
    ([{"name": "a", "mcp": {"x": {"command": "x", "disabled": True}}}], True),
    (
        [{"name": "a", "mcpServers": {"x": {"url": "https://x/mcp", "headers": {"A": "env:A"}}}}],
        True,
    ),
    ([{"name": "a", "mcp": {"x": {"comand": "x"}}}], False),
    ([{"name": "a", "matrix": {"store_path": "x", "allowed_users": []}}], True),
    ({"$schema": "x", "agents": [{"name": "a.b-c_1"}]}, True),
    ({"agents": [], "more": 1}, False),
    ([{"nam": "a"}], False),
    ([{"name": "../a"}], False),
    ([{"name": "a..b"}], False),
    ([{"name": "a."}], False),
    ([{"name": "operator"}], False),
    ([{"name": "a", "slots": {"pear": 1}}], False),
    ([{"name": "a", "slots": True}], False),
    ([{"name": "a", "engine": "x"}], False),
    ([{"name": "a", "telegram_base_url": "x"}], False),
    ([{"name": "a", "queue_limit": 0}], False),
    ([{"name": "a", "allowed_user_ids": ["1"]}], False),
]


@pytest.mark.parametrize("document, fits", AGREED)
def test_schema_and_parser_agree(document: Any, fits: bool) -> None:
    validator = jsonschema.Draft202012Validator(agents_schema())
    assert validator.is_valid(document) is fits
    try:
        parse_agents(json.dumps(document).encode())
    except ConfigErrors:
        assert not fits
    else:
        assert fits
