"""``--help``: each command has an example that can be parsed, and names instead of types."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from typing import Any

import pytest
import typer

from agentsup import __version__
from agentsup.cli.app import app
from agentsup.cli.main import main
from agentsup.cli.output.options import EXAMPLES, SECTIONS, examples_of

ROOT: Any = typer.main.get_command(app)


def commands(command: Any = ROOT, path: str = "") -> Iterator[tuple[str, Any]]:
    for name, below in command.commands.items():
        if not below.hidden:
            here = f"{path} {name}".strip()
            if hasattr(below, "commands"):
                yield from commands(below, here)
            else:
                yield here, below


def said(capsys: pytest.CaptureFixture[str], *line: str) -> str:
    with pytest.raises(SystemExit) as ended:
        main(line)
    assert ended.value.code in (0, None)
    return capsys.readouterr().out


def test_no_example_is_of_a_command_that_there_is_not() -> None:
    assert set(EXAMPLES) <= {path for path, _ in commands()}


def test_every_section_names_commands_that_there_are() -> None:
    named = [name for names in SECTIONS.values() for name in names]
    shown = [name for name, command in ROOT.commands.items() if not command.hidden]
    assert sorted(named) == sorted(shown)


@pytest.mark.parametrize(
    "path, line", [(path, line) for path, below in commands() for line in examples_of(path, below)]
)
def test_an_example_is_a_line_that_the_command_takes(path: str, line: str) -> None:
    words = shlex.split(line.rpartition("|")[2])
    assert words.pop(0) == "agentsup"
    if words[0] == "--home":
        del words[:2]
    command = ROOT
    for name in path.split():
        assert words.pop(0) == name
        command = command.commands[name]
    command.make_context(path, words)


def test_help_shows_names_and_examples(capsys: pytest.CaptureFixture[str]) -> None:
    text = said(capsys, "help", "tasks", "create")
    assert "agentsup tasks create [OPTIONS] TEXT\n" in text
    assert EXAMPLES["tasks create"][1] in text
    for path, _ in commands():
        text = said(capsys, *path.split(), "--help")
        assert not re.search(r"<\w+( range)?>|\{\w+\}|\[\[", text), text


def test_agentsup_alone_and_its_help_list_commands_by_section(
    capsys: pytest.CaptureFixture[str],
) -> None:
    text = said(capsys)
    assert text == said(capsys, "help") == said(capsys, "--help")
    assert [line[:-1] for line in text.splitlines() if line[:-1] in SECTIONS] == list(SECTIONS)
    assert "..." not in text.replace("[ARGS]...", "")


def test_the_version_and_an_unknown_command(capsys: pytest.CaptureFixture[str]) -> None:
    assert said(capsys, "version") == said(capsys, "--version") == f"agentsup {__version__}\n"
    with pytest.raises(SystemExit) as ended:
        main(["help", "tasks", "dance"])
    assert ended.value.code == 2
    assert "tasks dance" in capsys.readouterr().err
