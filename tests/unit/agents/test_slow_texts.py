"""Texts made to be slow cost an agent no more than others of their length."""

import pytest

from agentsup.agents.memory.entry import clean_key, clean_tags, draft
from agentsup.agents.memory.ranking import words
from agentsup.agents.tools.shell_policy import script_problem
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
    script_problem(f"{SLOW[:40_000]} -rf /")
