"""What is counted of an answer before it is parsed."""

from __future__ import annotations

import json
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from agentsup.kit.outbound.limits import LimitExceeded, exceeded, values_in

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(',[{"\\ab', max_size=20),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(',[{"\\a', max_size=5), inner),
)


def count(value: Any) -> int:
    """Commas and brackets that open, as they stand outside of strings."""
    if isinstance(value, dict):
        return 1 + max(0, len(value) - 1) + sum(map(count, value.values()))
    if isinstance(value, list):
        return 1 + max(0, len(value) - 1) + sum(map(count, value))
    return 0


@given(JSON, st.booleans())
def test_signs_are_counted_outside_of_strings_only(value: Any, is_ascii: bool) -> None:
    text, values = json.dumps(value, ensure_ascii=is_ascii).encode(), count(value)
    assert values_in(text, values) <= values
    assert values == 0 or values_in(text, values - 1) > values - 1


def test_a_long_string_is_no_crowd_of_values_even_where_steps_cut_it() -> None:
    text = json.dumps({"a": 'x,[{"\\' * 300_000}).encode()
    assert values_in(text, 50) == 1
    assert values_in(b'"' + b"\\\\" * 1_000_000 + b'",' + b"[],[]," * 50, 50) > 50


def test_a_limit_is_found_behind_the_errors_of_a_library() -> None:
    inner = LimitExceeded("bytes", "too much")
    outer = RuntimeError("a library's")
    outer.__cause__ = inner
    assert exceeded(outer) is inner
    assert exceeded(ExceptionGroup("several", [ValueError(), inner])) is inner
    assert exceeded(ValueError()) is None
    assert exceeded(None) is None
