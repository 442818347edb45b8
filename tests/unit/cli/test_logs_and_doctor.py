"""The log as people read it, and what the doctor finds."""

from __future__ import annotations

import contextlib
import json
import os
import socket
from pathlib import Path

import pytest
from typer.testing import CliRunner

from agentsup.cli.app import app
from agentsup.cli.commands import log_lines
from agentsup.cli.commands.home_files import create_home
from agentsup.cli.commands.log_lines import follow_log, tail_log, text_of
from agentsup.cli.connect.failure import CommandFailed
from agentsup.cli.connect.locate import DaemonLocation
from agentsup.cli.doctor import check as doctor_checks
from agentsup.cli.doctor import fence as doctor_fence
from agentsup.cli.doctor.check import Check, Examined
from agentsup.cli.doctor.checks import examine, file_system_of
from agentsup.config.home import Home
from agentsup.engines.programs.presets import PROGRAMS
from agentsup.kit import fence
from agentsup.kit.files import HomeLock


def line(number: int, agent: str | None = None) -> str:
    facts = {"at": "2026-11-21T03:12:18.000Z", "level": "info", "event": f"event {number}"}
    return json.dumps({**facts, **({"agent": agent} if agent else {})})


def test_the_tail_reaches_into_rotated_pieces(tmp_path: Path) -> None:
    log = tmp_path / "agentsup.log"
    for name, numbers in (("agentsup.log.2", (1, 2)), ("agentsup.log.1", (3, 4)), (log.name, (5,))):
        (tmp_path / name).write_text("".join(line(n) + "\n" for n in numbers))
    (tmp_path / "agentsup.log.gz").write_text("no piece")
    assert tail_log(log, 4, None) == [line(n) for n in (2, 3, 4, 5)]
    assert len(tail_log(log, 99, None)) == 5
    assert tail_log(log, 0, None) == []


def test_a_log_that_can_not_be_read_is_told_in_one_sentence(tmp_path: Path) -> None:
    home = Home(tmp_path / "home")
    create_home(home)
    (home.logs / "agentsup.log").mkdir(parents=True)  # refuses a reader, also for root
    done = CliRunner().invoke(app, ["--home", str(home.root), "logs"])
    assert isinstance(done.exception, CommandFailed), done.exception
    assert str(home.logs / "agentsup.log") in str(done.exception)


def test_a_line_that_is_half_written_at_a_rotation_is_followed_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log, old = tmp_path / "agentsup.log", tmp_path / "agentsup.log.1"
    log.write_text("")
    one, two = line(1), line(2)

    was_replaced = log_lines._was_replaced

    def rotated(path: Path, descriptor: int) -> bool:
        """The rest of the line is written between the look at the file and at its name."""
        if log.read_text() == one[:20]:
            log.rename(old)
            with old.open("a") as file:
                file.write(f"{one[20:]}\n")
            log.write_text(f"{two}\n")
        return was_replaced(path, descriptor)

    def pause(*_: object) -> None:
        if old.exists():
            raise KeyboardInterrupt
        log.write_text(one[:20])

    monkeypatch.setattr(log_lines, "_was_replaced", rotated)
    monkeypatch.setattr("select.select", pause)
    seen: list[str] = []
    with pytest.raises(KeyboardInterrupt):
        follow_log(log, None, seen.append)
    assert seen == [one, two]


def test_the_tail_of_one_agent(tmp_path: Path) -> None:
    log = tmp_path / "agentsup.log"
    log.write_text(
        "\n".join([line(1, "main"), line(2, "writer"), "torn {", line(3, "Main")]) + "\n"
    )
    assert tail_log(log, 9, "main") == [line(1, "main"), line(3, "Main")]


def test_a_line_for_people() -> None:
    facts = {
        "at": "2026-11-21T03:12:18.000Z",
        "level": "warning",
        "event": "retry\x1b[2J",
        "agent": "main",
        "code": 7,
        "exception": "Traceback\n  boom",
    }
    text = text_of(json.dumps(facts), plain=True)
    assert text.split(" ", 2)[2] == "warning [main] retry·[2J code=7\nTraceback\n  boom"
    assert text_of("not json \x1b", plain=True) == "not json ·"


def found(checks: list[Check], name: str) -> Check:
    return next(one for one in checks if one.name == name)


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Home:
    for name in list(os.environ):
        if name.endswith(("_API_KEY", "_BASE_URL")):
            monkeypatch.delenv(name)
    made = Home(tmp_path / "home")
    create_home(made)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        made.config_toml.write_text(f"[api]\nport = {free.getsockname()[1]}\n")
    return made


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
