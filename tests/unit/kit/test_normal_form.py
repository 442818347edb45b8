"""Texts made to be slow cost no more than others of their length."""

import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentsup.agents.memory.entry import clean_key, clean_tags, draft
from agentsup.agents.memory.ranking import words
from agentsup.agents.tools.shell_policy import script_problem
from agentsup.channels.received import safe_name
from agentsup.kit.normal_form import normal_form
from agentsup.model.errors import BadRequest

SLOW = "a" + "\u0301\u0316" * 500_000
"""Sorted in one piece this takes minutes, in which no other thread runs."""


@given(st.text(max_size=700), st.sampled_from(["NFC", "NFKC"]))
def test_a_text_with_white_space_has_the_very_form(text: str, form: str) -> None:
    spaced = " ".join(text[at : at + 100] for at in range(0, len(text), 100))
    assert normal_form(spaced, form) == unicodedata.normalize(form, spaced)  # type: ignore[arg-type]  # one of the two


def test_nothing_is_lost_without_white_space() -> None:
    text = "e\u0301" * 10_000
    assert unicodedata.normalize("NFC", normal_form(text)) == "\u00e9" * 10_000


def test_a_text_made_to_be_slow_is_not() -> None:
    assert len(normal_form(SLOW)) in range(len(SLOW) - 10, len(SLOW) + 1)
    assert words(SLOW, telling=True) is not None
    for wrong in (lambda: draft("k", SLOW), lambda: clean_key(SLOW), lambda: clean_tags([SLOW])):
        with pytest.raises(BadRequest):
            wrong()
    script_problem(f"{SLOW[:40_000]} -rf /")
    assert len(safe_name(SLOW).encode()) <= 100
