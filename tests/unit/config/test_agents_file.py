"""agents.json: what is accepted, and that each refusal says where and what was meant."""

from __future__ import annotations

import json
from typing import Any

import pytest

from agentsup.config.agents_file import MAX_BYTES, AgentsFile, parse_agents
from agentsup.config.findings import MAX_FINDINGS
from agentsup.model.errors import ConfigError, ConfigErrors


def parse(text: str) -> AgentsFile:
    return parse_agents(text.encode())


def refused(text: str | bytes) -> tuple[ConfigError, ...]:
    with pytest.raises(ConfigErrors) as caught:
        parse_agents(text if isinstance(text, bytes) else text.encode())
    for each in caught.value.findings:
        assert each.path == "agents.json"
        assert each.line is not None
        assert each.line >= 1
        assert each.column is not None
        assert each.column >= 1
        assert each.field
    return caught.value.findings


def values(text: str) -> dict[str, Any]:
    (entry,) = parse(text).entries
    return dict(entry.values)


def test_a_list_and_an_object_with_agents_are_the_same() -> None:
    plain = parse('[{"name": "ada", "model": "m"}]')
    wrapped = parse('{"$schema": "x", "agents": [{"name": "ada", "model": "m"}]}')
    assert [(each.name, each.values) for each in plain.entries] == [
        (each.name, each.values) for each in wrapped.entries
    ]
    assert parse("[]").entries == parse('{"agents": []}').entries == ()


def test_a_byte_order_mark_and_windows_line_ends_do_no_harm() -> None:
    text = '[\r\n  {"name": "ada"},\r\n  {"name": "bea", "engin": 1}\r\n]\r\n'
    (found,) = refused(b"\xef\xbb\xbf" + text.encode())
    assert (found.line, found.column, found.field) == (3, 19, "[1].engin")
    good = text.replace("engin", "max_steps")
    assert len(parse_agents(b"\xef\xbb\xbf" + good.encode()).entries) == 2


CASES = [
    # text, line, column, field, part of the message, part of the hint
    ("", 1, 1, "(file)", "empty", "[]"),
    (" \n ", 1, 1, "(file)", "empty", "[]"),
    ('[{"name": "a"}', 1, 15, "(file)", "ends in the middle", "half-saved"),
    ('[{"name": "a', 1, 11, "(file)", "ends in the middle", "half-saved"),
    ('[{"name": "a",}]', 1, 15, "(file)", "comma", "remove"),
    ('[{"name": "a"},\n]', 2, 1, "(file)", "comma", "remove"),
    ('[{"name": "a"}\n{"name": "b"}]', 2, 1, "(file)", "missing", ""),
    ("[\n // mine\n]", 2, 2, "(file)", "comments", "remove"),
    ("[{'name': 'a'}]", 1, 3, "(file)", "quote", '"'),
    ('[{"name": "a", "enabled": True}]', 1, 27, "(file)", "True", "true"),
    ("[] []", 1, 4, "(file)", "follows", ""),
    ('[{"name": "a", "max_steps": NaN}]', 1, 29, "(file)", "finite", ""),
    ('[{"name": "a", "max_steps": 1e999}]', 1, 29, "(file)", "finite", ""),
    ('[{"name": "a", "prompt": "\\ud800"}]', 1, 27, "(file)", "not a character", ""),
    ('[{"name": "a", "prompt": "\\u0000"}]', 1, 27, "(file)", "not a character", ""),
    ('[{"name": "a",\n"name": "b"}]', 2, 1, "[0].name", "twice", ""),
    ('[{"name": "a", "slots": {"peer": 1,\n "peer": 2}}]', 2, 2, "[0].slots.peer", "twice", ""),
    ("3", 1, 1, "(file)", "list of agents", ""),
    ('{"agent": []}', 1, 1, "(file)", "'agents' is missing", ""),
    ('{"agents": {}}', 1, 2, "agents", "list", ""),
    ('{"name": "a", "agents": []}', 1, 2, "name", "unknown", "in a list"),
    ('[{"name": "a"}, 7]', 1, 17, "[1]", "an object, found a whole number", ""),
    ('[{"enabled": true}]', 1, 2, "[0].name", "missing", ""),
    ('[{"name": 7}]', 1, 3, "[0].name", "a text, found a whole number", ""),
    ('[{"name": null}]', 1, 3, "[0].name", "missing", ""),
    ('[{"name": "../../x"}]', 1, 3, "[0].name", "may have letters", ""),
    ('[{"name": "Main"}]', 1, 3, "[0].name", "'main'", "lower case"),
    ('[{"name": "main", "enabled": false}]', 1, 19, "[0].enabled", "can't be disabled", ""),
    ('[{"name": "ada"},\n {"name": "ADA"}]', 2, 3, "[1].name", "taken by the entry in line 1", ""),
    ('[{"name": "a", "telegramtoken": "1:x"}]', 1, 16, "[0].telegramtoken", "", "telegram_token"),
    ('[{"name": "a", "engine": "lllm"}]', 1, 16, "[0].engine", "one of", "'llm'"),
    ('[{"name": "a", "transports": ["web", "matrx"]}]', 1, 38, "[0].transports[1]", "", "matrix"),
    ('[{"name": "a", "slots": true}]', 1, 16, "[0].slots", "whole number or an object", ""),
    ('[{"name": "a", "slots": {"pear": 1}}]', 1, 26, "[0].slots.pear", "unknown", "'peer'"),
    ('[{"name": "a", "slots": {"peer": 0}}]', 1, 26, "[0].slots.peer", "at least 1", ""),
    ('[{"name": "a", "queue_limit": 1.5}]', 1, 16, "[0].queue_limit", "whole number", ""),
    ('[{"name": "a", "enabled": 1}]', 1, 16, "[0].enabled", "true or false", ""),
    ('[{"name": "a", "allowed_user_ids": [1, true]}]', 1, 40, "[0].allowed_user_ids[1]", "", ""),
    ('[{"name": "a", "user_timezone": "Europe/Zurig"}]', 1, 16, "[0].user_timezone", "Zurich", ""),
    ('[{"name": "a", "telegram_base_url": "ftp://x"}]', 1, 16, "[0].telegram_base_url", "http", ""),
    ('[{"name": "a", "telegram_token": "env:1X"}]', 1, 16, "[0].telegram_token", "env:", ""),
    ('[{"name": "a", "telegram_token": "file:"}]', 1, 16, "[0].telegram_token", "file:", ""),
    ('[{"name": "a", "matrix": {"user_id": "bob"}}]', 1, 27, "[0].matrix.user_id", "@name", ""),
    ('[{"name": "a", "can_delegate_to": ["../b"]}]', 1, 36, "[0].can_delegate_to[0]", "may have letters", ""),
]  # fmt: skip


