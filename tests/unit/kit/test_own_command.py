"""Commands in texts for people name the home that they are for."""

from __future__ import annotations

from pathlib import Path

import pytest

from agentsup.kit.own_command import naming, with_home

DEFAULT = Path("/home/anna/.agentsup")


def test_commands_name_a_home_that_is_not_the_default() -> None:
    with naming(Path("/srv/my home"), DEFAULT):
        shown = with_home(
            "`agentsup setup` sets one up, `agentsup tasks list` too; agentsup is fine"
        )
        assert shown == (
            "`agentsup --home '/srv/my home' setup` sets one up, "
            "`agentsup --home '/srv/my home' tasks list` too; agentsup is fine"
        )
        assert with_home(shown) == shown


@pytest.mark.parametrize(
    "text", ["`agentsup --home .home up`", "`agentsup`", "run agentsup setup", "`agents list`"]
)
def test_all_else_stays(text: str) -> None:
    with naming(Path("/srv/home"), DEFAULT):
        assert with_home(text) == text


def test_the_default_home_needs_no_name_and_a_block_ends() -> None:
    with naming(DEFAULT, DEFAULT):
        assert with_home("`agentsup setup`") == "`agentsup setup`"
        with naming(Path("/srv/home"), DEFAULT):
            assert "/srv/home" in with_home("`agentsup setup`")
        assert with_home("`agentsup setup`") == "`agentsup setup`"
