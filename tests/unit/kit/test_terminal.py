"""Nothing that comes from elsewhere steers a terminal, whatever its form."""

from __future__ import annotations

import json
import re

from hypothesis import given
from hypothesis import strategies as st

from agentsup.kit.terminal import clean, clean_json, clean_line, clean_painted

STEERING = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069\ud800-\udfff]"
)
HOSTILE = "\x1b]0;title\x07 \x1b[2J \x9b31m \x9d0;x\x9c \u202edesrever\u202c \u2066x\u2069 \x7f\r"
ANY = st.text(st.characters() | st.sampled_from(HOSTILE))


@given(ANY)
def test_no_control_code_is_left(text: str) -> None:
    for made in (clean(text), clean_line(text), clean_json(json.dumps(text, ensure_ascii=False))):
        assert STEERING.search(made) is None
    assert "\n" not in clean_line(text)
    assert json.loads(clean_json(json.dumps(text, ensure_ascii=False))) == text


@given(ANY)
def test_of_painted_text_only_our_colours_are_left(text: str) -> None:
    bare = re.sub("\x1b\\[(?:0|1|2|31|32|33|36)m", "", clean_painted(text))
    assert STEERING.search(bare) is None


def test_what_is_meant_stays() -> None:
    assert clean("ä\t日本\n👍🏽 العربية") == "ä\t日本\n👍🏽 العربية"
    assert clean(HOSTILE) == "·]0;title· ·[2J ·31m ·0;x· ·desrever· ·x· ··"
    assert clean_painted("\x1b[31mred\x1b[0m \x1b[8mhidden") == "\x1b[31mred\x1b[0m ·[8mhidden"
    assert clean_line("a\nb\x1b\u202e") == r"a\nb\u001b\u202e"
    assert clean("❤️‍🔥 👩‍👩‍👧 1️⃣ ©︎ می‌خواهم क्‍ष") == "❤️‍🔥 👩‍👩‍👧 1️⃣ ©︎ می‌خواهم क्‍ष"


def test_what_nobody_sees_is_marked_and_emoji_are_whole_however_they_are_cut() -> None:
    assert clean("a\u2800b\u3164c\U000e0041d\ufe0fe\u200df\u034f") == "a·b·c·d·e·f·"
    assert clean_line("a\U000e0100") == r"a\U000e0100"
    whole = "❤️‍🔥👩‍👧"
    for at in range(len(whole) + 1):
        assert clean(whole[:at]) + clean(whole[at:]) == whole