@pytest.mark.parametrize("text, line, column, field, message, hint", CASES)
def test_a_refusal_names_the_place_and_what_was_meant(
    text: str, line: int, column: int, field: str, message: str, hint: str
) -> None:
    found = [each for each in refused(text) if each.field == field]
    assert found, [str(each) for each in refused(text)]
    assert (found[0].line, found[0].column) == (line, column)
    assert message in found[0].message
    assert hint in (found[0].hint or "")


def test_bytes_that_are_no_text_are_placed() -> None:
    (found,) = refused(b'[{"name": "a",\n "prompt": "\xe9"}]')
    assert (found.line, found.column) == (2, 13)
    (found,) = refused("[]".encode("utf-16"))
    assert "UTF-16" in found.message


def test_a_character_beyond_the_basic_plane_may_be_escaped() -> None:
    assert values(r'[{"name": "a", "prompt": "\ud83d\ude00 \\ud800"}]')["prompt"] == "😀 \\ud800"


@pytest.mark.parametrize("text", ["[" * 100_000, '{"a":' * 100_000, "[" * 900 + "]" * 900])
def test_deep_nesting_is_refused(text: str) -> None:
    assert refused(text)


def test_options_are_bounded_in_depth() -> None:
    deep: Any = 1
    for _ in range(17):
        deep = {"a": deep}
    (found,) = refused(json.dumps([{"name": "a", "engine_options": deep}]))
    assert "deep" in found.message


def test_a_number_with_thousands_of_digits_is_refused() -> None:
    (found,) = refused('[{"name": "a", "max_steps": ' + "1" * 5000 + "}]")
    assert (found.line, found.column) == (1, 29)
    (found,) = refused('[{"name": "a", "max_steps": ' + "1" * 4000 + "}]")
    assert len(str(found)) < 200


def test_all_findings_come_at_once_in_the_order_of_the_text() -> None:
    text = '[{"name": "a", "modle": "x", "slots": {"peer": "2"}},\n{"name": "b", "queue_limit": 0}]'
    assert [(each.line, each.field) for each in refused(text)] == [
        (1, "[0].modle"),
        (1, "[0].slots.peer"),
        (2, "[1].queue_limit"),
    ]


def test_the_number_of_findings_is_bounded() -> None:
    wrong = json.dumps([{"name": f"a{index}", "x": 1} for index in range(500)])
    assert len(refused(wrong)) == MAX_FINDINGS


@pytest.mark.parametrize("key", ["telegram_token", "matrix", "engine", "modle"])
def test_a_token_is_never_shown_wherever_it_stands(key: str) -> None:
    token = "123456789:AAFxVeryPrivate"
    for value in (token, [token], {"access_token": [token]}, {"password": {"x": token}}):
        for each in refused(json.dumps([{"name": "a", "enabled": 1, key: value}])):
            assert "VeryPrivate" not in str(each)
            assert "VeryPrivate" not in repr(each.facts)


