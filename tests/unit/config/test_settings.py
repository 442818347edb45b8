"""config.toml and the environment: strict in the file, typed from the environment, placed."""

from __future__ import annotations

import ast

import pytest
from pydantic import BaseModel

from agentsup.config.settings import Settings, parse_settings, setting_class, unknown_variables
from agentsup.config.settings_file import OtelSettings, SettingsFile
from agentsup.model.agent_fields import FieldClass
from agentsup.model.errors import ConfigError, ConfigErrors
from agentsup.model.principal import PersonRole
from tests.support.source_tree import modules, nodes_of


def refused(text: str) -> tuple[ConfigError, ...]:
    with pytest.raises(ConfigErrors) as caught:
        parse_settings(text.encode())
    return caught.value.findings


def test_without_a_file_everything_has_its_default() -> None:
    loaded = parse_settings(None)
    assert loaded.settings == Settings()
    assert (loaded.settings.api.bind, loaded.settings.api.port) == ("127.0.0.1", 8799)
    assert loaded.settings.main_crash == "exit"
    assert loaded.main.values == loaded.agent_defaults.values == {}


def test_a_full_file() -> None:
    loaded = parse_settings(
        b"""\xef\xbb\xbfmain_crash = "restart"\r
[api]
interagent_port = 9000
allowed_hosts = ["box.lan"]
[tasks]
enabled = false
[limits]
depth = 5
[log]
level = "debug"
[people.anna]
role = "operator"
telegram = [7]
matrix = ["@anna:example.org"]
[main]
model = "m"
slots = 2
[agent_defaults]
cli_timeout = 60
restart.max_restarts = 3
"""
    )
    settings = loaded.settings
    assert (settings.main_crash, settings.api.port, settings.tasks.enabled) == (
        "restart", 9000, False
    )  # fmt: skip
    assert settings.api.allowed_hosts == ("box.lan",)
    assert settings.people["anna"].level is PersonRole.OPERATOR
    assert loaded.main.values["slots"] == {"interactive": 2, "peer": 2, "background": 2}
    assert loaded.agent_defaults.values == {"turn_timeout_s": 60, "restart": {"max_restarts": 3}}
    assert loaded.main.locate(("slots", "peer")) == (17, 1)


@pytest.mark.parametrize(
    "text, line, column, field, hint",
    [
        ("mian = 1", 1, 1, "mian", "'main'"),
        ("\n[api]\nprot = 1", 3, 1, "api.prot", "'port'"),
        ("[api]\nport = '1'", 2, 1, "api.port", ""),
        ("[api]\nport = 70000", 2, 1, "api.port", ""),
        ("[api]\nport = 1\ninteragent_port = 2", 3, 1, "api.interagent_port", "keep port"),
        ("[log]\nlevel = 'debgu'", 2, 1, "log.level", "'debug'"),
        ("[limits]\ndepth = true", 2, 1, "limits.depth", ""),
        ("[people.anna]\nrole = 'boss'", 2, 1, "people.anna.role", ""),
        ("[people.anna]\nrol = 'user'", 2, 1, "people.anna.rol", "'role'"),
        ("[people.a]\ntelegram=[1]\n[people.b]\ntelegram=[1]", 4, 1, "people.b.telegram", "one"),
        ("[main]\nmodle = 'x'", 2, 1, "main.modle", "'model'"),
        ("[main]\nname = 'x'", 2, 1, "main.name", "remove"),
        ("[main]\nenabled = false", 2, 1, "main.enabled", "remove"),
        ("[main.slots]\npear = 2", 2, 1, "main.slots.pear", "'peer'"),
        ("[main]\nengine_options = {a = 1979-05-27}", 2, 1, "main.engine_options", ""),
        ("[agent_defaults]\ntelegram_token = '1:a'", 2, 1, "agent_defaults.telegram_token", "main"),
        ("[agent_defaults.matrix]\nuser_id = '@a:b'", 2, 1, "agent_defaults.matrix.user_id", ""),
        ("[fence]\nclosed = ['keys']", 2, 1, "fence.closed[0]", ""),
        ("[fence]\nmode = 'on'", 2, 1, "fence.mode", ""),
        ("[fence]\nclose = ['/srv']", 2, 1, "fence.close", "'closed'"),
        ("[otel]\nendpont = ''", 2, 1, "otel.endpont", "'endpoint'"),
        ("a = ", 1, 5, "(file)", ""),
        ("[api\nport = 1", 1, 5, "(file)", ""),
        ("a = [1\n", 2, 1, "(file)", ""),
        ("a = 1\na = 2", 2, 6, "(file)", ""),
        ("a = " + "[" * 5000, 1, 5005, "(file)", ""),
    ],
)  # fmt: skip
def test_a_refusal_names_the_place_and_what_was_meant(
    text: str, line: int, column: int, field: str, hint: str
) -> None:
    found = [each for each in refused(text) if each.field == field]
    assert found, [str(each) for each in refused(text)]
    assert (found[0].path, found[0].line, found[0].column) == ("config.toml", line, column)
    assert hint in (found[0].hint or "")


