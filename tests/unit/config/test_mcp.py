"""``mcp`` of an entry: shapes people know, what can't work, secrets, and what an edit touches."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from agentsup.config import (
    ConfigSnapshot,
    Home,
    McpServer,
    diff,
    explain_agent,
    load,
    resolved,
    servers_of,
)
from agentsup.model.agent_fields import FieldClass
from agentsup.model.errors import ConfigError, ConfigErrors

ENVIRON = {"TOKEN": "ghp_the-real-token", "EMPTY": ""}


def given(root: Path, *entries: dict[str, Any], config: str = "") -> ConfigSnapshot:
    home = Home(root)
    home.create()
    home.agents_json.write_text(json.dumps(list(entries)))
    home.config_toml.write_text(config)
    return load(home, environ=ENVIRON)


def servers(root: Path, mcp: Any, key: str = "mcp", **more: Any) -> dict[str, McpServer]:
    return servers_of(given(root, {"name": "ada", key: mcp}, **more).specs["ada"].mcp)


def refused(root: Path, mcp: Any) -> ConfigError:
    with pytest.raises(ConfigErrors) as caught:
        given(root, {"name": "ada", "mcp": mcp})
    return caught.value.findings[0]


STDIO = {"command": "npx", "args": ["-y", "server"], "env": {"KEY": "env:TOKEN", "LEVEL": "debug"}}


@pytest.mark.parametrize(
    "key, written",
    [
        ("mcp", {"git": STDIO}),
        ("mcpServers", {"git": STDIO}),
        ("mcp", {"mcpServers": {"git": {**STDIO, "type": "stdio", "disabled": False}}}),
        ("mcp", {"enabled": True, "servers": [{"name": "git", **STDIO}]}),
        ("mcp", {"enabled": True, "git": STDIO}),
    ],
)
def test_the_shapes_that_others_write_are_one_server(
    tmp_path: Path, key: str, written: Any
) -> None:
    (git,) = servers(tmp_path, written, key).values()
    assert (git.name, git.kind, git.command, git.args) == ("git", "stdio", "npx", ("-y", "server"))
    assert git.enabled
    opened = resolved(git, base=tmp_path, environ=ENVIRON)
    assert opened.env == {"KEY": "ghp_the-real-token", "LEVEL": "debug"}


def test_a_server_at_an_address_with_its_headers(tmp_path: Path) -> None:
    written = {
        "httpUrl": "https://mcp.example/mcp?key=abc",
        "headers": {"Authorization": "Bearer env:TOKEN", "X-Plain": "yes"},
        "type": "streamable-http",
    }
    (web,) = servers(tmp_path, {"web": written}).values()
    assert (web.kind, web.shown) == ("http", "***"), "an address with a query may hold a key"
    opened = resolved(web, base=tmp_path, environ=ENVIRON)
    assert opened.headers == {"Authorization": "Bearer ghp_the-real-token", "X-Plain": "yes"}
    assert opened.url.endswith("key=abc")
    assert "ghp_the-real-token" in opened.secrets
    (plain,) = servers(tmp_path, {"web": {"url": "https://mcp.example/mcp"}}).values()
    assert plain.shown == "https://mcp.example/mcp"


def test_secrets_are_shown_nowhere_and_known_to_the_log(tmp_path: Path) -> None:
    mcp = {
        "git": {"command": "x", "env": {"API_KEY": "plain-secret-1", "LEVEL": "debug"}},
        "web": {"url": "https://x/mcp", "headers": {"Authorization": "Bearer plain-secret-2"}},
    }
    snapshot = given(tmp_path, {"name": "ada", "mcp": mcp})
    shown = repr(explain_agent(snapshot, "ada")) + repr(snapshot.specs["ada"])
    assert "plain-secret" not in shown
    assert "debug" in shown, "what is no secret is shown"
    known = {secret.written for secret in snapshot.secrets()}
    assert {"plain-secret-1", "plain-secret-2"} <= known


@pytest.mark.parametrize(
    "mcp, says",
    [
        ({"git": {}}, "neither a command nor a url"),
        ({"git": {**STDIO, "url": "https://x"}}, "both a command and a url"),
        ({"git": {"command": ""}}, "at least 1"),
        ({"git": {"command": "x", "headers": {"A": "b"}}}, "nothing for a server of type stdio"),
        ({"git": {"url": "https://x", "args": ["y"]}}, "nothing for a server of type http"),
        ({"git": {"type": "http", "command": "x"}}, "is of type stdio"),
        ({"git": {"command": "x", "cwd": "here"}}, "absolute path"),
        ({"git": {"comand": "x"}}, "unknown key 'comand'"),
        ({"git": {"command": "x", "safety": {"*": "harmless"}}}, "not one of safe"),
        ({"git": {"url": "ftp://x"}}, "http://"),
        ({"git": {"url": "https://x", "headers": {"A": "b\r\nC: d"}}}, "line break"),
        ({"git": {"command": "x", "env": {"A=B": "c"}}}, "letters, digits"),
        ({"git": "npx"}, "expected an object"),
        ("npx", "expected an object"),
        ({f"s{n}": STDIO for n in range(17)}, "at most 16"),
    ],
)
def test_what_can_not_work_is_said_with_its_place(tmp_path: Path, mcp: Any, says: str) -> None:
    found = refused(tmp_path, mcp)
    assert says in str(found)
    assert found.line is not None
    assert "mcp" in (found.field or "")


def test_a_secret_among_the_arguments_is_warned_about(tmp_path: Path) -> None:
    mcp = {
        "a": {"command": "x", "args": ["--api-key=sk-1", "--token", "y", "--key-file"]},
        "b": {"command": "x", "env": {"T": "${TOKEN}", "U": "env:NOT_SET"}},
    }
    snapshot = given(tmp_path, {"name": "ada", "mcp": mcp})
    told = [str(each) for each in snapshot.warnings]
    assert sum("can read a program's arguments" in each for each in told) == 2
    assert any("write env:NAME" in each for each in told)
    assert any("NOT_SET is not set" in each for each in told)
    assert not any("sk-1" in each for each in told)


def test_a_server_of_the_defaults_can_be_switched_off_or_changed(tmp_path: Path) -> None:
    config = '[agent_defaults.mcp.git]\ncommand = "npx"\nargs = ["a"]\n'
    assert servers(tmp_path, {"git": {"args": ["b"]}}, config=config)["git"].args == ("b",)
    assert not servers(tmp_path, {"git": {"enabled": False}}, config=config)["git"].enabled


def test_an_edit_names_the_one_server_it_touches_and_rebuilds_nothing(tmp_path: Path) -> None:
    def spec(args: list[str]) -> dict[str, Any]:
        return {"name": "ada", "mcp": {"one": STDIO, "two": {**STDIO, "args": args}}}

    before = given(tmp_path, spec(["a"]))
    plan = diff(before, given(tmp_path, spec(["b"])))
    assert list(plan.changed["ada"]) == ["mcp.two"]
    assert plan.changed["ada"]["mcp.two"].cls is FieldClass.LIVE
    assert plan.rebuild == ()
