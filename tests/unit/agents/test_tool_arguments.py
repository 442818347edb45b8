"""What models write into arguments: null for nothing, numbers that are none."""

import json
import math
from typing import Any

import pytest

from agentsup.agents.tools import arguments
from agentsup.model.errors import BadRequest


def test_null_is_as_good_as_nothing() -> None:
    args = json.loads('{"agent": null, "timeout": null, "mark": null, "mode": null}')
    assert arguments.text(args, "agent", default="") == ""
    assert arguments.number(args, "timeout", default=300) == 300
    assert arguments.flag(args, "mark", default=True) is True
    assert arguments.flag(args, "mark") is False
    assert arguments.choice(args, "mode", ("notify", "ask")) == "notify"
    assert arguments.whole(args, "timeout", default=2, low=0, high=5) == 2
    assert arguments.short(args, "agent", 3) == ""
    with pytest.raises(BadRequest, match="'agent' is missing"):
        arguments.text(args, "agent")


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf, 10**400, True, "5", [5]])
def test_a_number_is_a_finite_one(value: Any) -> None:
    for read in (
        lambda: arguments.number({"n": value}, "n", default=1.0),
        lambda: arguments.optional_number({"n": value}, "n"),
        lambda: arguments.whole({"n": value}, "n", default=1, low=0, high=5),
    ):
        with pytest.raises(BadRequest, match=r"'n' must be a .*number"):
            read()


@pytest.mark.parametrize(
    "value, is_short", [("abc", True), (" abc\n", True), ("abcd", False), ("a\nb", False)]
)
def test_a_name_is_short_and_on_one_line(value: str, is_short: bool) -> None:
    if is_short:
        assert arguments.short({"label": value}, "label", 3) == "abc"
        return
    with pytest.raises(BadRequest, match="'label' must be one line of at most 3"):
        arguments.short({"label": value}, "label", 3)
