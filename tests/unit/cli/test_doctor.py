"""What ``agentsup doctor`` finds, and what it says to do."""

from __future__ import annotations

import asyncio
import contextlib
import importlib.util
import json
import os
import socket
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from agentsup.cli.connect.locate import DaemonLocation
from agentsup.cli.doctor import check as doctor_checks
from agentsup.cli.doctor import fence as doctor_fence
from agentsup.cli.doctor.agents import amiss, check_servers
from agentsup.cli.doctor.check import Check, Examined
from agentsup.cli.doctor.checks import check_proxies, check_work, examine, file_system_of
from agentsup.config import Home
from agentsup.engines.programs import PROGRAMS
from agentsup.kit import fence
from agentsup.kit.clock import SystemClock
from agentsup.kit.files import HomeLock
from agentsup.mailbox.messages.attempts import AttemptRow, record_tx
from agentsup.store import Database, StoreOptions, Tx


def found(checks: list[Check], name: str) -> Check:
    return next(one for one in checks if one.name == name)


@pytest.fixture(autouse=True)
def machine(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    """No keys in the environment, and a port that is free."""
    for name in list(os.environ):
        if name.endswith(("_API_KEY", "_BASE_URL")):
            monkeypatch.delenv(name)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        home.config_toml.write_text(f"[api]\nport = {free.getsockname()[1]}\n")


def checks(home: Home) -> list[Check]:
    return examine(DaemonLocation.of(str(home.root), {}))


def test_a_new_home_is_well(home: Home) -> None:
    result = checks(home)
    assert [one for one in result if one.result == doctor_checks.FAIL] == []
    assert found(result, "port").result == doctor_checks.OK
    assert found(result, "daemon").text == "none runs for this home"
    engine = found(result, "engine")
    assert engine.result == doctor_checks.WARN
    assert "no model is configured" in engine.text


def test_a_missing_home(tmp_path: Path) -> None:
    home = found(examine(DaemonLocation.of(str(tmp_path / "none"), {})), "home")
    assert (home.result, home.advice) == (doctor_checks.FAIL, "make it with `agentsup init`")


def test_an_open_token_and_an_open_home(home: Home) -> None:
    home.api_token.write_text("secret")
    home.api_token.chmod(0o644)
    home.root.chmod(0o755)
    result = checks(home)
    token = found(result, "token")
    assert (token.result, "makes a new one" in token.advice) == (doctor_checks.WARN, True)
    assert found(result, "home").result == doctor_checks.WARN


def test_a_wrong_configuration_is_named_with_its_place(home: Home) -> None:
    home.agents_json.write_text('[{"name": "a", "modle": "x"}]')
    config = found(checks(home), "config")
    assert config.result == doctor_checks.FAIL
    assert "agents.json:1:16" in config.text
    assert "did you mean 'model'?" in config.text


def test_a_taken_port(home: Home) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        home.config_toml.write_text(f"[api]\nport = {taken.getsockname()[1]}\n")
        assert found(checks(home), "port").result == doctor_checks.FAIL


@pytest.mark.parametrize(
    "mode, version, result, said",
    [
        ("auto", 7, doctor_checks.OK, "can't open what is in the home"),
        ("auto", 2, doctor_checks.WARN, "Linux 6.2"),
        ("auto", 0, doctor_checks.WARN, "can't fence programs in"),
        ("required", 0, doctor_checks.FAIL, "can't fence programs in"),
        ("off", 7, doctor_checks.WARN, "fence.mode is off"),
    ],
)
def test_what_keeps_programs_from_the_home(
    home: Home, monkeypatch: pytest.MonkeyPatch, mode: str, version: int, result: str, said: str
) -> None:
    monkeypatch.setattr(fence, "version", lambda: version)
    with home.config_toml.open("a") as file:
        file.write(f'[fence]\nmode = "{mode}"\n')
    check = found(checks(home), "fence")
    assert check.result == result
    assert said in f"{check.text} {check.advice}"


def test_services_that_take_orders_are_named_where_the_kernel_lets_programs_connect(
    home: Home, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    place = tmp_path / "tmux-1000"
    place.mkdir()
    with (
        socket.socket(socket.AF_UNIX) as taken,
        socket.socket(socket.AF_UNIX) as other,
        contextlib.chdir(place),
    ):
        for one, name in ((taken, str(place / "s")), (other, str(tmp_path / "o"))):
            one.bind(name)
            one.listen()
        found = doctor_fence.open_sockets()
        assert ("tmux", str(place / "s")) in found
        assert str(tmp_path / "o") not in {path for _, path in found}
        for version, is_told in ((7, True), (9, False)):
            monkeypatch.setattr(fence, "version", lambda version=version: version)
            told = " ".join(each.text for each in checks(home) if each.name == "fence")
            assert ("without a fence" in told) is is_told


def test_a_daemon_that_was_killed_left_its_number_behind(home: Home) -> None:
    home.lock.write_text(f"{os.getpid()}\n")
    assert found(checks(home), "daemon").result == doctor_checks.OK
    with HomeLock(home.lock):
        held = found(checks(home), "daemon")
    assert (held.result, str(os.getpid()) in held.text) == (doctor_checks.FAIL, True)


def test_network_file_systems_are_known(tmp_path: Path) -> None:
    mounts = tmp_path / "mounts"
    mounts.write_text(f"/dev/a / ext4 rw 0 0\nserver:/x {tmp_path} nfs4 rw 0 0\nproc /proc proc\n")
    assert file_system_of(tmp_path / "home", mounts) == "nfs4"
    assert file_system_of(Path("/etc"), mounts) == "ext4"
    assert file_system_of(tmp_path, tmp_path / "none") == ""


# -- proxies and tool servers ------------------------------------------------------------------------


@pytest.mark.parametrize(
    "environ, result, told",
    [
        (
            {"https_proxy": "http://me:secret@proxy.example:3128", "NO_PROXY": "*"},
            [doctor_checks.OK],
            "proxy.example:3128",
        ),
        ({"ALL_PROXY": "socks5://me:secret@proxy.example:1080"}, [doctor_checks.WARN], "socks5"),
        ({"NO_PROXY": "x"}, [], ""),
    ],
)
def test_proxies_are_shown_without_passwords(
    home: Home, environ: dict[str, str], result: list[str], told: str
) -> None:
    seen = [*check_proxies(Examined(DaemonLocation(home), environ))]
    assert [one.result for one in seen] == result
    assert told in repr(seen)
    assert "secret" not in repr(seen)


def servers_of(home: Home, servers: Any) -> dict[str, Check]:
    """What is said of the tool servers of an agent, by their names."""
    home.agents_json.write_text(json.dumps([{"name": "ada", "mcp": servers}]))
    seen = check_servers(Examined(DaemonLocation(home), {"PATH": "/usr/bin"}))
    return {one.text.split(" ")[0]: one for one in seen}


def test_each_program_is_looked_for_and_no_address_is_asked(home: Home) -> None:
    seen = servers_of(
        home,
        {
            "here": {"command": sys.executable},
            "gone": {"command": "no-such-program"},
            "off": {"command": "no-such-program", "enabled": False},
            "web": {"url": "https://x.example/mcp?key=1"},
        },
    )
    assert {name: one.result for name, one in seen.items()} == {
        "here": doctor_checks.OK,
        "gone": doctor_checks.FAIL,
        "web": doctor_checks.OK,
    }
    assert "install it" in seen["gone"].advice
    assert "key=1" not in seen["web"].text
    assert servers_of(home, {}) == {}


def test_a_missing_library_is_told_once(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    (one,) = servers_of(home, {"a": {"command": "x"}, "b": {"command": "y"}}).values()
    assert (one.result, "agentsup[mcp]" in one.advice) == (doctor_checks.FAIL, True)


def test_what_is_amiss_with_a_running_server_is_named_with_it() -> None:
    well: dict[str, Any] = {"name": "well", "state": "running", "error": "", "notes": []}
    noted = well | {"name": "many", "notes": ["22 tools are left out", "bad has no schema"]}
    away = well | {"name": "away", "state": "not_signed_in", "error": "it answered 401"}
    many, out = amiss("ada", [well, noted, away, well | {"state": "disabled"}])
    assert (many.result, out.result) == (doctor_checks.WARN, doctor_checks.WARN)
    assert many.text == "many of ada: 22 tools are left out; bad has no schema"
    assert out.text == "away of ada: not signed in: it answered 401"


def test_an_endpoint_without_the_library_fails(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    home.config_toml.write_text('[otel]\nendpoint = "http://127.0.0.1:4318"\n')
    assert found(checks(home), "otel").result == doctor_checks.OK
    find = importlib.util.find_spec
    monkeypatch.setattr(
        importlib.util,
        "find_spec",
        lambda name, *more: None if name.startswith("opentelemetry") else find(name, *more),
    )
    missing = found(checks(home), "otel")
    assert (missing.result, "agentsup[otel]" in missing.advice) == (doctor_checks.FAIL, True)


# -- the latest work ---------------------------------------------------------------------------------

MESSAGE = (
    "INSERT INTO messages (message_id, agent_id, session_id, kind, lane, priority, state, outcome,"
    " parts, principal, deliver_to, root_id, accepted_at, finished_at, error_code, error_text)"
    " VALUES (?, 'agt', 'ses', 'chat', 'interactive', 2, ?, ?, '[]', '{}', '{}', 'm', 0, ?, ?, ?)"
)


def work_of(home: Home) -> list[Check]:
    return [*check_work(Examined(DaemonLocation(home), {}))]


def stored(home: Home, write: Callable[[Tx], object] = lambda tx: None) -> None:
    async def run() -> None:
        options = StoreOptions(reserve_bytes=0)
        database = await Database.open(home.state_db, clock=SystemClock(), options=options)
        await database.write(write)
        await database.close()

    asyncio.run(run())


def test_a_quiet_store_is_well_and_a_leak_is_told_with_what_to_do(home: Home) -> None:
    assert work_of(home) == []
    stored(home)
    (work,) = work_of(home)
    assert (work.result, "nothing amiss" in work.text) == (doctor_checks.OK, True)
    row = "INSERT INTO processes VALUES (4711, 1, 'old', 'agt', 'msg', '/bin/cat', 1)"
    stored(home, lambda tx: tx.execute(row).rowcount)
    leak = found(work_of(home), "leaks")
    assert (leak.result, "/bin/cat" in leak.text) == (doctor_checks.WARN, True)
    assert leak.advice == "the next start ends what is left of them"


def test_a_store_that_can_not_be_read_is_told(home: Home) -> None:
    home.state_db.write_bytes(b"this is no database" * 500)
    (work,) = work_of(home)
    assert (work.result, str(home.state_db) in work.text) == (doctor_checks.FAIL, True)


def test_failures_of_a_day_are_told_by_kind(home: Home) -> None:
    now = SystemClock().now_ms()

    def write(tx: Tx) -> None:
        tx.execute(
            "INSERT INTO sessions (session_id, agent_id, key, created_at, updated_at)"
            " VALUES ('ses', 'agt', 'k', 0, 0)"
        )
        for number, (state, outcome, age_h, code) in enumerate(
            [
                ("done", "failed", 1, "quota_exceeded"),
                ("dead", None, 2, "server_error"),
                ("done", "failed", 3, "quota_exceeded"),
                ("done", "failed", 50, "auth_failed"),
                ("done", "failed", 1, "cancelled"),
                ("done", "ok", 1, "turn_limit"),
            ]
        ):
            at = now - age_h * 3_600_000
            tx.execute(MESSAGE, (f"m{number}", state, outcome, at, code, f"because of\n{number}"))
        for number in range(3):
            facts = ("primary", "llm", "llm at acme", "big", "quota", "quota_exceeded")
            record_tx(tx, AttemptRow(f"m{number}", *facts, "no credit", "switch", now))

    stored(home, write)
    assert [one.text for one in work_of(home) if one.name == "failures"] == [
        "2 failed within a day with quota_exceeded, the last one: because of 0",
        "1 failed within a day with server_error, the last one: because of 1",
        "3 went to a fallback model within a day, the last because: no credit",
    ]


# -- coding agents -----------------------------------------------------------------------------------


def test_coding_agents_are_shown_with_version_and_sign_in(
    home: Home, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    programs = tmp_path / "programs"
    programs.mkdir()
    for name, body in (("gemini", "echo 0.61.0"), ("opencode", "exit 3"), ("qwen", "exit 3")):
        (programs / name).write_text(f"#!/bin/sh\n{body}\n")
        (programs / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{programs}:/usr/bin:/bin")
    monkeypatch.setenv("HOME", str(tmp_path))
    for preset in PROGRAMS.values():
        for key in preset.keys:
            monkeypatch.delenv(key, raising=False)
    monkeypatch.setenv("GEMINI_API_KEY", "k-secret")
    home.agents_json.write_text(
        '[{"name": "a", "engine": "kimi"}, {"name": "b", "engine": "qwen"}]'
    )
    result = checks(home)
    gemini = found(result, "engine gemini")
    assert (gemini.result, gemini.advice) == (doctor_checks.OK, "")
    assert gemini.text.startswith("0.61.0, signed in by GEMINI_API_KEY")
    assert "k-secret" not in repr(result)
    kimi = found(result, "engine kimi")
    assert (kimi.result, "uv tool install kimi-cli" in kimi.advice) == (doctor_checks.FAIL, True)
    qwen = found(result, "engine qwen")
    assert (qwen.result, "version not told" in qwen.text) == (doctor_checks.WARN, True)
    assert not [one for one in result if one.name == "engine goose"], "it pushes the others away"
    others = found(result, "other engines")
    assert (others.result, "goose" in others.text, "gemini" in others.text) == (
        doctor_checks.OK,
        True,
        False,
    )


def test_a_coding_agent_that_never_answers_is_waited_for_so_long(
    home: Home, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = tmp_path / "qwen"
    program.write_text("#!/bin/sh\nsleep 60\n")
    program.chmod(0o755)
    monkeypatch.setattr("agentsup.cli.doctor.agents._LIMIT_S", 0.2)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    home.agents_json.write_text('[{"name": "b", "engine": "qwen"}]')
    qwen = found(checks(home), "engine qwen")
    assert (qwen.result, "version not told" in qwen.text) == (doctor_checks.WARN, True)


@pytest.mark.skipif(fence.version() < fence.OLDEST, reason="this kernel has no Landlock")
def test_a_program_is_asked_for_its_version_behind_the_fence(
    home: Home, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    programs = tmp_path / "programs"
    programs.mkdir()
    home.api_token.write_text("the-operators-token")
    # Where nothing keeps it from the token, it tells that as its version.
    (programs / "gemini").write_text(f"#!/bin/sh\ncat {home.api_token} || echo 0.61.0\n")
    (programs / "gemini").chmod(0o755)
    monkeypatch.setenv("PATH", f"{programs}:/usr/bin:/bin")
    monkeypatch.setenv("HOME", str(tmp_path))
    home.agents_json.write_text('[{"name": "a", "engine": "gemini"}]')
    assert found(checks(home), "engine gemini").text.startswith("0.61.0")
    home.config_toml.write_text('[fence]\nmode = "off"\n')
    assert found(checks(home), "engine gemini").text.startswith("the-operators-token")


@pytest.mark.skipif(fence.version() < fence.OLDEST, reason="this kernel has no Landlock")
def test_folders_that_the_files_name_and_programs_can_only_read_are_told(
    home: Home, tmp_path: Path
) -> None:
    papers, notes = tmp_path / "papers", tmp_path / "notes"
    papers.mkdir()
    notes.mkdir()
    servers = {"files": {"command": "files", "args": ["--root", str(papers)], "cwd": str(notes)}}
    home.agents_json.write_text(json.dumps([{"name": "ada", "mcp": servers}]))
    location, environ = DaemonLocation(home), {"TMPDIR": str(tmp_path / "temporary")}

    def told() -> list[str]:
        return [each.text for each in doctor_fence.check_folders(Examined(location, environ))]

    first, second = told()
    assert first.startswith(f"{notes} can be read, not written")
    assert second.startswith(f"{papers} can be read, not written")
    assert "tool server files of ada" in second
    home.config_toml.write_text(f'[fence]\nwritable = ["{tmp_path}"]\n')
    assert told() == []
