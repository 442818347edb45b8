"""Texts made to be slow cost an agent no more than others of their length."""

from __future__ import annotations

import pytest

from agentsup.agents.memory.entry import clean_key, clean_tags, draft
from agentsup.agents.memory.ranking import words
from agentsup.agents.tools import exec_tool
from agentsup.agents.tools.exec import command_lines
from agentsup.agents.tools.exec.command_lines import problem
from agentsup.model.errors import BadRequest

SLOW = "a" + "\u0301\u0316" * 500_000
"""Brought into normal form in one piece this takes minutes, in which no other thread runs."""


def test_a_memory_is_refused_for_its_length_at_once() -> None:
    for wrong in (lambda: draft("k", SLOW), lambda: clean_key(SLOW), lambda: clean_tags([SLOW])):
        with pytest.raises(BadRequest):
            wrong()


def test_the_words_of_a_message_are_found() -> None:
    assert words(f"first {SLOW}", telling=True)[0] == "first"


def test_a_command_is_judged() -> None:
    assert problem([SLOW, "-rf", "/"]) is None, "no program of that name is known"


@pytest.mark.parametrize("line", ["a" * 20_001, "'" + "a " * 10_001 + "'", "(" * 20_001])
def test_a_long_command_line_is_not_split(line: str) -> None:
    """A million characters would keep the whole daemon busy for a minute."""
    tool = exec_tool(dict)
    assert tool.check is not None
    assert tool.commands is not None
    assert "more than 20,000 characters" in str(tool.check({"command": line}))
    assert tool.commands({"command": line}) == command_lines.of_script(line) == ()
    assert tool.check({"argv": ["echo", line]}) is None, "words need no splitting"
