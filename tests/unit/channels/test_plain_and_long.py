"""Answers as plain text, and as files."""

from __future__ import annotations

import pytest

from agentsup.channels.telegram.render import render
from agentsup.channels.text import parse
from agentsup.channels.text.layout import plain
from agentsup.channels.text.long import SUMMARY_SIZE, as_file
from agentsup.channels.text.split import utf16_len
from agentsup.model.answer import (
    AnswerBlocks,
    TextBlock,
)


@pytest.mark.parametrize(
    "source, text",
    [
        ("# A\n\n**b** `c`", "A\n\nb c"),
        ("[a](https://x.y) https://x.y <mailto:a@b.c>", "a (https://x.y) https://x.y mailto:a@b.c"),
        ("<a@b.c>", "a@b.c"),
        ("> one\n> two\n\nx", "> one\n> two\n\nx"),
        ("```py\nx = 1\n```", "```py\nx = 1\n```"),
        ("````\n```\n````", "````\n```\n````"),
        ("| a | b |\n|---|---|\n| 1 | 2 |", "a  b\n─  ─\n1  2"),
        ("> [q](https://x.y)\n> r", "> q (https://x.y)\n> r"),
        ("", ""),
    ],
)
def test_plain_text(source: str, text: str) -> None:
    assert plain(parse(source)) == text


def test_a_terminal_takes_wider_tables() -> None:
    source = "| " + "a" * 40 + " | b |\n|---|---|\n| 1 | 2 |"
    assert plain(parse(source)).split("\n")[1] == "─" * 40 + "  ─"
    assert plain(parse(source), width=34) == "a" * 40 + ": 1\nb: 2"


def test_a_terminal_gets_no_orders() -> None:
    assert "\x1b" not in plain(AnswerBlocks((TextBlock("\x1b[2Jx"),)))
    assert plain(parse("\x1b[2Jx")) == "x"


LONG = "# Report\n\n" + "\n\n".join(f"Paragraph {n} says something." for n in range(1_000))


def test_off_unless_the_agent_wants_it() -> None:
    assert as_file(LONG, 0) is None
    assert as_file(LONG, -1) is None


def test_only_beyond_the_number_of_messages() -> None:
    pieces = len(render(LONG))
    assert pieces > 3
    assert as_file(LONG, pieces) is None
    assert as_file("short", 1) is None
    found = as_file(LONG, pieces - 1)
    assert found is not None
    assert found.name == "answer.md"
    assert found.data.decode() == LONG + "\n"
    assert found.summary.startswith("Report\n\nParagraph 0 says something.")
    assert found.summary.endswith(" …")
    assert SUMMARY_SIZE // 2 < utf16_len(found.summary) <= SUMMARY_SIZE


def test_a_file_is_utf_8_whatever_the_engine_wrote() -> None:
    found = as_file("\ud83d x\x00 " * 3_000, 1)
    assert found is not None
    assert found.data.decode().startswith("\ufffd x\ufffd ")
