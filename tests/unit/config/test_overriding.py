"""What may be overridden, as the field table and the schema of agents.json say it."""

from __future__ import annotations

from typing import get_args

import pytest

from agentsup.config.override_rules import (
    OVERRIDABLE,
    choices,
    field_problem,
    override_problem,
    raises_rights,
    read_value,
)
from agentsup.model.agent import FIELDS, Engine
from agentsup.model.agent_fields import FieldClass


def test_every_overridable_field_can_be_set_and_every_other_says_why() -> None:
    good = {"turn_timeout_s": "60", "idle_timeout_s": "1.5"}
    for path, info in FIELDS.items():
        assert (field_problem(path) is None) == info.overridable, path
        if info.overridable:
            text = good.get(path) or (choices(path) or ("word",))[0]
            assert override_problem(path, read_value(path, text)) is None, path
            assert info.cls in (FieldClass.LIVE, FieldClass.REBUILD), path
    assert set(OVERRIDABLE) >= {"engine", "provider", "model", "permission_mode"}


def test_the_choices_are_those_of_the_schema() -> None:
    assert set(choices("engine")) == set(get_args(Engine))
    assert choices("streaming.mode") == ("off", "buffered", "live")
    assert choices("model") == ()


def test_a_typed_value_is_a_number_only_where_one_is_wanted() -> None:
    assert read_value("turn_timeout_s", "5") == 5
    assert read_value("turn_timeout_s", "soon") == "soon"
    assert read_value("model", "5") == "5"
    assert read_value("nosuch", "5") == "5"


@pytest.mark.parametrize(
    "before, after, raises",
    [
        (None, "bypassPermissions", True),
        ("plan", "default", True),
        ("plan", None, True),
        (None, "default", False),
        ("bypassPermissions", "acceptEdits", False),
        ("bypassPermissions", "bypassPermissions", False),
    ],
)
def test_what_asks_less_is_known(before: str | None, after: str | None, raises: bool) -> None:
    assert raises_rights("permission_mode", before, after) is raises
    assert not raises_rights("model", before, after)


def test_the_order_of_rights_has_every_mode() -> None:
    for mode in choices("permission_mode"):
        assert not raises_rights("permission_mode", mode, mode)
