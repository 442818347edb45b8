"""Where a reader wants an answer to end, whatever pieces it comes in."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentsup.api.completions.shaping import Bounds, Shaper, shaped

LETTERS = st.text(alphabet="abä", max_size=30)


@pytest.mark.parametrize(
    "text, bounds, wanted",
    [
        ("one END two", Bounds(("END",)), ("one ", "stop")),
        ("one EN", Bounds(("END",)), ("one EN", "stop")),
        ("a b c", Bounds((" c", " b")), ("a", "stop")),
        ("abcdefgh", Bounds(max_tokens=2), ("abcdefgh", "stop")),
        ("abcdefghi", Bounds(max_tokens=2), ("abcdefgh", "length")),
        ("äöüäö", Bounds(max_tokens=1), ("äö", "length")),
        ("abc€", Bounds(max_tokens=1), ("abc", "length")),
        ("abcdefghi", Bounds(("b",), max_tokens=1), ("a", "stop")),
        ("", Bounds(("x",), max_tokens=1), ("", "stop")),
    ],
)
def test_it_ends_at_the_first_bound(text: str, bounds: Bounds, wanted: tuple[str, str]) -> None:
    assert shaped(text, bounds) == wanted


@given(
    LETTERS,
    st.lists(st.text(alphabet="ab", min_size=1, max_size=3), max_size=2),
    st.none() | st.integers(1, 4),
    st.lists(st.integers(1, 5), min_size=1, max_size=40),
)
def test_pieces_change_nothing(
    text: str, stop: list[str], most: int | None, sizes: list[int]
) -> None:
    bounds = Bounds(tuple(stop), most)
    shaper, got, at = Shaper(bounds), "", 0
    for size in sizes:
        got += shaper.more(text[at : at + size])
        at += size
    got += shaper.more(text[at:]) + shaper.rest()
    assert (got, shaper.finish_reason) == shaped(text, bounds)
    assert all(one not in got for one in stop)
    assert text.startswith(got)
