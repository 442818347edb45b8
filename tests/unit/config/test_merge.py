"""The deep merge: each value comes from the highest layer that says it, and its origin is told."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from agentsup.config.merge import (
    ExplainedValues,
    Layer,
    ValueOrigin,
    build_spec,
    built_in,
    leaves,
    merge,
)
from agentsup.model.agent import AgentSpec, Slots
from agentsup.model.secret import Secret

ORIGINS = list(ValueOrigin)

# Layers as validation lets them through: a key is a block in all of them or in none.
blocks = st.dictionaries(
    st.sampled_from(["peer", "interactive", "background"]), st.integers(1, 9), max_size=3
)
nested = st.dictionaries(st.sampled_from(["x", "y"]), blocks, max_size=2)
layer_values = st.fixed_dictionaries(
    {},
    optional={
        "model": st.text(max_size=3),
        "tools": st.lists(st.text(max_size=2), max_size=2),
        "queue_limit": st.integers(1, 5),
        "slots": blocks,
        "engine_options": nested,
    },
)
layer_lists = st.lists(layer_values, min_size=1, max_size=len(ORIGINS)).map(
    lambda found: [Layer(ORIGINS[index], values) for index, values in enumerate(found)]
)


def flat(values: dict[str, Any], prefix: str = "") -> dict[str, Any]:
    found: dict[str, Any] = {}
    for key, value in values.items():
        if isinstance(value, dict) and value:
            found.update(flat(value, f"{prefix}{key}."))
        else:
            found[f"{prefix}{key}"] = value
    return found


def merged(*layers: Layer) -> dict[str, Any]:
    return dict(merge(layers).values)


@given(layer_values)
def test_one_layer_merges_to_itself(values: dict[str, Any]) -> None:
    made = merge([Layer(ValueOrigin.ENTRY, values)])
    assert made.values == values
    assert set(made.origins) == set(flat(values))
    assert set(made.origins.values()) <= {ValueOrigin.ENTRY}


@given(layer_values)
def test_an_empty_layer_changes_nothing(values: dict[str, Any]) -> None:
    layer, empty = Layer(ValueOrigin.ENTRY, values), Layer(ValueOrigin.OVERRIDE, {})
    assert merge([layer, empty]) == merge([empty, layer]) == merge([layer])


@given(layer_values, layer_values, layer_values)
def test_merging_is_associative(
    one: dict[str, Any], two: dict[str, Any], three: dict[str, Any]
) -> None:
    first, second, third = (Layer(ValueOrigin.ENTRY, each) for each in (one, two, three))
    left = merged(Layer(ValueOrigin.ENTRY, merged(first, second)), third)
    right = merged(first, Layer(ValueOrigin.ENTRY, merged(second, third)))
    assert left == right == merged(first, second, third)


@given(layer_lists)
def test_each_leaf_comes_from_the_last_layer_that_has_it(layers: list[Layer]) -> None:
    made = merge(layers)
    for path, value in flat(dict(made.values)).items():
        said = [layer for layer in layers if path in flat(dict(layer.values))]
        if value == {} and not said:
            continue  # a block that only empty blocks made
        assert flat(dict(said[-1].values))[path] == value
        assert made.origins[path] is said[-1].origin
        assert made.origin(path) is said[-1].origin
    assert set(made.origins) == set(flat(dict(made.values)))


@given(layer_lists)
def test_merging_changes_none_of_its_layers(layers: list[Layer]) -> None:
    before = repr([layer.values for layer in layers])
    merge(layers)
    assert repr([layer.values for layer in layers]) == before


def test_one_key_of_a_block_leaves_the_others() -> None:
    """The predecessor replaced whole blocks: one streaming key reset all others."""
    made = merge(
        [
            built_in(),
            Layer(ValueOrigin.AGENT_DEFAULTS, {"streaming": {"mode": "off", "min_chars": 7}}),
            Layer(ValueOrigin.ENTRY, {"name": "a", "streaming": {"min_chars": 9}}),
        ]
    )
    streaming = build_spec(made.values).streaming
    assert (streaming.mode, streaming.min_chars, streaming.idle_ms) == ("off", 9, 800)
    assert made.origin("streaming.mode") is ValueOrigin.AGENT_DEFAULTS
    assert made.origin("streaming.min_chars") is ValueOrigin.ENTRY
    assert made.origin("streaming.idle_ms") is ValueOrigin.BUILT_IN


def test_lists_replace() -> None:
    low = Layer(ValueOrigin.AGENT_DEFAULTS, {"tools": ["a", "b"]})
    assert merged(low, Layer(ValueOrigin.ENTRY, {"tools": ["c"]})) == {"tools": ["c"]}
    assert merged(low, Layer(ValueOrigin.ENTRY, {"tools": []})) == {"tools": []}


def test_a_value_that_changes_its_shape_replaces_with_its_origins() -> None:
    low = Layer(ValueOrigin.AGENT_DEFAULTS, {"engine_options": {"x": {"y": 1, "z": 2}}})
    made = merge([low, Layer(ValueOrigin.ENTRY, {"engine_options": {"x": 5}})])
    assert made == ExplainedValues(
        {"engine_options": {"x": 5}}, {"engine_options.x": ValueOrigin.ENTRY}
    )
    again = merge(
        [
            low,
            Layer(ValueOrigin.ENTRY, {"engine_options": {"x": 5}}),
            Layer(ValueOrigin.OVERRIDE, {"engine_options": {"x": {"k": 1}}}),
        ]
    )
    assert again.values == {"engine_options": {"x": {"k": 1}}}
    assert again.origins == {"engine_options.x.k": ValueOrigin.OVERRIDE}


def test_the_built_in_layer_is_the_spec_s_own_defaults() -> None:
    made = merge([built_in(), Layer(ValueOrigin.ENTRY, {"name": "a"})])
    assert build_spec(made.values) == AgentSpec("a")


def test_a_spec_is_frozen_all_through_and_keeps_secrets_wrapped() -> None:
    made = merge(
        [
            built_in(),
            Layer(
                ValueOrigin.ENTRY,
                {
                    "name": "a",
                    "tools": ["x"],
                    "telegram_token": "1:t",
                    "matrix": {"password": "p", "allowed_users": ["@u:x"]},
                    "slots": {"peer": 9},
                    "engine_options": {"api_key": "sk-1", "max_tokens": 5, "h": {"Token": ["t"]}},
                },
            ),
        ]
    )
    spec = build_spec(made.values)
    assert spec.tools == ("x",)
    assert spec.telegram_token == Secret("1:t")
    assert spec.matrix.password == Secret("p")
    assert spec.matrix.allowed_users == ("@u:x",)
    assert spec.slots == Slots(peer=9)
    assert spec.engine_options == {
        "api_key": Secret("sk-1"), "max_tokens": 5, "h": {"Token": [Secret("t")]}
    }  # fmt: skip
    assert leaves(spec)["engine_options.max_tokens"] == 5
    assert leaves(spec)["slots.peer"] == 9
    assert "sk-1" not in repr(made)
