"""Answers in a terminal: the same lines however the text comes, and no code of others in them."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from agentsup.cli.chat.conversation import ShownItem, ShownKind
from agentsup.cli.chat.link import is_file, named_file
from agentsup.cli.chat.markdown import MarkdownStream
from agentsup.cli.chat.painter import Painter
from agentsup.cli.chat.terminal import last_rows
from agentsup.cli.connect.failure import CommandFailed
from agentsup.cli.output.show import width_of
from agentsup.kit.terminal import clean_painted

BOLD, CYAN, END = "\x1b[1m", "\x1b[36m", "\x1b[0m"
ANSWER = """Here is **bold** and `code` text, see [docs](https://x.example/z), which runs on past the end.

# Head
- one
  - nested *it*
- two **b**
1. first
2. second, which is too long for one line

| a | b |
|---|:-:|
| 1 | `2` |
| longer cell | x |

```python
def f():

    return 1
```
> quoted
end"""
SHOWN = [
    f"main: Here is {BOLD}bold{END} and {CYAN}code{END} text, see",
    "docs (https://x.example/z), which runs",
    "on past the end.",
    "",
    f"{BOLD}Head{END}",
    "• one",
    "  ◦ nested it",
    f"• two {BOLD}b{END}",
    "1. first",
    "2. second, which is too long for one",
    "   line",
    "",
    "a            b",
    "───────────  ─",
    "1            2",
    "longer cell  x",
    "",
    f"{CYAN}  def f():{END}",
    f"{CYAN}  {END}",
    f"{CYAN}      return 1{END}",
    "│ quoted",
    "end",
]


def in_pieces(text: str, size: int, width: int = 40) -> list[str]:
    stream = MarkdownStream("main: ", lambda: width)
    shown: list[str] = []
    for at in range(0, len(text), size):
        shown += stream.add(text[at : at + size])
    return shown + stream.end()


@pytest.mark.parametrize("size", [1, 3, 17, 10_000])
def test_an_answer_is_rendered_the_same_however_it_comes(size: int) -> None:
    assert in_pieces(ANSWER, size) == SHOWN


def test_what_is_complete_is_shown_at_once() -> None:
    stream = MarkdownStream("", lambda: 40)
    assert stream.add("one\n") == ["one"]
    assert stream.add("```\ncode\nmo") == [f"{CYAN}  code{END}"]
    assert stream.unfinished == "mo"
    assert stream.add("re\n```\n| a |\n|---|\n| 1 |\n") == [f"{CYAN}  more{END}"]
    assert stream.add("x") == ["a", "─", "1"]


def test_a_table_that_is_too_wide_becomes_blocks() -> None:
    shown = in_pieces("| name | what |\n|---|---|\n| x | " + "long " * 10 + "|\n", 5, 30)
    assert shown[:3] == ["main:", "x", "  what long long long long"]
    assert all(width_of(line) < 30 for line in shown)


def test_no_code_of_an_answer_reaches_the_terminal() -> None:
    """Also not one that only the parser makes, from an entity or an address."""
    evil = "&#27;]0;owned&#7; `\x9b31m` [x](https://a.example/&#27;[2J) | a&#x202e;b\n"
    for text in (evil, f"- {evil}", f"| {evil} |\n|---|\n| {evil} |\n", f"```\n{evil}```\n"):
        for line in in_pieces(text, 4):
            ours = re.sub(r"\x1b\[(?:0|1|36)m", "", line)
            assert not re.search("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e]", ours), line
            assert clean_painted(line) == line


def painter(*, renders: bool) -> tuple[Painter, list[str]]:
    lines: list[str] = []
    return Painter(lines.append, lambda: 60, plain=not renders, renders=renders), lines


def test_a_painter_renders_what_agents_write_and_nothing_else() -> None:
    paint, lines = painter(renders=True)
    paint.show(ShownItem(ShownKind.DELTA, "**a", "main", "m1"))
    assert (lines, paint.tail) == ([], "main: **a")
    paint.show(ShownItem(ShownKind.DELTA, "**\nb", "main", "m1"))
    assert (lines, paint.tail) == ([f"main: {BOLD}a{END}"], "b")
    paint.show(ShownItem(ShownKind.ANSWER, "**a**\nb **c**", "main", "m1"))
    assert lines[1:] == [f"b {BOLD}c{END}"]
    paint.show(ShownItem(ShownKind.QUESTION, "**Which?**", "main", "m2", options=("tea",)))
    assert lines[2:4] == [f"{BOLD}main asks: {END}{BOLD}Which?{END}", "  1. tea"]
    paint.show(ShownItem(ShownKind.REPLY, "**as it is**"))
    assert lines[-1] == "**as it is**"


def test_a_plain_painter_leaves_the_text_as_it_is() -> None:
    paint, lines = painter(renders=False)
    paint.show(ShownItem(ShownKind.ANSWER, "**a** `b`\n# c", "main", "m1"))
    assert lines == ["main: **a** `b`", "# c"]


def test_an_attempt_that_says_something_else_is_shown_from_its_beginning() -> None:
    paint, lines = painter(renders=True)
    paint.show(ShownItem(ShownKind.DELTA, "one\ntw", "main", "m1"))
    paint.show(ShownItem(ShownKind.BEGIN, "", "main", "m1"))
    paint.show(ShownItem(ShownKind.DELTA, "one\n", "main", "m1"))
    assert lines == ["main: one"]
    paint.show(ShownItem(ShownKind.DELTA, "**2**\n", "main", "m1"))
    assert lines == ["main: one", "tw", "main: one", f"{BOLD}2{END}"]


def test_a_long_paragraph_does_not_fill_the_screen_while_it_is_written() -> None:
    rows = last_rows("word " * 500, 40).split("\n")
    assert len(rows) == 6
    assert last_rows("short\nlines", 40) == "short\nlines"


def test_the_file_that_is_meant(tmp_path: Path) -> None:
    one, spaced = tmp_path / "one.txt", tmp_path / "my notes.txt"
    one.write_text("x")
    spaced.write_text("y")
    assert is_file("/file x")
    assert not is_file("/files")
    for given, path, text in (
        (f"/file {one}", one, ""),
        (f"/file {one} what is it?", one, "what is it?"),
        (f"/file {one}\nread it,\nplease", one, "read it,\nplease"),
        (f"/file {spaced}", spaced, ""),
        (f'/file "{spaced}" read', spaced, "read"),
    ):
        assert named_file(given) == (path, text), given
    for given, why in (
        ("/file", "say which"),
        (f"/file {tmp_path}", "is no file"),
        (f"/file {tmp_path / 'gone'}", "No such file"),
    ):
        with pytest.raises(CommandFailed, match=why):
            named_file(given)


@pytest.mark.parametrize("line", ["word ", "| a ", "`a` ", "  a\n", "|a|\n"])
def test_what_never_ends_is_shown_in_parts(line: str) -> None:
    """What is unfinished is drawn again with each key; an agent decides how long it is."""
    stream = MarkdownStream("main: ", lambda: 80)
    shown = stream.add("- b\n" if line.startswith(" ") else "")
    for _ in range(20):
        shown += stream.add(line * 1_000)
        assert len(stream.unfinished) <= 40_000
    whole = "".join((*shown, *stream.end()))
    assert whole.count(line.strip("`| \n")[0]) >= 20_000


def test_a_line_of_a_megabyte_is_not_measured_again_for_each_of_its_parts(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    measured: list[int] = []

    def counted(text: str) -> int:
        measured.append(len(text))
        return width_of(text)

    monkeypatch.setattr("agentsup.cli.chat.painter.width_of", counted)
    lines: list[str] = []
    text = "word " * 20_000
    Painter(lines.append, lambda: 80, plain=True).show(ShownItem(ShownKind.NOTICE, text))
    assert "".join(lines).count("word") == 20_000
    assert sum(measured) < 20 * len(text)
