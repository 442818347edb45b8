"""Whatever shows nothing is written out."""

from __future__ import annotations

import re
import unicodedata

import pytest

from agentsup.kit.invisible import INVISIBLE, visible

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
