"""Texts made to be slow cost no more than others of their length."""

from __future__ import annotations

import unicodedata

from hypothesis import given
from hypothesis import strategies as st

from agentsup.kit.normal_form import normal_form

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
