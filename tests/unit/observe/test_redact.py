from __future__ import annotations

import json
from urllib.parse import quote

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from agentsup.observe import MASK, Redactor

TOKEN = "123456:AAF-ünlikely/+value"


@pytest.mark.parametrize(
    "text",
    [
        TOKEN,
        f"https://api.example/bot{TOKEN}/getMe",
        quote(TOKEN, safe=""),
        quote(TOKEN),
        json.dumps({"token": TOKEN}),
        repr(TOKEN),
        f"{TOKEN}{TOKEN}",
    ],
)
def test_a_secret_is_masked_however_it_is_written(text: str) -> None:
    redacted = Redactor([TOKEN]).text(text)
    assert MASK in redacted
    for start in range(len(TOKEN) - 8):
        assert TOKEN[start : start + 9] not in redacted


def test_nested_values_keys_and_objects_are_cleaned() -> None:
    class Thing:
        def __repr__(self) -> str:
            return f"Thing({TOKEN})"

    value = {
        "list": [TOKEN, {"deep": (TOKEN,)}],
        TOKEN: 1,
        "thing": Thing(),
        "error": ValueError(f"bad {TOKEN}"),
        "set": {TOKEN},
        "bytes": TOKEN.encode("latin-1"),
        "n": 7,
        "none": None,
    }
    cleaned = Redactor([TOKEN, TOKEN.encode("latin-1").decode("ascii", "ignore")]).value(value)
    assert TOKEN not in repr(cleaned)
    assert cleaned["list"] == [MASK, {"deep": [MASK]}]
    assert cleaned["thing"] == f"Thing({MASK})"
    assert cleaned["error"] == f"ValueError: bad {MASK}"
    assert (cleaned["n"], cleaned["none"]) == (7, None)


def test_a_secret_of_digits_is_masked_as_a_number_too() -> None:
    assert Redactor(["12345678"]).value({"pin": 12345678, "n": 5}) == {"pin": MASK, "n": 5}


def test_what_can_not_be_shown_does_not_break_the_line() -> None:
    class Broken:
        def __repr__(self) -> str:
            raise RuntimeError("no")

    loop: list[object] = []
    loop.append(loop)
    assert Redactor().value(Broken()) == "<Broken without repr: RuntimeError>"
    assert "[...]" in str(Redactor().value(loop))


def test_short_and_empty_secrets_are_not_looked_for() -> None:
    redactor = Redactor()
    for secret in ("", "   ", "abc", "abcd"):
        redactor.add(secret)
    assert redactor.text("abc abcd") == f"abc {MASK}"


def test_the_longer_of_two_secrets_goes_as_a_whole() -> None:
    for order in (("secret", "secret-tail"), ("secret-tail", "secret")):
        assert Redactor(order).text("secret-tail") == MASK


@given(st.integers(0, 60), st.integers(1, 60))
def test_a_cut_never_leaves_a_part_of_a_secret(before: int, limit: int) -> None:
    secret = "S3CRET-VALUE"
    text = "x" * before + secret + "y" * 200
    shown = Redactor([secret]).text(text, limit)
    assert "S3" not in shown
    assert "RET" not in shown
    assert len(shown) < limit + 60


@given(st.text(min_size=4, max_size=20), st.text(max_size=30), st.text(max_size=30))
def test_no_secret_survives_in_any_text(secret: str, before: str, after: str) -> None:
    assume(len(secret.strip()) >= 4 and secret not in MASK)
    redacted = Redactor([secret]).text(before + secret + after)
    assert secret not in redacted.replace(MASK, "")


def test_a_secret_that_is_no_text_is_masked_too() -> None:
    secret = "half-\udcff-secret"
    assert Redactor([secret]).text(f"with {secret}") == f"with {MASK}"


AB = st.text("ab", min_size=1, max_size=40)


@given(
    st.lists(st.text("ab", min_size=4, max_size=9), max_size=4), AB, st.lists(st.integers(0, 40))
)
def test_a_text_in_pieces_is_masked_like_the_whole_of_it(
    secrets: list[str], text: str, cuts: list[int]
) -> None:
    redactor = Redactor(secrets)
    stream, shown, at = redactor.stream(), "", 0
    for cut in (*sorted(cuts), len(text)):
        shown += stream.take(text[at:cut])
        at = max(at, cut)
    assert shown + stream.rest() == redactor.text(text)


def test_what_can_be_no_secret_is_shown_at_once() -> None:
    stream = Redactor(["sk-4711-secret"]).stream()
    assert stream.take("the key is sk") == "the key is "
    assert stream.take("-4711-sec") == ""
    assert stream.take("ret!") == f"{MASK}!"
    assert stream.take("ask ") == "ask "
    assert (stream.take("sk-47"), stream.take("00"), stream.rest()) == ("", "sk-4700", "")


def test_many_long_secrets_are_looked_for_in_pieces_quickly() -> None:
    redactor = Redactor(f"{number:04}-{'k' * 3000}" for number in range(100))
    stream = redactor.stream()
    assert stream.take("0042-" + "k" * 2999) == ""
    assert stream.take("k") == MASK
