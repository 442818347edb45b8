"""A part that is built later than its users."""

from __future__ import annotations

import pytest

from agentsup.daemon.assembly.parts import Late


def test_it_gives_the_part_once_it_is_built() -> None:
    late = Late[list[int]]("the list")
    part = [1]
    late.set(part)
    assert late() is part


def test_an_early_read_names_what_is_missing() -> None:
    with pytest.raises(RuntimeError, match="the list is used before it is built"):
        Late[list[int]]("the list")()


def test_it_is_set_once() -> None:
    late = Late[None]("nothing")
    late.set(None)
    assert late() is None
    with pytest.raises(RuntimeError, match="nothing is built twice"):
        late.set(None)