def test_nulls_mean_not_said() -> None:
    text = '[{"name": "a", "model": null, "slots": {"peer": null, "interactive": 1}, "mcp": null}]'
    assert values(text) == {"name": "a", "slots": {"interactive": 1}}
    text = '[{"name": "a", "max_turns": null, "streaming": {"edit_interval_seconds": null}}]'
    assert values(text) == {"name": "a", "streaming": {}}
    assert refused('[{"name": "a", "modle": null}]')[0].field == "[0].modle"


def test_shorthands_become_blocks() -> None:
    made = values('[{"name": "a", "slots": 3, "streaming": false}]')
    assert made["slots"] == {"interactive": 3, "peer": 3, "background": 3}
    assert made["streaming"] == {"mode": "off"}
    assert values('[{"name": "a", "streaming": true}]')["streaming"] == {"mode": "live"}


def test_an_older_streaming_switch_is_a_mode_and_says_so_once() -> None:
    made = values('[{"name": "a", "streaming": {"enabled": false}}]')
    assert made["streaming"] == {"mode": "off"}
    (found,) = refused('[{"name": "a", "streaming": {"enabled": "yes"}}]')
    assert (found.field, "true or false" in found.message) == ("[0].streaming.enabled", True)
    (found,) = refused('[{"name": "a", "streaming": {"enabled": true, "mode": "buffered"}}]')
    assert "the same setting" in found.message


SYGEN = {
    "name": "coder",
    "transport": "telegram",
    "telegram_token": "env:CODER_TOKEN",
    "allowed_user_ids": [1],
    "allowed_group_ids": [-100],
    "matrix": {
        "homeserver": "https://m.example", "user_id": "@c:m.example", "access_token": "env:M",
        "allowed_rooms": ["!r:m.example"], "allowed_users": ["@p:m.example"], "store_path": "x",
    },
    "group_mention_only": False,
    "provider": "claude",
    "model": "opus",
    "reasoning_effort": "high",
    "permission_mode": "bypassPermissions",
    "file_access": "all",
    "cli_timeout": 600,
    "cli_parameters": {"claude": ["--x"]},
    "max_budget_usd": 1.5,
    "max_turns": 12,
    "max_session_messages": 10,
    "idle_timeout_minutes": 30,
    "session_age_warning_hours": 3,
    "daily_reset_hour": 4,
    "daily_reset_enabled": True,
    "user_timezone": "Europe/Berlin",
    "log_level": "DEBUG",
    "streaming": {
        "enabled": True, "min_chars": 100, "max_chars": 4000, "idle_ms": 500,
        "edit_interval_seconds": 3.0, "max_edit_failures": 3, "append_mode": False,
        "sentence_break": True,
    },
    "docker": {"enabled": False, "image_name": "x"},
    "heartbeat": {"enabled": True},
    "cleanup": {"media_files_days": 30},
    "webhooks": {"enabled": True},
    "api": {"enabled": True},
    "mcp": {"enabled": True},
}  # fmt: skip


def test_an_entry_written_for_sygen_loads_and_says_what_has_no_effect() -> None:
    loaded = parse(json.dumps([SYGEN]))
    (entry,) = loaded.entries
    made = entry.values
    assert made["turn_timeout_s"] == 600
    assert made["max_steps"] == 12
    assert made["budget"] == {"per_turn_usd": 1.5}
    assert made["transports"] == ["telegram"]
    assert made["streaming"] == {
        "mode": "live", "min_chars": 100, "idle_ms": 500, "edit_interval_s": 3.0
    }  # fmt: skip
    assert "provider" not in made
    assert made["engine"] == "claude", "the program that thinks is an engine here"
    told = {each.field for each in loaded.warnings}
    silent = {"[0].docker", "[0].streaming.append_mode"}
    dropped = {
        "cli_parameters", "file_access", "max_session_messages", "idle_timeout_minutes",
        "session_age_warning_hours", "daily_reset_hour", "daily_reset_enabled", "log_level",
        "heartbeat", "cleanup", "webhooks", "api", "mcp", "matrix.store_path",
        "streaming.max_chars", "streaming.max_edit_failures", "streaming.sentence_break",
    }  # fmt: skip
    assert told == {f"[0].{key}" for key in dropped}
    assert not told & silent
    assert all("because" in each.message or each.hint for each in loaded.warnings)


