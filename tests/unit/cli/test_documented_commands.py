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

HERE = Path(__file__).parents[3]
PAGES = (
    *(HERE / "README.md", HERE / "CONTRIBUTING.md", HERE / "compose.yaml"),
    *sorted((HERE / "docs").glob("*.md")),
    *sorted((HERE / "docs" / "examples").glob("*.md")),
)
ROOT: Any = typer.main.get_command(app)
_BLOCK = re.compile(r"^( *)```(\w*)\n(.*?)^\1```", re.DOTALL | re.MULTILINE)
_INLINE = re.compile(r"(?<!`)`([^`\n]+)`(?!`)")
_HAS_COMMAND = re.compile(r"(?:^|[|;&(]|\bagentsup)\s*agentsup\s")
_HAS_PLACES = re.compile(r"[…\[\]<>|·]|\b[A-Z]{2,}\b")
PUNCTUATION = frozenset("();<>|&$")
# Commands of others, and of the terminal's chat, which sends them to no daemon.
NOT_OURS = frozenset(
    {"newbot", "revoke", "deletebot", "setprivacy", "quit", "answer", "question", "file"}
)


def where(path: Path) -> str:
    return str(path.relative_to(HERE))


def shell_lines(text: str) -> Iterator[str]:
    """Lines of blocks that a person would type, and those of comments in compose.yaml."""
    for indent, language, block in _BLOCK.findall(text):
        if language in ("", "sh", "bash", "console"):
            lines = (line.removeprefix(indent) for line in block.splitlines())
            yield from "\n".join(lines).replace("\\\n", " ").splitlines()
    yield from re.findall(r"^# \w+: +(docker .+)$", text, re.MULTILINE)


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
        for code in _INLINE.findall(_BLOCK.sub("", text)):
            if code.startswith("agentsup "):
                whole = _HAS_PLACES.search(code) is None
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
    text = (HERE / "docs" / "cli.md").read_text(encoding="utf-8")
    table = text.partition("| command | what it does |")[2].partition("\n\n")[0]
    seen = 0
    for row in table.splitlines():
        for code in _INLINE.findall(row.split(" | ")[0].replace("\\|", "|")):
            first, *others = re.sub(r"[\[\]()|']", " ", code).split(" · ")
            words = shlex.split(first)
            taken(words, exactly=False)
            group = words[: 1 + (len(words) > 1 and hasattr(ROOT.commands[words[0]], "commands"))]
            for other in others:
                taken([*group[:-1], *shlex.split(other)], exactly=False)
            seen += 1 + len(others)
    assert seen > 60


def test_make_has_the_targets_that_are_named() -> None:
    targets = set(re.findall(r"^([a-z-]+):", (HERE / "Makefile").read_text(), re.MULTILINE))
    for path in PAGES:
        text = path.read_text(encoding="utf-8")
        lines = (*shell_lines(text), *_INLINE.findall(text))
        named = {found[1] for line in lines if (found := re.match(r"make ([a-z-]+)\b", line))}
        assert named <= targets, (where(path), named - targets)


def test_chat_commands_that_are_named_are_there() -> None:
    sources = (HERE / "agentsup" / "commands").glob("*.py")
    defined = {
        name
        for path in sources
        for name in re.findall(r'Command\(\s*"(\w+)"', path.read_text(encoding="utf-8"))
    }
    assert {"agents", "stop", "task"} <= defined
    routes = (HERE / "docs" / "reference" / "http.md").read_text(encoding="utf-8")
    segments = set(re.findall(r"`[A-Z]+ /(\w+)", routes))
    for path in PAGES:
        for code in _INLINE.findall(path.read_text(encoding="utf-8")):
            word = re.fullmatch(r"/([a-z_]+)(?: [^/]*|)", code)
            if word is None or word[1] in segments | NOT_OURS or Path(f"/{word[1]}").exists():
                continue
            assert word[1] in defined, (where(path), code)


def test_what_troubleshooting_says_one_sees_is_said_somewhere() -> None:
    text = (HERE / "docs" / "troubleshooting.md").read_text(encoding="utf-8")
    sources = (*(HERE / "agentsup").rglob("*.py"), *(HERE / "scripts").glob("*.sh"))
    texts = (*sources, HERE / "agentsup" / "catalogue" / "en.toml")
    # A sentence may be broken over lines of the source.
    said = re.sub(r'"\s*\n\s*f?"', "", "\n".join(map(Path.read_text, texts)))
    seen = 0
    for row in re.findall(r"^\| ([^|]+) \| [^|]+ \|$", text, re.MULTILINE):
        for code in _INLINE.findall(row):
            if code.startswith(("agentsup", "/", "--")) or code == "Host" or ":57:" in code:
                continue
            seen += 1
            assert code.removesuffix(" …") in said or ":12:" in code, code
    assert seen > 5
