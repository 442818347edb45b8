"""The texts of a service: what is written, whose a file is, and what no longer fits."""

from __future__ import annotations

import os
import plistlib
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentsup.cli.connect.failure import CommandFailed
from agentsup.cli.connect.locate import DaemonLocation
from agentsup.cli.service import systemd
from agentsup.cli.service.systemd import Answer, Systemd
from agentsup.cli.service.unit import (
    Service,
    UnitState,
    argv_in,
    complaints,
    file_of,
    is_ours,
    judged,
    name_of,
    plist_of,
    program,
    quoted,
    template,
    unit_of,
    unquoted,
)
from agentsup.config import Home
from agentsup.supervision import REBUILD_CODE

ODD = Service(("/opt/my tools/100%/agentsup",), Path('/srv/$HOME "x"/a home'))
PLAIN = Service(("/opt/agentsup",), Path("/srv/home"))


@given(st.lists(st.text(st.characters(exclude_categories=["C"]), min_size=1), min_size=1))
def test_words_come_back_as_they_were(words: list[str]) -> None:
    assert list(unquoted(" ".join(map(quoted, words)))) == words


def test_words_that_a_unit_cant_have_are_refused() -> None:
    with pytest.raises(CommandFailed, match="control character"):
        quoted("/srv/a\nExecStartPre=/bin/evil")
    assert quoted("/a b%c") == '"/a b%%c"'
    assert quoted("/a$b") == "/a$$b"


def test_each_home_has_its_name() -> None:
    default = Path("/home/ann/.agentsup")
    assert name_of(default, default) == "agentsup"
    one, two = name_of(Path("/a/my home"), default), name_of(Path("/b/my home"), default)
    assert one.startswith("agentsup-my-home-")
    assert one != two
    assert one == name_of(Path("/a/my home"), default)


@pytest.mark.parametrize("service", [PLAIN, ODD])
def test_the_unit_restarts_watches_and_names_the_home(service: Service) -> None:
    unit = unit_of(service, template())
    assert argv_in(unit) == service.argv
    assert unit.count("ExecStart=") == 1
    for line in (
        "Type=notify",
        "Restart=on-failure",
        f"RestartForceExitStatus={REBUILD_CODE}",
        "RestartPreventExitStatus=143",
        "WatchdogSec=30",
        "NoNewPrivileges=yes",
        "UMask=0077",
        "WantedBy=default.target",
    ):
        assert f"\n{line}\n" in unit, line
    for breaks_fences in ("RestrictNamespaces=", "PrivateUsers=", "ProtectHome=", "PrivateTmp="):
        assert f"\n{breaks_fences}" not in unit


def test_a_unit_of_the_machine_has_a_user_and_no_rights() -> None:
    unit = unit_of(replace(PLAIN, user="ann"), template())
    assert "\nUser=ann\nCapabilityBoundingSet=\n" in unit
    assert "WantedBy=multi-user.target" in unit
    settings = [line for line in unit.split("\n") if line and not line.startswith("#")]
    assert not [line for line in settings if "%h" in line], "that is the home of root here"


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="no systemd-analyze here")
@pytest.mark.parametrize("user", ["", "root"])
def test_systemd_understands_the_unit(tmp_path: Path, user: str) -> None:
    service = Service((sys.executable, "-P", "-m", "agentsup"), tmp_path / "a home", user)
    path = tmp_path / "agentsup-test.service"
    done = None
    for text in (unit_of(service, template()), unit_of(service, template()) + "\nOddKey=1\n"):
        path.write_text(text)
        scope = [] if user else ["--user"]
        done = subprocess.run(
            ["systemd-analyze", "verify", "--man=no", *scope, str(path)],
            capture_output=True,
            text=True,
            timeout=50,
            env={"PATH": "/usr/bin:/bin", "HOME": str(tmp_path), "XDG_RUNTIME_DIR": str(tmp_path)},
            check=False,
        )
        # Units of this machine may have warnings of their own.
        found = [line for line in done.stderr.splitlines() if "agentsup-test" in line]
        assert [line for line in found if "OddKey" not in line] == []
    assert done is not None
    if "Failed to initialize manager" not in done.stderr:
        assert "OddKey" in done.stderr, "it was read"


def test_a_file_is_ours_until_somebody_changes_it() -> None:
    for wanted in (unit_of(PLAIN, template()), plist_of(PLAIN, "local.agentsup")):
        assert is_ours(wanted)
        assert judged(wanted, wanted) is UnitState.SAME
        assert judged(None, wanted) is UnitState.NOTHING
        changed = wanted.replace("/opt/agentsup", "/opt/other")
        assert judged(changed, wanted) is UnitState.FOREIGN
        assert judged(wanted + "\n", wanted) is UnitState.FOREIGN
        assert judged(template(), wanted) is UnitState.FOREIGN, "installed by hand"
    other = unit_of(ODD, template())
    assert judged(other, unit_of(PLAIN, template())) is UnitState.OURS


def test_the_launchd_file_says_the_same() -> None:
    text = plist_of(ODD, "local.agentsup")
    document = plistlib.loads(text.encode())
    assert (document["Label"], tuple(document["ProgramArguments"])) == ("local.agentsup", ODD.argv)
    assert document["KeepAlive"] == {"SuccessfulExit": False}
    assert argv_in(text) == ODD.argv


def test_what_no_longer_fits_is_named() -> None:
    assert complaints(PLAIN.argv, PLAIN, exists=True) == []
    assert complaints(PLAIN.argv, PLAIN, exists=False) == ["its program /opt/agentsup is gone"]
    (text,) = complaints(("/old/agentsup", *PLAIN.argv[1:]), PLAIN, exists=True)
    assert text == "it starts /old/agentsup, and this command is /opt/agentsup"
    (text,) = complaints(PLAIN.argv, replace(PLAIN, home=Path("/new")), exists=True)
    assert text == "it runs the home /srv/home, not /new"
    assert complaints((), PLAIN, exists=False) == ["the unit names no program"]


def test_the_program_is_the_one_that_runs_now(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    assert Path(program()[0]).parent == Path(sys.executable).parent
    monkeypatch.setattr(sys, "executable", str(tmp_path / "python"))
    assert program() == (str(tmp_path / "python"), "-P", "-m", "agentsup")


def test_a_unit_of_the_machine_needs_somebody_to_run_as(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SUDO_USER", raising=False)
    location = DaemonLocation(Home(Path("/srv/home")))

    def file_as(user: str | None) -> Path:
        return file_of(location, is_system=True, user=user, is_home_given=True).path

    with pytest.raises(CommandFailed, match="--as USER"):
        file_as(None)
    with pytest.raises(CommandFailed, match="no user 'nobody-such'"):
        file_as("nobody-such")
    assert file_as("root").parent == Path("/etc/systemd/system")


@pytest.mark.parametrize(
    "code, booted, is_system, said",
    [
        (127, True, False, "systemd does not run here"),
        (1, False, False, "systemd does not run here"),
        (1, True, False, "not for you in this shell"),
        (1, True, True, "systemd does not run here"),
        (0, True, False, ""),
    ],
)
def test_where_there_is_no_manager_the_way_out_is_named(
    monkeypatch: pytest.MonkeyPatch, code: int, booted: bool, is_system: bool, said: str
) -> None:
    monkeypatch.setattr(systemd, "asked", lambda *words: Answer(code, ""))
    monkeypatch.setattr(os.path, "isdir", lambda path: booted)
    text = Systemd(is_system).why_unavailable("agentsup up")
    assert said in text
    assert bool(text) == bool(said)
    if text:
        assert "`agentsup up` keeps the daemon running until the next reboot" in text
