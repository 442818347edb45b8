"""What `init` lays down is right, is the same as what the repository shows, and is not overwritten."""

import os
from pathlib import Path

import pytest

from agentsup.cli.failure import Failed
from agentsup.cli.home_files import DEMO_RULES, TEMPLATES, create_home
from agentsup.config.explain import validate
from agentsup.config.home import Home
from agentsup.config.snapshot import load
from agentsup.engines.scripted_rules import Script, parse_script

ROOT = Path(__file__).parents[3]


@pytest.mark.parametrize(
    "shown, template",
    [("agents.example.json", "agents.json"), ("SHAREDMEMORY.md", "SHAREDMEMORY.md")],
)
def test_the_repository_shows_what_init_writes(shown: str, template: str) -> None:
    assert (ROOT / shown).read_bytes() == (TEMPLATES / template).read_bytes(), (
        f"copy agentsup/cli/templates/{template} to {shown}"
    )


def test_a_new_home_is_right_and_private(tmp_path: Path) -> None:
    home = Home(tmp_path / "a" / "home")
    made = create_home(home)
    assert {p.name for p in made} == {
        "config.toml",
        "agents.json",
        "SHAREDMEMORY.md",
        "demo-rules.yaml",
    }
    assert validate(home, {}) == []
    assert list(load(home, environ={}).specs) == ["main", "researcher", "writer"]
    assert home.root.stat().st_mode & 0o077 == 0
    assert all(p.stat().st_mode & 0o077 == 0 for p in made)
    assert (home.root / "agents.schema.json").is_file()


def test_nothing_is_overwritten(tmp_path: Path) -> None:
    home = Home(tmp_path)
    home.agents_json.write_text("mine")
    home.shared_memory.symlink_to(tmp_path / "elsewhere")
    made = create_home(home)
    assert home.agents_json.read_text() == "mine"
    assert home.shared_memory.is_symlink()
    assert {p.name for p in made} == {"config.toml", "demo-rules.yaml"}
    assert create_home(home) == []


@pytest.mark.skipif(os.getuid() == 0, reason="root may write anywhere")
def test_a_place_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    tmp_path.chmod(0o500)
    with pytest.raises(Failed, match="can't be made"):
        create_home(Home(tmp_path / "home"))


def test_a_file_in_the_way_is_named(tmp_path: Path) -> None:
    (tmp_path / "home").write_text("")
    with pytest.raises(Failed, match="can't be made"):
        create_home(Home(tmp_path / "home"))


@pytest.fixture(scope="module")
def rules() -> Script:
    return parse_script((TEMPLATES / DEMO_RULES).read_bytes(), path=DEMO_RULES)


@pytest.mark.parametrize(
    "text, kind",
    [
        ("ask writer for a haiku", "tool"),
        ("Ask researcher: facts about bees", "tool"),
        ("tell researcher to look into tides", "tool"),
        ("who is there?", "tool"),
        ("a haiku", "stream"),
        ("a text about bees", "tool"),
        ("facts about bees", "say"),
        ("choose", "question"),
        ("count", "stream"),
        ("hello", "say"),
        ("writer answered your message msg_1 (“x”):\n\nyes", "say"),
    ],
)
def test_the_demo_rules_fit_what_they_say(rules: Script, text: str, kind: str) -> None:
    found = rules.find(text)
    assert found is not None
    assert found[0][0].kind == kind


@pytest.mark.parametrize("text", ["ask", "what is the weather?", "ask nobody for a haiku"])
def test_other_texts_are_left_to_the_honest_echo(rules: Script, text: str) -> None:
    assert rules.find(text) is None
