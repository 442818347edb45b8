"""Texts: what shows nothing is written out, normal forms cost no more than others, sentences end."""

from __future__ import annotations

import re
import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentsup.kit.text import INVISIBLE, as_sentence, normal_form, visible

NAMES = re.compile(
    r"VARIATION SELECTOR|HANGUL .*FILLER|KHITAN .*FILLER|GRAPHEME JOINER|BRAILLE PATTERN BLANK"
    r"|KHMER VOWEL INHERENT|NULL NOTEHEAD|INVISIBLE|ZERO WIDTH|^SOFT HYPHEN|WORD JOINER|^TAG "
)
"""Characters without ink, by what Unicode calls them."""
SIGNED = (
    frozenset((0x6DD, 0x70F, 0x890, 0x891, 0x8E2, 0x110BD, 0x110CD, 0xFFF9, 0xFFFA, 0xFFFB))
    | frozenset(range(0x600, 0x606))
    | frozenset(range(0x13430, 0x13440))
)
"""Of the category Cf, but with a glyph: these are not ignorable."""


def test_the_table_has_what_unicode_calls_ignorable_or_without_ink() -> None:
    table = re.compile(f"[{INVISIBLE}]")
    for number in range(0x110000):
        letter = chr(number)
        is_format = unicodedata.category(letter) == "Cf" and number not in SIGNED
        if is_format or NAMES.search(unicodedata.name(letter, "")):
            assert table.match(letter), hex(number)
            assert visible(letter).startswith("\\"), hex(number)


UNSEEN = """2800 3164 115f ffa0 034f fe0f e0100 180b 17b4 1d159 16fe4 a0 3000 1680 200d e0041 2065 fff0
e0fff d800 0378"""


@pytest.mark.parametrize("number", [int(each, 16) for each in UNSEEN.split()])
def test_what_is_not_seen_is_a_code_also_within_an_emoji(number: int) -> None:
    assert visible(f"a{chr(number)}b") in (f"a\\u{number:04x}b", f"a\\U{number:08x}b")


def test_what_is_seen_stays() -> None:
    text = "rm -rf ~ ä 日本 👍🏽 العربية é e\u0301"
    assert visible(text) == text
    assert visible("❤️‍🔥") == "❤\\ufe0f\\u200d🔥"


SLOW = "a" + "\u0301\u0316" * 500_000
"""Sorted in one piece this takes minutes, in which no other thread runs."""


@given(st.text(max_size=700))
def test_a_text_with_white_space_has_the_very_form(text: str) -> None:
    spaced = " ".join(text[at : at + 100] for at in range(0, len(text), 100))
    assert normal_form(spaced) == unicodedata.normalize("NFC", spaced)


def test_nothing_is_lost_without_white_space() -> None:
    text = "e\u0301" * 10_000
    assert unicodedata.normalize("NFC", normal_form(text)) == "\u00e9" * 10_000


def test_a_text_made_to_be_slow_is_not() -> None:
    assert len(normal_form(SLOW)) in range(len(SLOW) - 10, len(SLOW) + 1)


@pytest.mark.parametrize(
    "text, sentence",
    [
        ("the server is down", "The server is down."),
        ("is the server up?", "Is the server up?"),
        ("http://127.0.0.1:1/v1 is down", "http://127.0.0.1:1/v1 is down."),
        ("https://a.example is down. ", "https://a.example is down."),
        ("", ""),
    ],
)
def test_a_sentence_ends_once_and_leaves_an_address_as_it_is(text: str, sentence: str) -> None:
    assert as_sentence(text) == sentence
