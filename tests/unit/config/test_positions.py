"""Places of values: whatever the layout of the text, the place found is where the value stands."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentsup.config import KeyPath
from agentsup.config.positions import JsonPositions, LineIndex, TomlPositions

scalars = st.one_of(
    st.none(), st.booleans(), st.integers(), st.floats(allow_nan=False), st.text(max_size=8)
)
documents = st.recursive(
    scalars,
    lambda inner: st.one_of(
        st.lists(inner, max_size=4), st.dictionaries(st.text(max_size=5), inner, max_size=4)
    ),
    max_leaves=15,
)


def paths(value: Any, at: KeyPath = ()) -> list[tuple[KeyPath, Any]]:
    found = [(at, value)]
    if isinstance(value, dict):
        for key, inner in value.items():
            found += paths(inner, (*at, key))
    elif isinstance(value, list):
        for index, inner in enumerate(value):
            found += paths(inner, (*at, index))
    return found


@given(documents, st.sampled_from([None, 0, 1, 3]), st.booleans())
def test_each_value_of_a_json_text_is_found(value: Any, indent: int | None, ascii_: bool) -> None:
    text = "\n " + json.dumps(value, indent=indent, ensure_ascii=ascii_) + "\n"
    places = JsonPositions(text)
    lines = text.split("\n")
    for at, expected in paths(value):
        line, column = places.locate(at)
        rest = "\n".join([lines[line - 1][column - 1 :], *lines[line:]])
        decoder = json.JSONDecoder()
        found, end = decoder.raw_decode(rest)
        if at and isinstance(at[-1], str):
            assert found == at[-1]
            found, _ = decoder.raw_decode(rest[end:].lstrip(" \n:"))
        assert found == expected
    assert places.duplicate_keys() == []


def test_a_path_that_is_not_there_is_placed_at_its_nearest_parent() -> None:
    places = JsonPositions('[\n {"a": {"b": 1}}]')
    assert places.locate((0, "a", "x", 3)) == (2, 3)
    assert places.locate((0, "x")) == (2, 2)
    assert places.locate((7,)) == (1, 1)
    assert places.locate((0, "a", "b", "deeper")) == (2, 9)


def test_doubled_keys_are_found_at_any_depth() -> None:
    places = JsonPositions('{"a": 1,\n "b": [{"c": 1, "c": 2}],\n "a": 3}')
    assert places.duplicate_keys() == [(("b", 0, "c"), (2, 17)), (("a",), (3, 2))]
    assert places.locate(("a",)) == (3, 2)


@given(st.text(alphabet="ab\n", max_size=30))
def test_offsets_become_lines_and_columns(text: str) -> None:
    index = LineIndex(text)
    for offset in range(len(text) + 1):
        line, column = index.position(offset)
        before = text[:offset].split("\n")
        assert (line, column) == (len(before), len(before[-1]) + 1)


TOML = '''# [fake]
top = 1
[api] # comment ]
  port = 8799
allowed_hosts = [
  "a", # it's ]
  "[b]",
]
text = """
fake = 1
[fake]
"""
lit = \'\'\'x
also_fake = 2\'\'\'
"quoted key" = { inner = [1,
  2] }
after = 1
[agent_defaults.slots]
peer = 1
restart.base_s = 2
[[list]]
x = 1
[[list]]
x = 2
'''


@pytest.mark.parametrize(
    "where, place",
    [
        (("top",), (2, 1)),
        (("api",), (3, 2)),
        (("api", "port"), (4, 3)),
        (("api", "allowed_hosts", 1), (5, 1)),
        (("api", "text"), (9, 1)),
        (("api", "quoted key", "inner"), (15, 1)),
        (("api", "after"), (17, 1)),
        (("agent_defaults",), (18, 2)),
        (("agent_defaults", "slots", "peer"), (19, 1)),
        (("agent_defaults", "slots", "restart", "base_s"), (20, 1)),
        (("list", 0, "x"), (22, 1)),
        (("fake",), (1, 1)),
        (("api", "fake"), (3, 2)),
        (("also_fake",), (1, 1)),
    ],
)
def test_keys_of_a_toml_text_are_found(where: KeyPath, place: tuple[int, int]) -> None:
    assert TomlPositions(TOML).locate(where) == place
