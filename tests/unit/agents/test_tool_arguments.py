"""What models write into arguments: null for nothing, numbers that are none."""

from __future__ import annotations

import json
import math
from typing import Annotated, Any, ClassVar
from unittest.mock import MagicMock

import pytest
from pydantic import Field

from agentsup.agents.delegation.tools import delegation_tools, spawning_tools, task_tools
from agentsup.agents.delegation.tools.teams import Dispatch, team_tools
from agentsup.agents.tools import (
    exec_tool,
    file_tools,
    mailbox_tools,
    memory_tools,
    peer_tools,
    result_tool,
    web_tool,
)
from agentsup.agents.tools.declaring import (
    Arguments,
    Flag,
    Needed,
    Number,
    Text,
    Texts,
    Whole,
    choice,
    line,
    read,
    schema_of,
    whole,
)
from agentsup.model.errors import BadRequest

MOST_CHARS = 16_750
"""For the schemas of all tools: 5 % over what they were when they were written by hand."""


class Given(Arguments):
    """One argument of each kind."""

    also: ClassVar = {"needed": ("other",)}
    nullable: ClassVar = frozenset(["kept"])

    needed: Needed
    other: Text = ""
    kept: Any = 5
    n: Number = 300
    maybe: Number | None = None
    count: Annotated[int, whole(0, 5)] = 2
    any_count: Whole = 1
    mark: Flag = True
    mode: Annotated[str, choice("notify", "ask")] = "notify"
    label: Annotated[str, line(3)] = ""
    words: Texts = ()
    rows: list[Dispatch] = Field([])


def given(**args: Any) -> Given:
    return read(Given, {"needed": "x", **args})


def test_null_is_as_good_as_nothing() -> None:
    nulls = json.loads('{"n": null, "mark": null, "mode": null, "count": null, "label": null}')
    assert given(**nulls) == given()
    assert given().kept == 5
    assert given(kept=None).kept is None
    with pytest.raises(BadRequest, match="'needed' is missing"):
        read(Given, {"needed": None})


def test_the_first_name_that_is_not_blank_counts() -> None:
    assert read(Given, {"needed": " ", "other": "y"}).needed == "y"
    assert given(other="y").needed == "x"
    for args in ({}, {"needed": " "}, {"other": ""}):
        with pytest.raises(BadRequest, match="'needed' is missing"):
            read(Given, args)


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf, 10**400, True, "5", [5]])
@pytest.mark.parametrize("name", ["n", "maybe", "count", "any_count"])
def test_a_number_is_a_finite_one(name: str, value: Any) -> None:
    with pytest.raises(BadRequest, match=rf"'{name}' must be a .*number") as refused:
        given(**{name: value})
    assert refused.value.facts["field"] == name


def test_a_whole_number_is_brought_between_its_bounds() -> None:
    assert [given(count=each).count for each in (-1, 3.7, 99)] == [0, 3, 5]


@pytest.mark.parametrize(
    "value, is_short", [("abc", True), (" abc\n", True), ("abcd", False), ("a\nb", False)]
)
def test_a_name_is_short_and_on_one_line(value: str, is_short: bool) -> None:
    if is_short:
        assert given(label=value).label == "abc"
        return
    with pytest.raises(BadRequest, match="'label' must be one line of at most 3"):
        given(label=value)


@pytest.mark.parametrize(
    "args, told",
    [
        ({"other": 1}, "'other' must be a string"),
        ({"mark": "yes"}, "'mark' must be true or false"),
        ({"mode": "shout"}, "'mode' must be one of notify, ask"),
        ({"words": "a"}, "'words' must be a list of strings"),
        ({"words": ["a", 1]}, "'words' must be a list of strings"),
        ({"rows": "a"}, "'rows' must be a list of objects"),
        ({"rows": ["a"]}, "'rows' must be a list of objects"),
        ({"rows": [{"team": 1}]}, "'team' must be a string"),
    ],
)
def test_an_error_names_the_field(args: dict[str, Any], told: str) -> None:
    with pytest.raises(BadRequest, match=told):
        given(**args)


def test_tasks_of_a_dispatch_share_its_prompt_and_time() -> None:
    args = {"prompt": "p", "timeout_s": 7, "tasks": [{}, {"prompt": "q", "capability": "a, b"}]}
    first, second = read(Dispatch, args).tasks
    assert (first.prompt, first.timeout_s) == ("p", 7)
    assert (second.prompt, second.timeout_s, second.capability) == ("q", 7, ("a", "b"))


def test_a_schema_is_plain_and_small() -> None:
    """Some engines read no references, and each turn pays for what its tools' schemas say."""
    it = MagicMock()
    tools = (
        *peer_tools(it, it),
        *mailbox_tools(it, it, it),
        *memory_tools(it, it),
        *file_tools(it),
        result_tool(it),
        exec_tool(dict),
        web_tool(),
        *delegation_tools(it),
        *spawning_tools(it, it),
        *task_tools(it, it),
        *team_tools(it, it, it),
    )
    text = json.dumps([tool.schema for tool in tools])
    assert len(text) <= MOST_CHARS
    for word in ("$ref", "$defs", "anyOf", '"default"'):
        assert word not in text
    assert all(callable(tool.parameters) for tool in tools if tool.name != "exec"), (
        "made when asked for"
    )
    assert schema_of(Given)["required"] == ["needed"]
    assert schema_of(Given)["properties"]["maybe"] == {"type": "number"}
    assert schema_of(Given)["properties"]["rows"]["items"]["additionalProperties"] is False