SAVED_BY_SYGEN = {
    "name": "scout",
    "transport": "matrix",
    "telegram_token": "",
    "matrix": {
        "homeserver": "https://m.example", "user_id": "@s:m.example", "password": "env:PW",
        "access_token": "", "device_id": "", "allowed_rooms": [], "allowed_users": ["@p:m.example"],
        "store_path": "matrix_store",
    },
    "provider": "codex",
    "streaming": {"enabled": True, "buffered": True, "min_chars": 200},
    "cli_parameters": {"claude": [], "codex": [], "gemini": []},
    "mcp": {"enabled": True, "servers": [
        {"name": "files", "command": "npx", "args": ["files"], "env": {}, "transport": "stdio",
         "url": "", "enabled": True, "auto_restart": True, "restart_delay_seconds": 5.0,
         "startup_timeout_seconds": 30.0},
        {"name": "news", "command": "", "args": [], "env": {}, "transport": "sse",
         "url": "https://n.example/sse", "enabled": True, "auto_restart": False,
         "restart_delay_seconds": 5.0, "startup_timeout_seconds": 30.0},
    ]},
    "can_call": ["main"],
    "interagent_token": "x1",
    "additional_directories": ["/srv/data"],
}  # fmt: skip


def test_an_entry_as_sygen_saves_it_loads() -> None:
    """Empty texts where nothing was said, all keys of each block, and keys of its later versions."""
    loaded = parse(json.dumps([SAVED_BY_SYGEN]))
    (entry,) = loaded.entries
    made = entry.values
    assert "telegram_token" not in made
    assert {"access_token", "device_id", "store_path"}.isdisjoint(made["matrix"])
    assert (made["engine"], made["can_delegate_to"]) == ("codex", ["main"])
    assert made["streaming"] == {"mode": "buffered", "min_chars": 200}
    files, news = made["mcp"]["files"], made["mcp"]["news"]
    assert (files["type"], files["command"], files["start_timeout_s"]) == ("stdio", "npx", 30.0)
    assert "url" not in files
    assert (news["enabled"], news["url"]) == (False, "https://n.example/sse")
    told = {each.field for each in loaded.warnings}
    assert told == {
        "[0].matrix.store_path", "[0].interagent_token", "[0].additional_directories",
        "[0].mcp.servers[1].transport", "[0].mcp.servers[1].auto_restart",
    }  # fmt: skip


def test_an_empty_token_is_no_token_and_told_where_a_bot_may_be_meant() -> None:
    loaded = parse('[{"name": "a", "telegram_token": ""}]')
    assert [each.field for each in loaded.warnings] == ["[0].telegram_token"]
    assert "telegram_token" not in loaded.entries[0].values


def test_an_engine_that_is_named_goes_before_a_provider_of_sygen() -> None:
    loaded = parse('[{"name": "a", "engine": "llm", "provider": "claude"}]')
    assert loaded.entries[0].values["engine"] == "llm"
    loaded = parse('[{"name": "a", "provider": "anthropic"}]')
    assert "engine" not in loaded.entries[0].values


def test_whoever_may_call_everybody_has_no_list() -> None:
    loaded = parse('[{"name": "a", "can_call": ["*"]}]')
    assert "can_delegate_to" not in loaded.entries[0].values


def test_a_sandbox_is_not_lost_in_silence() -> None:
    (found,) = refused('[{"name": "a", "docker": {"enabled": true}}]')
    assert found.field == "[0].docker"
    assert found.hint is not None


def test_mapped_keys_are_reported_under_the_name_that_was_written() -> None:
    (found,) = refused('[{"name": "a", "cli_timeout": "soon"}]')
    assert (found.field, found.column) == ("[0].cli_timeout", 16)
    (found,) = refused('[{"name": "a", "max_budget_usd": -1}]')
    assert found.field == "[0].max_budget_usd"


@pytest.mark.parametrize("value", ["0", "-1", '"soon"', "1e99"])
def test_an_idle_limit_is_a_number_of_seconds_above_nothing(value: str) -> None:
    (found,) = refused(f'[{{"name": "a", "idle_timeout_s": {value}}}]')
    assert (found.field, found.column) == ("[0].idle_timeout_s", 16)


def test_the_same_setting_under_two_names_is_refused() -> None:
    (found,) = refused('[{"name": "a", "cli_timeout": 5, "turn_timeout_s": 6}]')
    assert "same setting" in found.message
    (found,) = refused('[{"name": "a", "transport": "matrix", "transports": ["telegram"]}]')
    assert "contradict" in found.message


def test_five_megabytes_are_refused_at_once_and_a_full_file_is_read() -> None:
    junk = b"\x8f[{" * (5 * 1024 * 1024 // 3)  # not even its text is looked at, which is no UTF-8
    entry = {"name": "a", "prompt": "x" * 5000, "allowed_user_ids": [1, 2], "slots": {"peer": 1}}
    text = json.dumps([entry | {"name": f"a{index}"} for index in range(200)])
    assert 900_000 < len(text) <= MAX_BYTES
    (found,) = refused(junk)
    assert "larger" in found.message
    assert len(parse(text).entries) == 200
