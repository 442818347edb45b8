"""Where a reader wants an answer to end, whatever pieces it comes in."""

from __future__ import annotations

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from agentsup.api.completions.shaping import OutputLimiter, OutputLimits, shaped

LETTERS = st.text(alphabet="abä", max_size=30)


@pytest.mark.parametrize(
    "text, bounds, wanted",
    [
        ("one END two", OutputLimits(("END",)), ("one ", "stop")),
        ("one EN", OutputLimits(("END",)), ("one EN", "stop")),
        ("a b c", OutputLimits((" c", " b")), ("a", "stop")),
        ("aba", OutputLimits(("b", "aba")), ("a", "stop")),
        ("abc", OutputLimits(("bc", "abc")), ("", "stop")),
        ("abcdefgh", OutputLimits(max_tokens=2), ("abcdefgh", "stop")),
        ("abcdefghi", OutputLimits(max_tokens=2), ("abcdefgh", "length")),
        ("äöüäö", OutputLimits(max_tokens=1), ("äö", "length")),
        ("abc€", OutputLimits(max_tokens=1), ("abc", "length")),
        ("abcdefghi", OutputLimits(("b",), max_tokens=1), ("a", "stop")),
        ("", OutputLimits(("x",), max_tokens=1), ("", "stop")),
    ],
)
def test_it_ends_at_the_first_bound(
    text: str, bounds: OutputLimits, wanted: tuple[str, str]
) -> None:
    assert shaped(text, bounds) == wanted


@example("aba", ["b", "aba"], None, [2])
@given(
    LETTERS,
    st.lists(st.text(alphabet="ab", min_size=1, max_size=3), max_size=2),
    st.none() | st.integers(1, 4),
    st.lists(st.integers(1, 5), min_size=1, max_size=40),
)
def test_pieces_change_nothing(
    text: str, stop: list[str], most: int | None, sizes: list[int]
) -> None:
    bounds = OutputLimits(tuple(stop), most)
    shaper, got, at = OutputLimiter(bounds), "", 0
    for size in sizes:
        got += shaper.more(text[at : at + size])
        at += size
    got += shaper.more(text[at:]) + shaper.rest()
    assert (got, shaper.finish_reason) == shaped(text, bounds)
    assert all(one not in got for one in stop)
    assert text.startswith(got)
