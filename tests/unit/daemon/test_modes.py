"""What is the daemon's keeps its modes, whatever a program of the same user did to them."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from agentsup.config import Home
from agentsup.daemon.runtime import file_modes as modes_module
from agentsup.daemon.runtime.file_modes import StartModes, restore
from agentsup.model.errors import StoreUnavailable

NOBODY = 65534


OURS = (
    "agents/good/MEMORY.md",
    "agents/good/matrix-session.json",
    "roles/critic/AGENT.md",
    "skills/mail.md",
    "secrets/bot/token",
    "rules.yaml",
    "backups/files/agents.json",
)
"""What people and the daemon keep in a home, deeper or by names of their own."""


@pytest.fixture
def home(tmp_path: Path) -> Home:
    home = Home(tmp_path / "home")
    fill(home)
    return home


def fill(home: Home) -> None:
    home.create()
    (home.agents / "good" / "workspace").mkdir(parents=True, mode=0o700)
    (home.tasks / "t1").mkdir(mode=0o700)
    for path in (
        home.state_db,
        home.agents_json,
        home.logs / "agentsup.log",
        home.root / "store.json",
        *map(home.root.joinpath, OURS),
    ):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch(mode=0o600)
    for path in (*home.root.rglob("*"), home.root):
        path.chmod(0o700 if path.is_dir() else 0o600)


def modes(root: Path) -> dict[str, int]:
    return {str(p): p.lstat().st_mode & 0o777 for p in (root, *root.rglob("*"))}


def test_a_home_that_is_right_is_left_alone(home: Home) -> None:
    before = modes(home.root)
    assert restore(home) == []
    assert modes(home.root) == before


def test_files_with_secrets_are_closed_to_others(home: Home) -> None:
    key = home.secrets / "openai.key"
    for path in (home.environment, key):
        path.touch()
        path.chmod(0o644)
    home.secrets.chmod(0o755)
    assert {each.path for each in restore(home)} == {home.environment, key, home.secrets}
    assert [p.stat().st_mode & 0o777 for p in (home.environment, key, home.secrets)] == [
        0o600,
        0o600,
        0o700,
    ]


DAMAGE = (
    "state.db",
    "agents.json",
    "logs",
    "tasks",
    "agents/good",
    "logs/agentsup.log",
    ".",
    "store.json",
    "skills",
    "secrets/bot",
    *OURS,
)


HOMES = (
    *("engine-home", "engine-home/claude", "engine-settings/codex", "engine-turns", "exec-home"),
    *("mcp/files", "persons", "persons/a1", "persons/a1/engine-home", "persons/a1/exec-home"),
    *("persons/a1/engine-home/claude", "removed"),
)


@pytest.mark.parametrize("name", HOMES)
def test_a_home_that_a_program_took_is_given_back(home: Home, name: str) -> None:
    """A program can change the mode of what it can't open."""
    good = home.agents / "good"
    for each in HOMES:
        (good / each).mkdir(parents=True, exist_ok=True)
    restore(home)
    (good / name).chmod(0)
    (found,) = restore(home)
    assert (found.path, found.was) == (good / name, 0)


@pytest.mark.parametrize("name", DAMAGE)
def test_each_right_that_was_taken_is_given_back(home: Home, name: str) -> None:
    path = home.root / name
    before = path.stat().st_mode & 0o777
    path.chmod(0)
    (found,) = restore(home)
    assert (found.path, found.was, found.was_taken) == (home.root / name, 0, True)
    assert path.stat().st_mode & 0o777 & before & 0o500
    assert restore(home) == []


def test_a_home_that_is_not_there_yet_needs_nothing(tmp_path: Path) -> None:
    assert restore(Home(tmp_path / "later")) == []


def test_what_people_keep_read_only_stays_so(home: Home) -> None:
    (home.root / "secrets" / "bot" / "token").chmod(0o400)
    (home.root / "secrets" / "bot").chmod(0o500)
    assert restore(home) == []


def test_what_programs_have_in_their_own_places_is_left_alone(home: Home) -> None:
    theirs = home.workspace("good") / "theirs"
    theirs.touch(mode=0o000)
    theirs.chmod(0)
    (home.tasks / "t1" / "theirs").mkdir(mode=0o000)
    assert restore(home) == []


def test_a_walk_is_bounded(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("skills/mail.md", "rules.yaml"):
        (home.root / name).chmod(0)
    monkeypatch.setattr(modes_module, "_WALK_S", -1.0)
    assert restore(home) == []
    monkeypatch.setattr(modes_module, "_WALK_S", 60.0)
    monkeypatch.setattr(modes_module, "_ENTRIES", len(list(home.root.iterdir())))
    assert [each.path.name for each in restore(home)] == ["rules.yaml"]


def test_the_home_is_nobody_elses(home: Home) -> None:
    home.root.chmod(0o755)
    (found,) = restore(home)
    assert not found.was_taken
    assert home.root.stat().st_mode & 0o777 == 0o700


def test_what_lies_in_the_home_may_have_the_usual_modes(home: Home) -> None:
    for path in (home.agents_json, home.state_db, home.logs / "agentsup.log"):
        path.chmod(0o644)
    (home.agents / "good").chmod(0o755)
    assert restore(home) == []


def test_a_link_in_a_files_place_is_not_followed(home: Home, tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir(mode=0o755)
    elsewhere.chmod(0o755)
    shutil.rmtree(home.tasks)
    home.tasks.symlink_to(elsewhere)
    assert restore(home) == []
    assert elsewhere.stat().st_mode & 0o777 == 0o755


@pytest.fixture
def theirs() -> Iterator[Path]:
    root = Path(tempfile.mkdtemp())
    root.chmod(0o755)
    try:
        yield root
    finally:
        subprocess.run(["chmod", "-R", "u+rwX", str(root)], check=False)
        shutil.rmtree(root)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can be another user")
def test_an_owner_without_any_right_gets_in_again(theirs: Path) -> None:
    """As root nothing is closed by a mode: as an ordinary user everything is."""
    home = Home(theirs / "home")
    fill(home)
    for path in (*home.root.rglob("*"), home.root):
        os.chown(path, NOBODY, NOBODY)
    for name in DAMAGE:
        (home.root / name).chmod(0o000)
    child = os.fork()
    if not child:
        try:
            os.setgid(NOBODY)
            os.setuid(NOBODY)
            restored = restore(home)
            home.state_db.read_bytes()
            list(home.agents.rglob("*"))
            list(home.logs.iterdir())
            os._exit(0 if len(restored) == len(DAMAGE) else 1)
        except BaseException as error:  # noqa: BLE001 - the child of a fork ends here
            sys.stderr.write(f"{error!r}\n")
            os._exit(2)
    _, status = os.waitpid(child, 0)
    assert os.waitstatus_to_exitcode(status) == 0


async def test_a_mode_that_was_taken_is_told_once_and_again_if_it_could_not_be(home: Home) -> None:
    told_texts: list[str] = []

    async def tell(text: str) -> None:
        told_texts.append(text)
        if len(told_texts) == 1:
            raise StoreUnavailable("the disk is full")

    home.tasks.chmod(0)
    home.root.chmod(0o755)
    start = StartModes(tuple(restore(home)), has_new_token=True)
    with pytest.raises(StoreUnavailable):
        await start.report(tell)
    for _ in range(2):
        await start.report(tell)
    assert len(told_texts) == 2
    assert "tasks (0, now 700)" in told_texts[1]
    assert "There is a new one" in told_texts[1]
    assert "755" not in told_texts[1], "a home with the usual mode is corrected silently"
