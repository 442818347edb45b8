"""Editing agents.json keeps what a person wrote, and writes nothing that would be wrong."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from agentsup.cli.commands import home_files
from agentsup.cli.commands.home_files import change_file
from agentsup.cli.connect.failure import CommandFailed
from agentsup.config import Home, listed, with_entry, without_entry
from agentsup.model.errors import Refused

ODD = '{\n    "agents": [\n        {"name": "a",   "slots": 2},\n\n        { "name": "b" }\n    ]\n}\n'
TEXTS = [
    "[]",
    "[\n]\n",
    '[{"name": "a"}]',
    '[{"name": "a"}, {"name": "b"}]\n',
    ODD,
    '{"agents": []}',
    '{"$schema": "]}[{", "agents": [{"name": "a", "prompt": "] } \\" ["}]}',
]


@pytest.mark.parametrize("text", TEXTS)
def test_an_added_entry_is_the_last_and_its_removal_gives_the_same_entries(text: str) -> None:
    before = listed(text).values
    after = with_entry(text, {"name": "new", "prompt": "ä\n]"})
    assert listed(after).values == (*before, {"name": "new", "prompt": "ä\n]"})
    assert listed(without_entry(after, "NEW")).values == before


def test_the_form_of_the_others_stays() -> None:
    after = with_entry(ODD, {"name": "new"})
    assert after.startswith(ODD[: ODD.index('{ "name": "b" }') + len('{ "name": "b" }')])
    assert '\n        {\n          "name": "new"\n        }\n    ]\n}\n' in after
    assert without_entry(after, "new") == ODD


@pytest.mark.parametrize("name", ["a", "b"])
def test_removing_one_leaves_the_other_as_it_was_written(name: str) -> None:
    other = {"a": '{ "name": "b" }', "b": '{"name": "a",   "slots": 2}'}[name]
    after = without_entry(ODD, name)
    assert other in after
    assert len(json.loads(after)["agents"]) == 1


@pytest.mark.parametrize(
    "change, said",
    [
        (lambda t: with_entry(t, {"name": "A"}), "already"),
        (lambda t: with_entry(t, {"name": "../x"}), "may have letters"),
        (lambda t: without_entry(t, "main"), "can't be removed"),
        (lambda t: without_entry(t, "aa"), "did you mean 'a'"),
    ],
)
def test_refusals_say_why(change: object, said: str) -> None:
    with pytest.raises(Refused, match=said):
        change(ODD)  # type: ignore[operator]  # a lambda of the table


def test_the_old_file_is_kept_and_the_mode_stays(home: Home) -> None:
    before = home.agents_json.read_bytes()
    home.agents_json.chmod(0o640)
    backup = change_file(home, lambda text: with_entry(text, {"name": "new"}))
    assert Path(backup).read_bytes() == before
    assert home.agents_json.stat().st_mode & 0o777 == 0o640
    assert [e["name"] for e in json.loads(home.agents_json.read_bytes())["agents"]][-1] == "new"


def test_a_change_that_would_be_wrong_writes_nothing(home: Home) -> None:
    before = home.agents_json.read_bytes()
    with pytest.raises(CommandFailed, match=r"nothing was written.*engin.*did you mean 'engine'"):
        change_file(home, lambda text: with_entry(text, {"name": "new", "engin": "auto"}))
    assert home.agents_json.read_bytes() == before
    assert not home.backups.exists()


@pytest.mark.parametrize(
    "more",
    [
        {"tools": ["nope"]},
        {"role": "nobody"},
        {"engine": "scripted", "engine_options": {"script": "gone.yaml"}},
        {"engine": "foo"},
    ],
)
def test_what_would_not_be_applied_is_not_written(home: Home, more: dict[str, object]) -> None:
    before = home.agents_json.read_bytes()
    with pytest.raises(CommandFailed, match="nothing was written"):
        change_file(home, lambda text: with_entry(text, {"name": "new", **more}))
    assert home.agents_json.read_bytes() == before


def test_what_was_wrong_before_keeps_nobody_from_another_change(home: Home) -> None:
    text = '[{"name": "a", "tools": ["nope"]}, {"name": "b", "role": "nobody"}]'
    home.agents_json.write_text(text)
    change_file(home, lambda text: without_entry(text, "b"))
    change_file(home, lambda text: with_entry(text, {"name": "c"}))
    assert listed(home.agents_json.read_text()).names == ["a", "c"]


def test_a_file_that_vanished_is_not_begun_anew(home: Home) -> None:
    home.applied.mkdir()
    home.agents_json.rename(home.applied / home.agents_json.name)
    with pytest.raises(CommandFailed, match="the file is gone"):
        change_file(home, lambda text: with_entry(text, {"name": "new"}))
    assert not home.agents_json.exists()


def test_a_file_that_is_wrong_already_is_left_alone(home: Home) -> None:
    home.agents_json.write_text('[{"name": "a"')
    with pytest.raises(CommandFailed, match="has an error"):
        change_file(home, lambda text: with_entry(text, {"name": "new"}))
    assert home.agents_json.read_text() == '[{"name": "a"'


def test_a_file_changed_meanwhile_is_not_overwritten(home: Home) -> None:
    def change(text: str) -> str:
        home.agents_json.write_text('[{"name": "theirs"}]')
        return with_entry(text, {"name": "mine"})

    with pytest.raises(CommandFailed, match="changed meanwhile"):
        change_file(home, change)
    assert home.agents_json.read_text() == '[{"name": "theirs"}]'


def test_a_missing_file_is_begun(home: Home) -> None:
    home.agents_json.unlink()
    assert change_file(home, lambda text: with_entry(text, {"name": "new"})) == ""
    assert json.loads(home.agents_json.read_bytes()) == [{"name": "new"}]


def test_a_linked_file_stays_a_link(home: Home, tmp_path: Path) -> None:
    real = tmp_path / "dotfiles.json"
    home.agents_json.rename(real)
    home.agents_json.symlink_to(real)
    change_file(home, lambda text: with_entry(text, {"name": "new"}))
    assert home.agents_json.is_symlink()
    assert b'"new"' in real.read_bytes()


def test_without_a_home_nothing_is_made(tmp_path: Path) -> None:
    with pytest.raises(CommandFailed, match="agentsup init"):
        change_file(Home(tmp_path / "none"), lambda text: text)
    assert home_files.EMPTY == "[]\n"
