"""What ``init`` lays down is right, is the same as what the repository shows, and is not
overwritten."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest

from agentsup.cli.commands.home_files import DEMO_RULES, TEMPLATES, create_home
from agentsup.cli.connect.failure import CommandFailed
from agentsup.config import Home, load, validate
from agentsup.engines.scripted.script import Script, parse_script

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
    with pytest.raises(CommandFailed, match="can't be made"):
        create_home(Home(tmp_path / "home"))


def test_a_file_in_the_way_is_named(tmp_path: Path) -> None:
    (tmp_path / "home").write_text("")
    with pytest.raises(CommandFailed, match="can't be made"):
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
        ("hello there", "say"),
        ("what can you do?", "say"),
        ("remember that my bike is blue", "tool"),
        ("what do you know about the bike?", "tool"),
        ("summarise the papers in inbox/", "tool"),
        ("[file: inbox/a.txt (a.txt)]", "tool"),
        ("read it\n[file: inbox/a.txt (a.txt)]", "tool"),
        ("writer answered your message msg_1 (“x”):\n\nyes", "say"),
    ],
)
def test_the_demo_rules_fit_what_they_say(rules: Script, text: str, kind: str) -> None:
    found = rules.find(text)
    assert found is not None
    assert found[0][0].kind == kind


@pytest.mark.parametrize("text", ["ask", "what is the weather?", "ask nobody\nfor a haiku"])
def test_other_texts_get_three_things_to_try(rules: Script, text: str) -> None:
    found = rules.find(text)
    assert found is not None
    said = found[0][0].say or ""
    named = re.findall(r"^- `(.+)`$", said, re.MULTILINE)
    assert len(named) == 3
    for example in named:
        tried = rules.find(example)
        assert tried is not None
        assert tried[0] != found[0], f"{example} has no answer of its own"


def test_what_the_rules_propose_has_an_answer_of_its_own(rules: Script) -> None:
    other = rules.find("nothing of that sort")
    found = rules.find("what can you do?")
    assert other is not None
    assert found is not None
    said = found[0][0].say or ""
    proposed = re.findall(r"`([^`/]+)`", said)
    assert "`/task new" not in said, "a task fails without a model"
    comments = (TEMPLATES / DEMO_RULES).read_text().partition("Try, in the chat")[2]
    for line in comments.partition("\n\n")[0].splitlines()[1:]:
        proposed += [each.strip() for each in re.split(r"\(|  \.\.\.  ", line.strip("# "))[:2]]
    texts = [each for each in proposed if each[:1].islower() and not each.endswith(")")]
    assert len(texts) > 8
    for text in texts:
        if text.startswith(("agentsup", "also", "the ")):
            continue
        tried = rules.find(text)
        assert tried is not None
        assert tried[0] != other[0], text
