"""Files and blocks of other programs: what is taken, what is left out, and what is said of it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from agentsup.config import ConfigSnapshot, Home, McpServer, load, parse_agents, servers_of
from agentsup.model.errors import ConfigErrors

NPX = {"command": "npx", "args": ["-y", "x"]}
WEB = {"url": "https://x.example/mcp"}


def given(root: Path, **entry: Any) -> ConfigSnapshot:
    home = Home(root)
    home.create()
    home.agents_json.write_text(json.dumps({"agents": [{"name": "ada", **entry}]}))
    home.config_toml.write_text("")
    return load(home, environ={})


def server(root: Path, written: dict[str, Any], **more: Any) -> tuple[McpServer, list[str]]:
    """The server as it is read, and the warnings. A good one beside it is always there."""
    snapshot = given(root, mcpServers={"s": written, "good": NPX, **more})
    servers = servers_of(snapshot.specs["ada"].mcp)
    assert servers["good"].enabled
    return servers["s"], [str(each) for each in snapshot.warnings]


@pytest.mark.parametrize(
    "key",
    ["description", "_comment", "$note", "//", "link", "gallery", "version", "homepage", "icon"],
)
def test_a_key_for_people_is_a_warning(tmp_path: Path, key: str) -> None:
    read, told = server(tmp_path, {**NPX, key: "x"})
    assert (read.enabled, read.command, read.args) == (True, "npx", ("-y", "x"))
    (warning,) = told
    assert f"{key} has no effect here" in warning
    assert "agents.json:1:" in warning


@pytest.mark.parametrize(
    "key, value, call_s, start_s",
    [
        ("timeout", 30000, 30.0, 60.0),
        ("timeout", 60, 60.0, 60.0),
        ("timeout", 1000, 1.0, 60.0),
        ("timeout", 36_000_000, 3600.0, 60.0),
        ("timeout", 0, 120.0, 60.0),
        ("timeout", "30s", 120.0, 60.0),
        ("tool_timeout_sec", 1800, 1800.0, 60.0),
        ("startup_timeout_sec", 20, 120.0, 20.0),
        ("startup_timeout_ms", 500, 120.0, 0.5),
        ("connect_timeout", 90, 120.0, 90.0),
    ],
)
def test_a_time_is_taken_in_our_unit_and_said(
    tmp_path: Path, key: str, value: int, call_s: float, start_s: float
) -> None:
    read, (warning,) = server(tmp_path, {**NPX, key: value})
    assert (read.call_timeout_s, read.start_timeout_s) == (call_s, start_s)
    assert key in warning


@pytest.mark.parametrize(
    "written, expected",
    [
        ({**NPX, "includeTools": ["a"]}, {"tools": ("a",)}),
        ({**NPX, "enabled_tools": ["a"]}, {"tools": ("a",)}),
        ({**NPX, "includeTools": ["a", "b"], "excludeTools": ["b"]}, {"tools": ("a",)}),
        ({**NPX, "tools": {"include": ["a"]}}, {"tools": ("a",)}),
        ({**NPX, "environment": {"A": "b"}}, {"env": {"A": "b"}}),
        ({"cmd": "npx", "args": ["-y", "x"], "envs": {"A": "b"}}, {"env": {"A": "b"}}),
        ({**NPX, "isActive": False}, {"enabled": False}),
        ({"command": ["npx", "-y", "x"], "type": "local"}, {"command": "npx"}),
        ({"command": {"path": "npx", "args": ["-y", "x"]}, "source": "custom"}, {"command": "npx"}),
        ({"type": "remote", **WEB}, {"url": "https://x.example/mcp"}),
        ({"serverUrl": "https://x.example/mcp"}, {"url": "https://x.example/mcp"}),
        ({"uri": "https://x.example/mcp"}, {"url": "https://x.example/mcp"}),
    ],
    ids=lambda each: json.dumps(each)[:60],
)
def test_what_has_a_meaning_here_is_taken(
    tmp_path: Path, written: dict[str, Any], expected: dict[str, Any]
) -> None:
    read, _ = server(tmp_path, written)
    assert {key: getattr(read, key) for key in expected} == expected
    assert read.args == (() if read.url else ("-y", "x"))


@pytest.mark.parametrize(
    "more, says, our_word",
    [
        ({"excludeTools": ["a"]}, "excludeTools", '"tools"'),
        ({"disabledTools": ["a"]}, "disabledTools", '"tools"'),
        ({"includeTools": ["a*"], "excludeTools": ["ab"]}, "excludeTools", '"tools"'),
        ({"tools": {"exclude": ["a"]}}, "excludeTools", '"tools"'),
        ({"envFile": ".env"}, "envFile", '"env"'),
        ({"oauth": {"clientId": "x"}}, "oauth", '"headers"'),
    ],
)
def test_a_server_without_its_meaning_is_left_out_alone_with_our_word(
    tmp_path: Path, more: dict[str, Any], says: str, our_word: str
) -> None:
    read, (warning,) = server(tmp_path, {**NPX, **more})
    assert not read.enabled
    assert says in warning
    assert our_word in warning
    assert "this server is left out" in warning


@pytest.mark.parametrize(
    "written, says",
    [
        ({"args": ["missing-command.py"]}, "neither a command nor a url"),
        ({}, "neither a command nor a url"),
        ("npx x", "expected an object"),
        (["npx", "x"], "expected an object"),
        ({**NPX, **WEB}, "both a command and a url"),
        ({"command": "npx", "type": "http"}, "is of type stdio"),
        ({"type": "ws", "url": "ws://x.example"}, "http://"),
        ({"command": 1}, "expected a text"),
        ({"command": "npx", "args": "-y x"}, "expected a list"),
        ({**NPX, "cwd": "here"}, "absolute path"),
        ({**NPX, "cwd": "${workspaceFolder}"}, "absolute path"),
        ({**NPX, "disabled": "true"}, '"enabled"'),
        ({**WEB, "requestInit": {"headers": {"A": "b"}}}, '"headers"'),
    ],
    ids=lambda each: json.dumps(each)[:60],
)
def test_a_server_that_can_not_be_used_is_left_out_alone(
    tmp_path: Path, written: Any, says: str
) -> None:
    read, told = server(tmp_path, written)
    assert not read.enabled
    assert any(says in each and "this server is left out" in each for each in told)
    assert all(each.startswith("agents.json:1:") for each in told)


@pytest.mark.parametrize(
    "written, expected",
    [
        (
            {**NPX, "env": {"PORT": 3000, "DEBUG": True, "NO": None}},
            {"PORT": "3000", "DEBUG": "true"},
        ),
        ({**NPX, "env": ["A=b=c", "D="]}, {"A": "b=c", "D": ""}),
    ],
)
def test_values_of_other_types_are_texts(
    tmp_path: Path, written: dict[str, Any], expected: dict[str, str]
) -> None:
    read, told = server(tmp_path, written)
    assert (read.env, told) == (expected, [])
    assert server(tmp_path, {"command": "npx", "args": ["-p", 3000]})[0].args == ("-p", "3000")
    assert server(tmp_path, {**WEB, "headers": {"X-Id": 1}})[0].headers == {"X-Id": "1"}


@pytest.mark.parametrize(
    "written", [{**WEB, "env": {"A": "b"}}, {**NPX, "headers": {"A": "b"}}, {**WEB, "cwd": "/tmp"}]
)
def test_what_means_nothing_for_a_server_costs_nothing(
    tmp_path: Path, written: dict[str, Any]
) -> None:
    read, (warning,) = server(tmp_path, written)
    assert read.enabled
    assert "it has no effect" in warning


@pytest.mark.parametrize("key", ["cwd", "workingDirectory"])
def test_the_folder_of_a_program_is_taken(tmp_path: Path, key: str) -> None:
    read, told = server(tmp_path, {**NPX, key: "/srv/tools"})
    assert (read.enabled, read.cwd, told) == (True, "/srv/tools", [])


def test_a_list_of_servers_with_names_is_taken(tmp_path: Path) -> None:
    snapshot = given(tmp_path, mcpServers=[{"name": "one", **NPX}, {"name": "two"}])
    servers = servers_of(snapshot.specs["ada"].mcp)
    assert (servers["one"].enabled, servers["two"].enabled) == (True, False)


@pytest.mark.parametrize("key", ["type", "transport"])
def test_the_transport_sse_costs_its_server_alone(tmp_path: Path, key: str) -> None:
    read, (warning,) = server(tmp_path, {key: "sse", **WEB})
    assert not read.enabled
    assert "sse is not spoken" in warning


@pytest.mark.parametrize(
    "more, our_word",
    [
        ({"trust": True}, '"safety"'),
        ({"alwaysAllow": ["a"]}, '"safety"'),
        ({"autoApprove": ["a"]}, '"safety"'),
    ],
)
def test_what_only_narrows_when_it_is_lost_is_a_warning(
    tmp_path: Path, more: dict[str, Any], our_word: str
) -> None:
    read, (warning,) = server(tmp_path, {**NPX, **more})
    assert read.enabled
    assert our_word in warning
    assert (read.trust_hints, read.safety) == (False, {})


@pytest.mark.parametrize("more", [{"trust": False}, {"autoApprove": []}, {"disabledTools": []}])
def test_what_says_nothing_is_not_told(tmp_path: Path, more: dict[str, Any]) -> None:
    assert server(tmp_path, {**NPX, **more})[1] == []


def test_an_unusable_name_costs_its_server_and_a_usable_one_is_proposed(tmp_path: Path) -> None:
    names: dict[str, str | None] = {
        "My Server": "My-Server",
        "@scope/name": "scope-name",
        "a__b": "a-b",
        "git_": "git",
    }
    names |= {"agentsup": None, "书": None}
    snapshot = given(tmp_path, mcpServers={**dict.fromkeys(names, NPX), "good": NPX})
    assert set(servers_of(snapshot.specs["ada"].mcp)) == {"good"}
    told = [str(each) for each in snapshot.warnings]
    assert len(told) == len(names)
    for usable in filter(None, names.values()):
        assert any(f"name it {usable!r}" in each for each in told)


@pytest.mark.parametrize(
    "written",
    [
        {"command": "npx", "args": ["-y", "${input:key}"]},
        {**NPX, "env": {"A": "${HOME}"}},
        {**NPX, "env": {"A": "{env:HOME}"}},
        {"url": "https://x.example/${TENANT}"},
    ],
    ids=str,
)
def test_a_variable_that_nobody_puts_in_is_warned_about(
    tmp_path: Path, written: dict[str, Any]
) -> None:
    _, (warning,) = server(tmp_path, written)
    assert "as it stands" in warning


def test_text_in_braces_is_no_variable(tmp_path: Path) -> None:
    assert server(tmp_path, {"command": "x", "args": ['{"a": 1}', "{name}"]})[1] == []


def test_a_command_line_in_place_of_a_program_is_explained(tmp_path: Path) -> None:
    _, (warning,) = server(tmp_path, {"command": "npx -y 'a b'"})
    assert 'write "command": "npx", "args": ["-y", "a b"]' in warning
    assert server(tmp_path, {"command": "/opt/my tools/x"})[1] == []


def test_a_typo_of_our_own_key_is_still_an_error(tmp_path: Path) -> None:
    with pytest.raises(ConfigErrors, match="unknown key 'saftey'"):
        server(tmp_path, {**NPX, "saftey": {}})


# -- whole entries and files -----------------------------------------------------------------------


def test_notes_and_settings_of_others_cost_no_entry(tmp_path: Path) -> None:
    snapshot = given(
        tmp_path, _comment="x", language="de", timeouts={"a": 1}, memory={"enabled": True}
    )
    assert "ada" in snapshot.specs
    told = "\n".join(str(each) for each in snapshot.warnings)
    for key in ("_comment", "language", "timeouts", "memory.enabled"):
        assert key in told


@pytest.mark.parametrize(
    "document, says",
    [
        ({"mcpServers": {"s": NPX}}, "tool servers"),
        ({"mcpServers": {"s": NPX}, "theme": "dark"}, "tool servers"),
        ({"servers": {"s": NPX}, "inputs": []}, "VS Code's"),
        ({"$schema": "https://opencode.ai/config.json", "mcp": {}}, "opencode's"),
        ({"agents": {"defaults": {}, "list": []}, "channels": {}}, "OpenClaw"),
        ({"mcp": {"s": {"type": "local", "command": ["x"]}}, "provider": {}}, "opencode's"),
        ({"permissions": {"allow": []}, "env": {}}, "Claude Code"),
        ({"projects": {"/x": {"mcpServers": {"s": NPX}}}, "numStartups": 3}, "Claude Code"),
        ({"s": NPX, "t": WEB}, "tool servers"),
        ([{"name": "s", **NPX}, WEB], "tool servers"),
        ({"cli_timeout": 5, "telegram_token": "", "language": "de"}, "Sygen"),
        ({"ann": {"model": "x"}, "bob": {}}, "agents by their names"),
        ({"agents": {"ann": {"model": "x"}}}, "agents by their names"),
    ],
    ids=lambda each: json.dumps(each)[:50],
)
def test_a_file_of_another_program_is_recognised_in_one_finding(document: Any, says: str) -> None:
    with pytest.raises(ConfigErrors) as caught:
        parse_agents(json.dumps(document).encode())
    (found,) = caught.value.findings
    assert says in str(found)
    assert found.hint


def test_an_id_beside_a_name_for_people_is_proposed_as_the_name() -> None:
    with pytest.raises(ConfigErrors) as caught:
        parse_agents(json.dumps([{"id": "lin", "name": "小林"}]).encode())
    told = "\n".join(str(each) for each in caught.value.findings)
    assert '"name": "lin"' in told
    assert '"nickname"' in told


@pytest.mark.parametrize(
    "key, ours",
    [
        ("instructions", '"prompt"'),
        ("timeout", '"turn_timeout_s", in seconds'),
        ("max_tokens", '"engine_options"'),
        ("allowed_tools", '"tools"'),
        ("allowFrom", '"allowed_user_ids"'),
    ],
)
def test_a_word_of_others_for_an_agent_is_answered_with_ours(key: str, ours: str) -> None:
    with pytest.raises(ConfigErrors) as caught:
        parse_agents(json.dumps([{"name": "ada", key: "x"}]).encode())
    (found,) = caught.value.findings
    assert f"unknown key {key!r}" in str(found)
    assert ours in str(found.hint)


@pytest.mark.parametrize("key", ["agent", "theme", "scenes", "contexts"])
def test_no_key_is_proposed_that_has_no_effect(key: str) -> None:
    with pytest.raises(ConfigErrors) as caught:
        parse_agents(json.dumps([{"name": "ada", key: "x"}]).encode())
    (found,) = caught.value.findings
    assert all(each not in str(found.hint) for each in ("image", "scene'", "context_servers"))
