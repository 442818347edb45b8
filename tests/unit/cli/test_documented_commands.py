"""Commands that the documentation shows are commands that there are, with options that they have."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
import pytest
import typer

from agentsup.cli.app import app
from agentsup.cli.main import hoisted
from tests.support.shown_commands import HAS_PLACES, INLINE, PAGES, codes, shell_lines, where
from tests.support.source_tree import ROOT as SOURCE

ROOT: Any = typer.main.get_command(app)
_HAS_COMMAND = re.compile(r"(?:^|[|;&(]|\bagentsup)\s*agentsup\s")
PUNCTUATION = frozenset("();<>|&$")
# Commands of others, and of the terminal's chat, which sends them to no daemon.
NOT_OURS = frozenset(
    {"newbot", "revoke", "deletebot", "setprivacy", "quit", "answer", "question", "file"}
)


def pieces(line: str) -> Iterator[list[str]]:
    """The commands of a line, each as its words."""
    reading = shlex.shlex(line, posix=True, punctuation_chars=True)
    reading.whitespace_split = True
    words: list[str] = []
    for word in (*reading, ";"):
        if set(word) <= PUNCTUATION:
            if words:
                yield words
            words = []
        else:
            words.append(word)


def ours(words: list[str]) -> list[str] | None:
    """What follows ``agentsup``, also in a container; None for another program."""
    if words[:2] == ["docker", "compose"] and words.count("agentsup") == 2:
        words = words[words.index("agentsup") + 1 :]
    if words[0] == "exec" or words[0].startswith("@"):
        words = words[1:]
    return words[1:] if words and words[0] == "agentsup" else None


def command_of(words: list[str]) -> tuple[Any, str, list[str]]:
    """The command that the words name, and the words after it. Raises ``LookupError``."""
    left = hoisted(words)
    if left[:1] == ["--home"]:
        del left[:2]
    command, name = ROOT, "agentsup"
    while (
        hasattr(command, "commands")
        and left
        and left[0] not in ("…", "COMMAND")
        and left[0][0] != "-"
    ):
        name = left.pop(0)
        if name not in command.commands:
            raise LookupError(f"there is no command {name!r}")
        command = command.commands[name]
    return command, name, left


def taken(words: list[str], *, exactly: bool) -> None:
    """Raise if the command line is none. Not ``exactly``: values are placeholders."""
    command, name, left = command_of(words)
    if exactly and command is not ROOT:
        command.make_context(name, left)
        return
    known = {option for each in command.params for option in (*each.opts, *each.secondary_opts)}
    known |= {"--help", "-h", "--home", "--install-completion"}
    unknown = {word for word in left if word.startswith("-") and len(word) > 1} - known
    if unknown:
        raise LookupError(f"{name} has no {', '.join(sorted(unknown))}")


def shown() -> Iterator[tuple[str, list[str], bool]]:
    """Each command with its place; True for those that can be typed as they stand."""
    for path in PAGES:
        text = path.read_text(encoding="utf-8")
        for line in shell_lines(text):
            if _HAS_COMMAND.search(line):
                for words in pieces(line):
                    if (given := ours(words)) is not None:
                        yield f"{where(path)}: {line.strip()}", given, True
        for code in codes(text):
            if code.startswith("agentsup "):
                whole = HAS_PLACES.search(code) is None
                line = code if whole else re.sub(r"[\[\]<>|]", " ", code)
                given = shlex.split(line)[1:]
                yield f"{where(path)}: {code}", given, whole


def test_they_are_found() -> None:
    found = list(shown())
    assert len([place for place, _, is_whole in found if is_whole]) > 60
    assert list(pieces("kill -9 $(agentsup status | awk '/^pid/ {print $2}')")) == [
        ["kill", "-9"],
        ["agentsup", "status"],
        ["awk", "/^pid/ {print $2}"],
    ]
    for wrong in (["dance"], ["tasks", "dance"], ["up", "--fast"]):
        with pytest.raises(LookupError):
            taken(wrong, exactly=False)


def test_each_shown_command_is_one() -> None:
    wrong = {}
    for place, words, is_whole in shown():
        try:
            taken(words, exactly=is_whole)
        except (LookupError, click.ClickException) as error:
            wrong[place] = str(error)
    assert not wrong


def test_the_table_of_commands_names_commands() -> None:
    text = (SOURCE / "docs" / "cli.md").read_text(encoding="utf-8")
    table = text.partition("| command | what it does |")[2].partition("\n\n")[0]
    seen = 0
    for row in table.splitlines():
        for code in INLINE.findall(row.split(" | ")[0].replace("\\|", "|")):
            first, *others = re.sub(r"[\[\]()|']", " ", code).split(" · ")
            words = shlex.split(first)
            taken(words, exactly=False)
            group = words[: 1 + (len(words) > 1 and hasattr(ROOT.commands[words[0]], "commands"))]
            for other in others:
                taken([*group[:-1], *shlex.split(other)], exactly=False)
            seen += 1 + len(others)
    assert seen > 60


def test_make_has_the_targets_that_are_named() -> None:
    targets = set(re.findall(r"^([a-z-]+):", (SOURCE / "Makefile").read_text(), re.MULTILINE))
    for path in PAGES:
        text = path.read_text(encoding="utf-8")
        lines = (*shell_lines(text), *INLINE.findall(text))
        named = {found[1] for line in lines if (found := re.match(r"make ([a-z-]+)\b", line))}
        assert named <= targets, (where(path), named - targets)


def test_chat_commands_that_are_named_are_there() -> None:
    sources = (SOURCE / "agentsup" / "commands").glob("*.py")
    defined = {
        name
        for path in sources
        for name in re.findall(r'Command\(\s*"(\w+)"', path.read_text(encoding="utf-8"))
    }
    assert {"agents", "stop", "task"} <= defined
    routes = (SOURCE / "docs" / "reference" / "http.md").read_text(encoding="utf-8")
    segments = set(re.findall(r"`[A-Z]+ /(\w+)", routes))
    for path in PAGES:
        for code in INLINE.findall(path.read_text(encoding="utf-8")):
            word = re.fullmatch(r"/([a-z_]+)(?: [^/]*|)", code)
            if word is None or word[1] in segments | NOT_OURS or Path(f"/{word[1]}").exists():
                continue
            assert word[1] in defined, (where(path), code)


def test_what_troubleshooting_says_one_sees_is_said_somewhere() -> None:
    text = (SOURCE / "docs" / "troubleshooting.md").read_text(encoding="utf-8")
    sources = (*(SOURCE / "agentsup").rglob("*.py"), *(SOURCE / "scripts").glob("*.sh"))
    texts = (*sources, SOURCE / "agentsup" / "catalogue" / "en.toml")
    # A sentence may be broken over lines of the source.
    said = re.sub(r'"\s*\n\s*f?"', "", "\n".join(map(Path.read_text, texts)))
    seen = 0
    for row in re.findall(r"^\| ([^|]+) \| [^|]+ \|$", text, re.MULTILINE):
        for code in INLINE.findall(row):
            if code.startswith(("agentsup", "/", "--")) or code == "Host" or ":57:" in code:
                continue
            seen += 1
            assert code.removesuffix(" …") in said or ":12:" in code, code
    assert seen > 5