def test_the_environment_wins_over_the_file(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AGENTSUP_API__PORT", "9100")
    monkeypatch.setenv("AGENTSUP_MAIN__MODEL", "4")
    monkeypatch.setenv("AGENTSUP_MAIN__MAX_STEPS", "5")
    monkeypatch.setenv("AGENTSUP_MAIN__ALLOWED_USER_IDS", "[1, 2]")
    monkeypatch.setenv("AGENTSUP_MAIN__SLOTS__PEER", "3")
    monkeypatch.setenv("AGENTSUP_MAIN__MATRIX__PASSWORD", "12345")
    monkeypatch.setenv("AGENTSUP_HOME", "/nowhere")
    loaded = parse_settings(b"[api]\nport = 1\nbind = '::1'\n[main]\nmodel = 'm'\nrole = 'r'")
    assert (loaded.settings.api.port, loaded.settings.api.bind) == (9100, "::1")
    values = dict(loaded.main.values)
    assert values == {
        "role": "r", "model": "4", "max_steps": 5, "allowed_user_ids": [1, 2], "slots": {"peer": 3},
        "matrix": {"password": "12345"},
    }  # fmt: skip


@pytest.mark.parametrize(
    "name, value",
    [
        ("AGENTSUP_API__PORT", "x"),
        ("AGENTSUP_API__PRT", "1"),
        ("AGENTSUP_LOG__LEVEL", "loud"),
        ("AGENTSUP_MAIN_CRASH", "explode"),
        ("AGENTSUP_MAIN__MAX_STEPS", "many"),
        ("AGENTSUP_AGENT_DEFAULTS__SLOTS__PEAR", "1"),
    ],
)
def test_a_wrong_variable_is_named(monkeypatch: pytest.MonkeyPatch, name: str, value: str) -> None:
    monkeypatch.setenv(name, value)
    (found,) = refused("[api]\nport = 1")
    assert (found.path, found.field) == ("environment", name)


def test_a_mistyped_variable_is_warned_about() -> None:
    told = unknown_variables(
        {"AGENTSUP_MAIN_CRAHS": "1", "AGENTSUP_HOME": "x", "AGENTSUP_TASK": "t", "PATH": ""}
    )
    assert [each.field for each in told] == ["AGENTSUP_MAIN_CRAHS"]


def test_what_never_had_an_effect_is_warned_about() -> None:
    loaded = parse_settings(b"[limits]\ndepth = 5\naging_s = 60\n")
    (warning,) = loaded.warnings
    assert "config.toml:3:1: limits.aging_s: 'aging_s' has no effect" in str(warning)
    assert "remove this line" in str(warning)
    assert loaded.settings.limits.depth == 5


@pytest.mark.code
def test_each_setting_is_read_somewhere() -> None:
    """A setting that is accepted and read by nobody is a promise that is not kept."""
    reads = {
        node.attr
        for path in modules()
        for node in nodes_of(path)
        if isinstance(node, ast.Attribute)
    }
    settings = SettingsFile.model_fields
    sections = [each.annotation for each in settings.values()]
    keys = {
        key
        for section in sections
        if isinstance(section, type) and issubclass(section, BaseModel)
        for key in section.model_fields
    }
    assert (settings.keys() | keys) - reads == set()


def test_a_setting_has_its_own_class_or_that_of_its_table() -> None:
    needs_restart = {"api", "api.port", "tasks.enabled", "limits.body_bytes", "log", "otel.url"}
    at_once = {"tasks", "tasks.keep_days", "limits.keep_days", "log.level", "people.anna.role"}
    assert {setting_class(each) for each in needs_restart} == {FieldClass.PROCESS}
    assert {setting_class(each) for each in at_once} == {FieldClass.LIVE}
    with pytest.raises(KeyError):
        setting_class("nothing.here")


def test_settings_show_no_secret_of_main() -> None:
    loaded = parse_settings(b"[main]\ntelegram_token = '123456:private'")
    assert "private" not in repr(loaded)
    assert "private" not in repr(loaded.settings)


def test_a_table_that_stands_twice_is_named_in_our_words() -> None:
    with pytest.raises(ConfigErrors) as caught:
        parse_settings(b"[main]\nmodel = 'a'\n[main]\nmodel = 'b'\n")
    (found,) = caught.value.findings
    assert "the table [main] is here a second time" in found.message
    assert found.line == 3
    assert "(file)" not in str(found)


# -- tables ----------------------------------------------------------------------------------------


def test_by_default_the_fence_stands_where_it_can_and_closes_the_home_only() -> None:
    fence = parse_settings(None).settings.fence
    assert (fence.mode, fence.paths({"HOME": "/home/ann"})) == ("auto", ())
    assert fence.writable_paths({"HOME": "/home/ann"}) == ("/tmp",)
    assert fence.writable_paths({"TMPDIR": "/var/x"}) == ("/var/x",)


def test_closed_places_are_whole_paths_or_begin_at_the_users_home() -> None:
    content = b'[fence]\nmode = "required"\nclosed = ["~/.ssh", "/srv/keys"]\n'
    fence = parse_settings(content).settings.fence
    assert fence.mode == "required"
    assert fence.paths({"HOME": "/home/ann"}) == ("/home/ann/.ssh", "/srv/keys")


def test_places_that_programs_may_write_come_beside_temporary_files() -> None:
    fence = parse_settings(b'[fence]\nwritable = ["~/projects"]\n').settings.fence
    assert fence.writable_paths({"HOME": "/home/ann"}) == ("/tmp", "/home/ann/projects")


def test_sockets_that_may_be_reached_are_named_in_the_same_way() -> None:
    content = b'[fence]\nsockets = ["/run/docker.sock", "~/.x/s"]\n'
    fence = parse_settings(content).settings.fence
    assert fence.socket_paths({"HOME": "/home/ann"}) == ("/run/docker.sock", "/home/ann/.x/s")


def test_without_an_endpoint_nothing_is_sent() -> None:
    settings = parse_settings(None).settings
    assert settings.otel.url == ""


@pytest.mark.parametrize(
    "endpoint, url",
    [
        ("http://localhost:4318", "http://localhost:4318/v1/traces"),
        ("https://otel.example/", "https://otel.example/v1/traces"),
        ("https://otel.example/mine/v1/traces", "https://otel.example/mine/v1/traces"),
    ],
)
def test_an_endpoint_without_a_path_gets_the_usual_one(endpoint: str, url: str) -> None:
    assert OtelSettings(endpoint=endpoint).url == url


@pytest.mark.parametrize("endpoint", ["localhost:4318", "ftp://x", "http://", "http://[", "grpc"])
def test_what_is_no_address_of_a_receiver_is_named(endpoint: str) -> None:
    with pytest.raises(ConfigErrors) as caught:
        parse_settings(f'[otel]\nendpoint = "{endpoint}"\n'.encode())
    (found,) = caught.value.findings
    assert found.field == "otel.endpoint"
    assert "no address of an OTLP receiver" in found.message


def test_headers_of_a_receiver_are_not_shown() -> None:
    assert "hush" not in repr(OtelSettings(headers={"authorization": "hush"}))


def test_a_file_that_says_how_long_spans_are_kept_is_accepted() -> None:
    loaded = parse_settings(b"[traces]\nenabled = false\nkeep_days = 3\nmax_spans = 10\n")
    assert {found.field for found in loaded.warnings} == {
        "traces.enabled",
        "traces.keep_days",
        "traces.max_spans",
    }
    assert all("no effect" in found.message for found in loaded.warnings)
