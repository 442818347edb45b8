"""``agents edit``: what was typed is checked, written as it was typed, and never lost."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from agentsup.cli.commands.agents_editor import edit, in_editor
from agentsup.cli.connect.failure import CommandFailed
from agentsup.config import Home


def typing(*changes: Callable[[str], str]) -> Callable[[Path], None]:
    """An editor that makes one change each time it is opened."""
    left = list(changes)

    def editor(path: Path) -> None:
        path.write_text(left.pop(0)(path.read_text()))

    return editor


def never(problem: str) -> bool:
    raise AssertionError(f"asked again: {problem}")


def test_one_entry_is_edited_and_all_else_stays(home: Home) -> None:
    before = home.agents_json.read_text()
    done = edit(home, "Writer", typing(lambda text: text.replace("You write", "You rhyme")), never)
    assert done is not None
    assert home.agents_json.read_text() == before.replace("You write", "You rhyme")
    assert done.effects == ["writer goes on, no restart: prompt"]
    assert [line[:1] for line in done.lines] == ["-", "+"]
    assert Path(done.backup).read_text() == before


def test_what_becomes_of_each_agent_is_told(home: Home) -> None:
    def change(text: str) -> str:
        document = json.loads(text)
        main, researcher, writer = document["agents"]
        researcher["engine"] = "scripted"
        writer["name"] = "poet"
        document["agents"] = [main, researcher, writer]
        return json.dumps(document, indent=2)

    done = edit(home, None, typing(change), never)
    assert done is not None
    assert sorted(done.effects) == [
        "poet starts",
        "researcher is rebuilt when its turns have ended: engine",
        "writer ends when its turns have; memory and mail stay",
    ]


def test_nothing_typed_changes_nothing(home: Home) -> None:
    before = home.agents_json.stat()
    assert edit(home, "writer", typing(lambda text: text), never) is None
    assert home.agents_json.stat().st_mtime_ns == before.st_mtime_ns


def test_an_error_is_edited_again_with_what_was_typed(home: Home) -> None:
    told: list[str] = []

    def again(problem: str) -> bool:
        told.append(problem)
        return True

    wrong = typing(
        lambda text: text.replace('"prompt"', '"promt"'),
        lambda text: text.replace('"promt"', '"prompt"').replace("You write", "You rhyme"),
    )
    assert edit(home, "writer", wrong, again) is not None
    assert len(told) == 1
    assert "did you mean 'prompt'?" in told[0]
    assert "You rhyme" in home.agents_json.read_text()


def test_who_gives_up_loses_nothing(home: Home) -> None:
    before = home.agents_json.read_bytes()
    with pytest.raises(CommandFailed, match="your text is in ") as failed:
        edit(home, None, typing(lambda text: text + "my work"), lambda problem: False)
    kept = Path(str(failed.value).rpartition(" ")[2])
    assert kept.read_text().endswith("my work")
    assert kept.stat().st_mode & 0o077 == 0
    assert home.agents_json.read_bytes() == before
    kept.unlink()


def test_a_file_that_changed_meanwhile_is_not_overwritten(home: Home) -> None:
    def editor(path: Path) -> None:
        home.agents_json.write_text("[]\n")
        path.write_text(path.read_text().replace("You write", "You rhyme"))

    with pytest.raises(CommandFailed, match="your text is in ") as failed:
        edit(home, "writer", editor, lambda problem: "changed meanwhile" not in problem)
    assert home.agents_json.read_text() == "[]\n"
    Path(str(failed.value).rpartition(" ")[2]).unlink()


def test_a_broken_file_is_mended(home: Home) -> None:
    home.agents_json.write_text('[{"name": "a",}]')
    with pytest.raises(CommandFailed, match="opens all of it"):
        edit(home, "a", typing(), never)
    assert edit(home, None, typing(lambda text: text.replace(",}", "}")), never) is not None
    assert json.loads(home.agents_json.read_text()) == [{"name": "a"}]


def test_the_editor_of_the_environment_is_opened(
    home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("VISUAL", raising=False)
    monkeypatch.setenv("EDITOR", "sed -i 's/You write/You rhyme/'")
    assert edit(home, "writer", in_editor, never) is not None
    assert "You rhyme" in home.agents_json.read_text()
    for value, why in (("false", "ended with code 1"), ("/no/such", "can't be started")):
        monkeypatch.setenv("EDITOR", value)
        with pytest.raises(CommandFailed, match="your text is in ") as failed:
            edit(home, "writer", in_editor, lambda problem, why=why: why not in problem)  # type: ignore[misc]
        Path(str(failed.value).rpartition(" ")[2]).unlink()
